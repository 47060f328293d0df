"""Numbers and guarantees in words: bounds are rounded to the safe side, never to the nearest.

The facts of a ledger in words: the line under epsilon, and the table "verified, declared, assumed".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.accounting import ACCOUNTANTS, FACTS, Fact, How, Ledger, Result
from tacit.accounting.facts import PUBLIC
from tacit.relation import Relation
from tacit.standing import Standing, downward, leakage, nearest, upward

if TYPE_CHECKING:
    from tacit.audit import AuditResult
    from tacit.audit.evidence import CanaryEvidence

NEIGHBOURS = {
    Relation.ADD_REMOVE: "adding or removing one {unit}",
    Relation.REPLACE_ONE: "replacing one {unit} by another",
    Relation.ZERO_OUT: "zeroing out one {unit}",
}
MEANING = {
    Standing.PROVEN: "a theorem, derived arithmetic and facts that are enforced, checked or declared by name: a bound",
    Standing.CONDITIONAL: "the theorem holds if the named facts do, and nobody checked them",
    Standing.ASYMPTOTIC: "a limit theorem without an error bound: exact only for infinitely many steps",
    Standing.BAYESIAN: "an average over records: no bound for a single record",
    Standing.CLAIMED: "a paper says so, or a seed or a private value was used: nothing proves it for this run",
    Standing.MEASURED: "the result of an attack: a lower bound with a confidence",
}
_VERDICTS = ("confirmed", "refuted", "not decided")
NOT_A_BOUND = "A number that is not proven is not a bound."
SHARES = (
    "Calibration on held-out records: boxes hold the true shares of all bins together with 95 % confidence; bins "
    "without records are left out, and the diagonal is perfect calibration. The guarantee does not cover these shares."
)
OUTSIDE = (
    "Test results, with and without privacy, and audits are statistics of the data that the guarantee does not cover: "
    "share them only with those who may see such statistics."
)
"""The sentence beside results that are measured on held-out or private records."""
FALSE_ALARMS = 0.05
TRIVIAL_ADVANTAGE = 0.99
"""Advantage from which a trade-off curve lies on the axes and is not drawn."""
COPIES = 2
"""Broken copies of a training in which attacks on records are measured."""
MEASURES = {"accuracy": "Test accuracy", "rmse": "Test RMSE"}


def scope(name: str) -> str:
    """For which choices the number of a ledger with this scope holds.

    Example:
        >>> scope("fixed")
        'fixed: settings and steps that follow no output'
        >>> scope("menu")
        'menu: choices after outputs, as it declares them'
    """
    holds = {"fixed": "settings and steps that follow no output"}
    return f"{name}: {holds.get(name, 'choices after outputs, as it declares them')}"


def neighbourhood(ledger: Ledger, group: int = 1) -> str:
    """One line: the neighbouring relation, the privacy unit, the size of groups and how batches were drawn."""
    neighbours = NEIGHBOURS[ledger.relation].format(unit=ledger.unit)
    if group > 1:
        neighbours = f"{neighbours}, {group} of them together"
    rows = ledger.spec()["mechanisms"]
    samplings = sorted({str(row.get("sampling", "poisson" if "sample_rate" in row else "none")) for row in rows})
    unit = ledger.unit if group == 1 else f"group of {group} {ledger.unit}s, which may be all of a user"
    return f"Relation {ledger.relation.value}: {neighbours}. Unit: {unit}. Sampling: {', '.join(samplings)}."


def checked(row: Mapping[str, Any] | None) -> str:
    """One sentence about a verdict of ball arithmetic on the bracket of epsilon, as in JSON; "" without one."""
    if row is None:
        return ""
    verdict = check.choice("verdict", row.get("verdict"), _VERDICTS)
    reason = f": {row.get('reason')}" if row.get("reason") else ""
    return f"The two-sided epsilon is {verdict} by ball arithmetic{reason}."


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal."""
    return "–" if value is None else f"{100 * value:.1f} %"


def measured(value: float | None, measure: str) -> str:
    """A test result: accuracies as percentages, anything else to four digits."""
    return percent(value) if measure == "accuracy" else nearest(value)


def told_against(metrics: Mapping[str, float | None], measure: str) -> str:
    """What a test result is to be read against: its interval, the best constant answer, and how well classes rank."""
    told = []
    if metrics.get("test_low") is not None:
        ends = [measured(metrics.get(name), measure) for name in ("test_low", "test_high")]
        told.append(f"95 % interval {ends[0]} to {ends[1]}")
    if metrics.get("constant_test") is not None:
        answer = "always the commonest class" if measure == "accuracy" else "always the mean"
        told.append(f"{answer}: {measured(metrics['constant_test'], measure)}")
    if metrics.get("auroc") is not None:
        told.append(f"AUROC {nearest(metrics['auroc'], 3)}")
    if metrics.get("r2") is not None:
        told.append(f"R² {nearest(metrics['r2'], 3)}")
    return "; ".join(told)


