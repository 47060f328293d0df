"""Metamorphic properties of the exact accountant over its documented range: what must hold between two of its answers.

python -m tests.accounting.metamorphic --draws 20000 [--start 0] [--seed S]     prints every violation and the counts

Every draw has its own number, so that pieces add up: 16 processes take 1,250 draws each, from --start 0, 1250, ..., or
each a seed of its own. Intervals are compared by their outer ends: where f must not be above g, the lower end of f must
not be above the upper end of g. Most draws are of few steps, whose accounting takes milliseconds; one in sixteen is of
the whole documented range.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tacit import Ledger, Refused, accountant
from tacit.accounting.claims import Claim, Verdict, examine
from tacit.budget.records import steps_of
from tacit.calibration import parameter_of_spec
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.mechanisms import (
    DiscreteGaussian,
    Exponential,
    FixedSize,
    Gaussian,
    Laplace,
    Mechanism,
    PermuteAndFlip,
    PoissonTrials,
    RandomizedResponse,
    Selection,
    TruncatedPoisson,
    from_spec,
    law_of,
)
from tacit.relation import Relation
from tacit.tradeoff import Answer, Epsilon

Draw = np.random.Generator
Property = Callable[[Draw], Iterator[tuple[Answer, Answer]]]
SEED = 20261124
"""Of the draws that CI runs."""
TINY, LEAST = 1e-300, math.ulp(0.0)
DELTAS = (0.0, LEAST, TINY, 1e-30, 1e-12, 1e-5, 0.1, 1 - 1e-12, 1.0)


def log_uniform(draw: Draw, low: float, high: float) -> float:
    """A number in [low, high]; one of the ends once in ten draws."""
    if draw.random() < 0.1:
        return float(draw.choice([low, high]))
    return float(np.exp(draw.uniform(np.log(low), np.log(high))))


def wide(draw: Draw) -> bool:
    """Whether a number is drawn from the whole documented range."""
    return bool(draw.random() < 1 / 16)


def noise(draw: Draw) -> float:
    """From almost no noise to so much that nothing leaks."""
    return log_uniform(draw, *((1e-3, 1e5) if draw.random() < 0.2 else (0.3, 10.0)))


def rate(draw: Draw) -> float:
    """A sampling rate from 1e-9 to 1; every record in half of all draws, which need no engine."""
    if draw.random() < 0.4:
        return 1.0
    return log_uniform(draw, *((1e-9, 1.0) if wide(draw) else (1e-3, 0.5)))


def steps(draw: Draw) -> int:
    """From one step to a million, mostly a few."""
    return round(log_uniform(draw, *((1, 1e6) if wide(draw) else (1, 4))))


def delta(draw: Draw) -> float:
    """A delta in [0, 1], often one of the ends or next to them."""
    return float(draw.choice(DELTAS)) if draw.random() < 0.4 else log_uniform(draw, 1e-12, 0.5)


def relation(draw: Draw) -> Relation:
    """Add/remove as often as both others together."""
    return Relation(draw.choice(["add_remove", "add_remove", "replace_one", "zero_out"]))


def gaussian(scale: float, at: float) -> Mechanism:
    """One Gaussian step, sampled where the rate is below 1."""
    return Gaussian(scale) if at == 1.0 else Gaussian(scale).poisson(at)


def simple(draw: Draw) -> Mechanism:
    """One step of any kind that has a dominating pair."""
    scale, pure = noise(draw), log_uniform(draw, *((1e-9, 1e4) if wide(draw) else (1e-4, 20.0)))
    kinds: list[Callable[[], Mechanism]] = [
        lambda: Laplace(scale),
        lambda: Exponential(pure),
        lambda: RandomizedResponse(pure),
        lambda: DiscreteGaussian(max(scale, 0.3)),
        lambda: FixedSize(Gaussian(max(scale, 0.3)), 100, int(draw.integers(1, 100))),
        lambda: PermuteAndFlip(pure),
        lambda: gaussian(scale, rate(draw)),
    ]
    step = kinds[draw.integers(len(kinds))]()
    return step.poisson(rate(draw)) if isinstance(step, Laplace | RandomizedResponse) and wide(draw) else step


def anything(draw: Draw) -> Mechanism:
    """One kind of step, repeated, or two kinds together."""
    one = simple(draw) * steps(draw) if draw.random() < 0.5 else gaussian(noise(draw), rate(draw)) * steps(draw)
    return one + simple(draw) * int(draw.integers(1, 4)) if draw.random() < 0.2 else one


def selected(draw: Draw) -> Mechanism:
    """A private selection, up to a million trials."""
    sampled = log_uniform(draw, 1e-3, 1.0) if wide(draw) else 1.0
    base = gaussian(log_uniform(draw, 0.5, 300.0), sampled) * steps(draw)
    if draw.random() < 0.5:
        return Selection.of(base, law=PoissonTrials(log_uniform(draw, 0.5, 1e6)))
    return Selection.of(base, law=law_of(float(draw.uniform(-0.95, 3.0)), trials=log_uniform(draw, 1.5, 1e6)))


def point(value: float, like: Answer) -> Answer:
    """One number as an answer of no width, to compare an end of an interval with."""
    return Answer(value, like.standing, value, value)


def answer(mechanism: Mechanism, at: float, neighbours: Relation = Relation.ADD_REMOVE) -> Answer:
    """Epsilon of the exact accountant at delta `at`."""
    return accountant("pld")(mechanism, relation=neighbours).epsilon(at)


def falls_with_delta(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A larger delta needs no larger epsilon; nor is delta 0 cheaper than delta 1e-300."""
    found = accountant("pld")(selected(draw) if wide(draw) else anything(draw), relation=relation(draw))
    small, large = sorted([delta(draw), delta(draw)])
    yield found.epsilon(large), found.epsilon(small)
    tiny, none = found.epsilon(TINY), found.epsilon(0.0)
    yield point(float(tiny.interval[0] or 0.0), tiny), point(float(none.interval[0] or 0.0), none)


