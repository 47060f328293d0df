"""The facts of a ledger in words: the line under epsilon, and the table "verified, declared, assumed"."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.accounting import FACTS, Fact, How, Ledger
from tacit.standing import Standing

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
    declared = [fact for fact in facts if _kind(fact) == "declared"]
    words = f"{standing}; {_counted(len(verified), 'fact')} enforced or checked{_probed(verified)}"
    if declared:
        words += f", {len(declared)} declared: {'; '.join(_told(fact) for fact in declared)}"
    return words if not assumed else f"{words}, {len(assumed)} assumed: {'; '.join(_told(fact) for fact in assumed)}"


def rounding_of(ledger: Ledger) -> str:
    """What training says of its rounding: the allowance nu, and what it takes; empty for other ledgers."""
    found = next((fact for fact in ledger.facts if fact.id == "arithmetic"), None)
    return f"Rounding: {_told(found)}." if found is not None and "nu =" in found.says else ""


def fact_rows(facts: Iterable[Fact]) -> list[tuple[str, str, str]]:
    """(kind, what must hold, how it is known) of each fact: verified ones first, then declared, then assumed."""
    known = list(facts)
    return [(kind, FACTS[fact.id], _known_by(fact)) for kind in KINDS for fact in known if _kind(fact) == kind]


def known_by_kind(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    """(kind, what) of "verified", "declared" and "assumed": how many facts, and in short which; none is said too."""
    known = list(facts)
    rows = []
    for kind in KINDS:
        names = [fact.id.replace("_", " ") for fact in known if _kind(fact) == kind]
        rows.append((kind, f"{_counted(len(names), 'fact')}: {', '.join(names)}" if names else "nothing"))
    return rows


def _kind(fact: Fact) -> str:
    """Of the guarantee's table: what leaves it conditional is assumed, however it was checked."""
    if fact.standing is not Standing.PROVEN:
        return "assumed"
    return "declared" if fact.how is How.DECLARED else "verified"


def _known_by(fact: Fact) -> str:
    words = fact.how.value
    if fact.times:
        last = "" if fact.last_step is None else f", last at step {fact.last_step}"
        words += f" {_counted(fact.times, 'time')}{last}"
    return f"{words}: {fact.says}" if fact.says else words


def _probed(facts: Iterable[Fact]) -> str:
    """How often the model was probed, where it was."""
    for fact in facts:
        if fact.id == "model_rows" and fact.times:
            last = "" if fact.last_step is None else f", last at step {fact.last_step}"
            return f" (probe {_counted(fact.times, 'time')}{last})"
    return ""


def _told(fact: Fact) -> str:
    return fact.says.rstrip(".") or FACTS[fact.id]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