def percent_upward(value: float) -> str:
    """A fraction as a percentage with one decimal, rounded up and at most 100 %."""
    return f"{min(math.ceil(value * 1000 - 1e-9) / 10, 100.0):.1f} %"


def together(confidences: Sequence[float], *, jointly: bool = False) -> str | None:
    """The joint chance of a false alarm of several verdicts, by the union bound; None for fewer than two.

    Args:
        confidences: of each row.
        jointly: whether the verdict is one over all tests together, whatever the rows say each for itself.
    """
    if len(confidences) < 2:
        return None
    if jointly:
        return "Every row is at its own confidence; a verdict on the claim, and the exit code, is at 99.9 % over all."
    alarm = percent_upward(min(sum(1 - each for each in confidences), 1.0))
    told = f"Every verdict is at its own confidence: with {len(confidences)} of them, "
    return f"{told}the chance of a false alarm is up to {alarm}."


def setting(value: object) -> str:
    """A configured value as a reader would write it."""
    return nearest(value, 6) if isinstance(value, float) else "–" if value is None else str(value)


def duration(seconds: float) -> str:
    """Wall time in the two largest units."""
    minutes, rest = divmod(seconds, 60)
    if minutes < 1:
        return f"{rest:.1f} s"
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest:.0f} s"


def by_trust(results: Sequence[Result]) -> list[Result]:
    """Results of the best standing first, the smallest epsilon first among them.

    Where what ran lowers every standing to the same, as a seeded stream does, that of the accountants themselves
    decides: a refuted formula must not come first by being small.
    """
    order = list(Standing)

    def rank(result: Result) -> tuple[int, int, float]:
        standing, by = result.tradeoff.standing, ACCOUNTANTS.get(result.tradeoff.source)
        return order.index(standing), order.index(by.standing if by else standing), result.epsilon

    return sorted(results, key=rank)


GAMES = {
    Relation.ADD_REMOVE: "detects that a given {unit} was trained on",
    Relation.REPLACE_ONE: "tells a given {unit} from another one in its place",
    Relation.ZERO_OUT: "tells a given {unit} from a blank one in its place",
}
SCOPE = "It covers this run with all weights that it released, and no other run"


def headline(results: Sequence[Result], unit: str) -> tuple[str, str]:
    """(sentence, detail): what is guaranteed, for whom, and the numbers behind it."""
    if not results:
        return "No guarantee: no accountant applies to what ran.", "Every accountant gives its reason below."
    best = by_trust(results)[0]
    standing = best.tradeoff.standing
    neighbours = NEIGHBOURS[best.tradeoff.relation].format(unit=unit)
    detail = f"{guarantee(results)} at δ = {best.delta:g}, for {neighbours}, by the accountant {best.tradeoff.source}."
    if standing is Standing.CONDITIONAL:
        return "A conditional guarantee: it holds if the facts assumed below do.", f"If they do: {detail} {NOT_A_BOUND}"
    if standing is not Standing.PROVEN:
        return f"No proven guarantee: the best number is only {standing.value}.", f"{detail} {NOT_A_BOUND}"
    if math.isinf(best.epsilon):
        return "No guarantee: the proven epsilon is infinite.", detail
    found = float(best.tradeoff.tpr(FALSE_ALARMS))
    game = GAMES[best.tradeoff.relation].format(unit=unit)
    sentence = (
        f"Whoever studies this model, even knowing every other {unit}, {game} "
        f"with probability at most {percent_upward(found)} when false alarms are held to {percent(FALSE_ALARMS)}."
    )
    size = "" if best.tradeoff.relation is Relation.ADD_REMOVE else "; the number of records is public"
    return sentence, f"Blind guessing reaches {percent(FALSE_ALARMS)}. {detail} {SCOPE}{size}."


def headline_number(results: Sequence[Result]) -> tuple[str, str] | None:
    """(number, what it counts) beside the headline of a proven guarantee; None where nothing finite is proven."""
    best = _proven(results)
    if best is None:
        return None
    chance, found = percent(FALSE_ALARMS), percent_upward(float(best.tradeoff.tpr(FALSE_ALARMS)))
    return f"≤ {found}", f"chance that a member is found, at {chance} false alarms (blind guessing: {chance})"


def _proven(results: Sequence[Result]) -> Result | None:
    """The best result where it is a finite proven epsilon."""
    best = by_trust(results)[0] if results else None
    known = best is not None and best.tradeoff.standing is Standing.PROVEN and math.isfinite(best.epsilon)
    return best if known else None