def is_unbounded_without_delta(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """Gaussian noise has no finite epsilon at delta 0."""
    found = accountant("pld")(gaussian(noise(draw), rate(draw)) * steps(draw)).epsilon(0.0)
    yield point(math.inf, found), found


def delta_falls_with_epsilon(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A larger epsilon needs no larger delta, and Gaussian noise never delta 0."""
    mechanism = gaussian(noise(draw), rate(draw)) * steps(draw) if draw.random() < 0.5 else anything(draw)
    found = accountant("pld")(mechanism, relation=relation(draw))
    small, large = sorted(log_uniform(draw, 1e-9, 1e6) for _ in range(2))
    yield found.delta(large), found.delta(small)
    if all(type(step) is Gaussian for step in (getattr(part, "base", part) for part, _ in mechanism.parts())):
        least = found.delta(large)
        yield point(LEAST, least), least


def falls_with_noise(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """More noise leaks no more."""
    small, large = sorted([noise(draw), noise(draw)])
    q, count, at, neighbours = rate(draw), steps(draw), delta(draw), relation(draw)
    yield answer(gaussian(large, q) * count, at, neighbours), answer(gaussian(small, q) * count, at, neighbours)


def rises_with_rate(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """Rarer samples leak no more."""
    small, large = sorted([rate(draw), rate(draw)])
    scale, count, at = noise(draw), steps(draw), delta(draw)
    yield answer(gaussian(scale, small) * count, at), answer(gaussian(scale, large) * count, at)


def rises_with_steps(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """Fewer steps leak no more, whatever the step."""
    small, large = sorted([steps(draw), steps(draw)])
    step, at, neighbours = simple(draw), delta(draw), relation(draw)
    yield answer(step * small, at, neighbours), answer(step * large, at, neighbours)


def holds_its_parts(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A composition leaks at least what each part does."""
    one, other, at, neighbours = anything(draw), simple(draw), delta(draw), relation(draw)
    both = answer(one + other, at, neighbours)
    yield answer(one, at, neighbours), both
    yield answer(other, at, neighbours), both


def holds_a_single_trial(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """The best of more trials is bounded no better: all numbers are numbers, at both ends of the range."""
    mechanism, at = selected(draw), delta(draw)
    found = answer(mechanism, at)
    yield found, found


def holds_its_members(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A group leaks at least what one record does, and a larger group at least what a smaller one does."""
    ledger = Ledger.of(gaussian(log_uniform(draw, 0.4, 10.0), rate(draw)) * steps(draw))
    small, large = sorted(int(size) for size in draw.integers(1, 9, 2))
    at, pld = delta(draw), accountant("pld")
    yield pld.grouped(ledger, small).epsilon(at), pld.grouped(ledger, large).epsilon(at)


def keeps_the_floor_of_its_parts(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """What is proven to leak to a group does not fall where a count is released, too."""
    training = gaussian(log_uniform(draw, 0.5, 3.0), float(draw.choice([1.0, 0.3]))) * int(draw.integers(1, 4))
    size, at, pld = int(draw.integers(2, 4)), log_uniform(draw, 1e-6, 0.1), accountant("pld")
    scale = log_uniform(draw, 2.0, 50.0)
    alone = pld.grouped(Ledger.of(training), size).epsilon(at)
    both = pld.grouped(Ledger.of(training + Laplace(scale)), size).epsilon(at)
    low, high = float(both.interval[0] or 0.0), float(both.interval[1] or 0.0)
    yield point(0.999 * float(alone.interval[0] or 0.0), alone), point(low, both)
    # The count adds `size` / `scale` at most, and the bound of both is as exact as that of the training.
    yield point(high * (1 - 1e-4), both), point(float(alone.interval[1] or 0.0) + size / scale + 1e-6, alone)
    yield point(high, both), point(low * (1 + 1e-3) + 1e-4, both)


def keeps_its_word(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A calibrated noise is printed as no less than was found, and read again by the command it meets its target."""
    step = {"type": "gaussian", "steps": int(draw.integers(1, 5000)), "noise_multiplier": None}
    if wide(draw):
        step["sample_rate"] = log_uniform(draw, 1e-3, 0.5)
    epsilon, at = str(log_uniform(draw, 0.05, 20.0)), str(log_uniform(draw, 1e-12, 1e-2))
    with TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.json"
        spec.write_text(json.dumps({"relation": "add_remove", "mechanisms": [step]}))
        found = parameter_of_spec(spec, Epsilon(float(epsilon), float(at))).value
        with redirect_stdout(StringIO()) as printed:
            calibrated = main(["calibrate", str(spec), "--epsilon", epsilon, "--delta", at])
        step["noise_multiplier"] = float(printed.getvalue().split()[1])
        spec.write_text(json.dumps({"relation": "add_remove", "mechanisms": [step]}))
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            claimed = main(["account", str(spec), "--claim", epsilon, "--delta", at, "--accountant", "pld"])
    again = answer(Gaussian(1.0), 1e-5)
    yield point(calibrated + claimed + ("add_remove" not in printed.getvalue()), again), point(0.0, again)
    yield point(found, again), point(step["noise_multiplier"], again)


def refutes_what_leaks(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A claim is refuted exactly where it is below the proven lower end, at the ends of all ranges, too."""
    step, at = gaussian(noise(draw), rate(draw) if wide(draw) else 1.0), delta(draw)
    lower = answer(step, at)
    claimed = float(draw.choice([0.0, LEAST, 0.5, 1e300, 0.999999 * min(float(lower.lower or 0.0), 1e300)]))
    refuted = examine(Claim(Ledger.of(step), claimed, at)).verdict is Verdict.REFUTED
    yield point(float(refuted != (claimed < float(lower.lower or 0.0))), lower), point(0.0, lower)


def is_as_tight_as_its_peers(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """Permute-and-flip costs what Laplace noise does; a full truncated sample what twice the shift on a subset does."""
    at, pure, scale = delta(draw), log_uniform(draw, 1e-3, 10.0), log_uniform(draw, 0.5, 10.0)
    at = at and max(at, 1e-150)  # Of masses below 1e-290 a mixed pair has a bound from above alone, .4 % wider.
    flip, peer = answer(PermuteAndFlip(pure), at), answer(Laplace(1 / pure), at)
    yield point(float(flip.interval[1] or 0.0) * (1 - 1e-9), flip), peer
    records = int(draw.integers(2, 1000))
    cap = int(draw.integers(1, records))
    cut = answer(TruncatedPoisson(Gaussian(scale), 1.0, records, cap), at)
    yield point(float(cut.interval[1] or 0.0) * (1 - 1e-6), cut), answer(Gaussian(scale / 2).poisson(cap / records), at)


def counts_whole_steps(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A registry takes positive whole numbers of steps alone, and a ledger none in a forked process."""
    ledger, wrong = Ledger(), float(draw.choice([-20, 0, math.nan, 0.5, -math.inf, math.inf]))
    taken = 0
    for record in (lambda: steps_of([(Gaussian(1.0), wrong)]), lambda: ledger.add(Gaussian(1.0), wrong)):  # type: ignore[arg-type]
        try:
            record()
            taken += 1
        except InvalidInput:
            pass
    if draw.random() < 0.3:
        taken += _recorded_in_a_child(ledger)
    like = answer(Gaussian(1.0), 1e-5)
    yield point(taken, like), point(0.0, like)


def _recorded_in_a_child(ledger: Ledger) -> int:
    """1 where a forked process wrote into the ledger of its parent without a word, else 0."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            ledger.add(Gaussian(1.0))
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def survives_its_file(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A step read back from its JSON form is the same step."""
    mechanism, at = simple(draw), delta(draw)
    again, _ = from_spec(mechanism.spec())
    first, second = answer(mechanism, at), answer(again, at)
    yield first, second
    yield second, first


PROPERTIES: tuple[Property, ...] = (
    falls_with_delta,
    is_unbounded_without_delta,
    delta_falls_with_epsilon,
    falls_with_noise,
    rises_with_rate,
    rises_with_steps,
    holds_its_parts,
    holds_a_single_trial,
    holds_its_members,
    keeps_its_word,
    survives_its_file,
    keeps_the_floor_of_its_parts,
    refutes_what_leaks,
    is_as_tight_as_its_peers,
    counts_whole_steps,
)


def violation(number: int, seed: int = SEED) -> str:
    """What draw `number` shows: empty where its property holds, "refused" where the accountant has no answer."""
    draw = np.random.default_rng([seed, number])
    holds = PROPERTIES[number % len(PROPERTIES)]
    try:
        for small, large in holds(draw):
            low, high = small.interval[0], large.interval[1]
            if low is not None and high is not None and not low <= high:
                return f"{number} {holds.__name__}: {small.interval} against {large.interval}"
    except (Refused, InvalidInput) as error:
        return "refused" if "report" not in str(error) else f"{number} {holds.__name__}: {error}"
    return ""


def run() -> None:
    """Draw, and print every violation and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(given.start, given.start + given.draws):
        found = violation(number, given.seed)
        counts["refused" if found == "refused" else "violated" if found else "held"] += 1
        if found and found != "refused":
            print(found, flush=True)
    print(f"{given.draws} draws of seed {given.seed}: {counts['violated']} violations, {dict(counts)}")


if __name__ == "__main__":
    run()