def terms(results: Sequence[Result], protected: str) -> str:
    """Epsilon with its delta, for whom and for how many releases, of a proven guarantee; empty for any other."""
    best = _proven(results)
    if best is None:
        return ""
    number = f"{guarantee(results)} at δ = {best.delta:g}, for {protected}, released once"
    return f"{number}: a further release about the same people adds to it."


def guarantee(results: Sequence[Result]) -> str:
    """Epsilon of the best result with its sign, or "none"."""
    if not results:
        return "none"
    best = by_trust(results)[0]
    standing = best.tradeoff.standing
    sign = "≤" if standing in (Standing.PROVEN, Standing.CONDITIONAL) else "≈"
    return f"ε {sign} {leakage(best.epsilon, standing)}"


def says_something(result: Result) -> bool:
    """Whether a result is a proven bound that excludes any attack worth naming: advantage below `TRIVIAL_ADVANTAGE`."""
    return result.tradeoff.standing is Standing.PROVEN and result.advantage < TRIVIAL_ADVANTAGE


def least_epsilon(results: Sequence[Result]) -> float:
    """Epsilon of the best result, infinity without one."""
    return by_trust(results)[0].epsilon if results else math.inf


def strongest(audits: Sequence[AuditResult]) -> tuple[str, str]:
    """(result, detail) of the attack with the largest lower bound on epsilon, then the largest advantage."""
    if not audits:
        return "not attacked", "no attack was run"
    best = max(audits, key=lambda audit: (audit.epsilon_lower, audit.advantage))
    low, high = best.advantage_interval
    detail = (
        f"by {best.attack}; advantage {nearest(best.advantage, 3)} ({downward(low, 3)} to {upward(high, 3)}), "
        f"strongest of {len(audits)}; could have detected ε {upward(best.detectable_epsilon, 3)}"
    )
    return f"ε ≥ {downward(best.epsilon_lower, 3)}", detail


def canary_sentence(evidence: CanaryEvidence) -> str:
    """What canaries found in the first steps of a run, their monitors first, and what they would have noticed."""
    passed = ", ".join(f"{name} {'passed' if each else 'FAILED'}" for name, each in evidence.monitors.items())
    shares = ", and in ".join(f"{percent(share)} {copy}" for copy, share in evidence.power.items())
    could = "could" if evidence.could_refute else "could not"
    found = evidence.result
    stream = " Noise and batches came from a secure stream, not from the run's seed." if evidence.is_seeded else ""
    steps = f"The first {evidence.steps:,} of {evidence.total:,} steps"
    steps = steps if evidence.steps < evidence.total else f"All {evidence.total:,} steps"
    return (
        f"{steps}, repeated with canaries.{stream} Monitors: {passed}. "
        f"{found.members + found.non_members:,} canaries, about half of them trained on, found ε ≥ "
        f"{downward(found.epsilon_lower, 3)} where these steps allow ε ≤ {upward(evidence.epsilon, 3)}. Of simulated "
        f"runs, {evidence.simulated} each, they refute that bound in {shares}: they {could} have refuted the claim. "
        f"This took at most {evidence.seconds:g} s."
    )


def powers(
    audits: Sequence[AuditResult], power: Mapping[str, Mapping[str, float]], results: Sequence[Result], seconds: float
) -> list[tuple[str, bool]]:
    """(sentence, whether it could not have refuted the claim) of each attack on records.

    Args:
        audits: of attacks on records.
        power: attack -> broken copy of the training in words -> the epsilon that it finds there.
        results: of the accountants; the best of them is the claim.
        seconds: that one more training takes, at most.
    """
    rows = []
    for audit in audits:
        found = power.get(audit.attack, {}) if results else {}
        told = "; ".join(f"in a copy {copy} it finds ε ≥ {downward(epsilon, 3)}" for copy, epsilon in found.items())
        if len(found) < COPIES:
            took = f", up to {duration(seconds)}" if seconds else ""
            further = "in a further broken copy" if found else "in broken copies"
            told += f"{told and '; '}what it finds {further} could not be measured: one more training{took}"
        weak = bool(found) and min(found.values()) <= least_epsilon(results)
        if found:
            told += ". It could not have refuted the claim" if weak else ". It could have refuted the claim"
        rows.append((f"{audit.attack}: {told}.", weak))
    return rows


def reserve(leaks: Sequence[str]) -> str:
    """The sentence beside a guarantee about statistics that it does not cover; empty where there are none."""
    if not leaks:
        return ""
    return f"The guarantee does not cover statistics read from the data without a privacy cost: {'; '.join(leaks)}."


KINDS = ("verified", "declared", "assumed")
"""Kinds of facts on a card, in its order."""
UNSTATED = "a stored run that states no facts: run it again with this version"
"""What a ledger from before facts were recorded is conditional on."""


def of_what(ledger: Ledger) -> str:
    """One sentence: whether the numbers are about a run or about mechanisms alone."""
    if ledger.is_evidence:
        return "Record of a run: what ran, with the facts that the guarantee rests on."
    if ledger.is_run:
        return f"Statement of a file, {ledger.origin.value}: it says what ran, and nothing here shows that it did."
    if ledger.standing is Standing.CONDITIONAL:
        return "Record without facts: nothing here shows that the code which ran is the code that is accounted."
    return "Statement about mechanisms: it says what they would cost, not what any program did."


def rests_on(ledger: Ledger, word: str = "") -> str:
    """The line under epsilon: how many facts are verified, declared or assumed, and which of the latter two.

    Of a received run, `word` stands where the standing would.
    """
    standing = word or ledger.standing.value
    facts = list(ledger.facts)
    assumed = ledger.facts.assumed
    if ledger.standing is Standing.CONDITIONAL:
        reasons = [_told(fact) for fact in assumed] or [UNSTATED]
        return f"{word and word + ', '}conditional on {_counted(len(reasons), 'fact')}: {'; '.join(reasons)}"
    if not facts:
        return f"{standing}; a statement about mechanisms, which rests on no facts about a run"
    verified = [fact for fact in facts if _kind(fact) == "verified"]
    words = f"{standing}; {_counted(len(verified), 'fact')} enforced or checked"
    words += next((f" (probe {_times(fact)})" for fact in verified if fact.id == "model_rows" and fact.times), "")
    declared = [fact for fact in facts if _kind(fact) == "declared"]
    for kind, others in (("declared", declared), ("assumed", assumed)):
        words += f", {len(others)} {kind}: {'; '.join(map(_told, others))}" if others else ""
    return words


def rounding_of(ledger: Ledger) -> str:
    """What training says of its rounding: the allowance nu, and what it takes; empty for other ledgers."""
    found = next((fact for fact in ledger.facts if fact.id == "arithmetic"), None)
    return f"Rounding: {_told(found)}." if found is not None and "nu =" in found.says else ""


def fact_rows(facts: Iterable[Fact]) -> list[tuple[str, str, str]]:
    """(kind, what must hold, how it is known) of each fact: verified ones first, then declared, then assumed."""
    known = list(facts)
    return [(kind, FACTS[fact.id], _known_by(fact)) for kind in KINDS for fact in known if _kind(fact) == kind]


def known_by_kind(facts: Iterable[Fact], assumptions: Sequence[str] = ()) -> list[tuple[str, str]]:
    """(kind, what) of "verified", "declared" and "assumed"; that there is none is said too.

    Verified facts are named in short. What is declared, assumed or taken as public stands in its own words; the other
    sentences that a ledger assumes are counted.

    Args:
        facts: of the ledger.
        assumptions: of the ledger.
    """
    told: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for fact in facts:
        kind = _kind(fact)
        told[kind].append(fact.id.replace("_", " ") if kind == "verified" else _told(fact))
    public = [sentence for sentence in assumptions if sentence.startswith(PUBLIC)]
    told["assumed"] += public
    rows = {kind: "; ".join(each) for kind, each in told.items()}
    if names := told["verified"]:
        rows["verified"] = f"{_counted(len(names), 'fact')} enforced or checked: {', '.join(names)}"
    if others := len(assumptions) - len(public):
        rows["assumed"] = f"{rows['assumed'] or 'no fact'}; {_counted(others, 'sentence')} under Assumptions"
    return [(kind, said or "nothing") for kind, said in rows.items()]


def _kind(fact: Fact) -> str:
    """Of the guarantee's table: what leaves it conditional is assumed, however it was checked."""
    if fact.standing is not Standing.PROVEN:
        return "assumed"
    return "declared" if fact.how is How.DECLARED else "verified"


def _known_by(fact: Fact) -> str:
    words = f"{fact.how.value} {_times(fact)}" if fact.times else fact.how.value
    return f"{words}: {fact.says}" if fact.says else words


def _times(fact: Fact) -> str:
    last = "" if fact.last_step is None else f", last at step {fact.last_step}"
    return f"{_counted(fact.times, 'time')}{last}"


def _told(fact: Fact) -> str:
    return fact.says.rstrip(".") or FACTS[fact.id]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def coarse_seconds(seconds: float) -> float:
    """`seconds` rounded up to a power of two, at least 1.

    Steps take longer for larger batches, whose sizes are private. Rounded, the time tells only its order of magnitude;
    the rest of the dependence is outside of the guarantee, as timing is in all of differential privacy's theorems.

    Example:
        >>> coarse_seconds(0.3), coarse_seconds(70.0), coarse_seconds(128.0)
        (1.0, 128.0, 128.0)
    """
    return 2.0 ** math.ceil(math.log2(max(seconds, 1.0)))
