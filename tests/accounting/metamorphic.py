"""Metamorphic properties of the exact accountant over its documented range: what must hold between two of its answers.

python -m tests.accounting.metamorphic --draws 20000 [--start 0]     prints what was drawn, refused and violated

Every draw has its own number, so that pieces add up. Intervals are compared by their outer ends: where f must not be
above g, the lower end of f must not be above the upper end of g.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from tacit import Epsilon, Ledger, Refused, accountant
from tacit.accounting.claims import Claim, Verdict, examine
from tacit.calibration import smallest
from tacit.errors import InvalidInput
from tacit.mechanisms import (
    DiscreteGaussian,
    Exponential,
    FixedSize,
    Gaussian,
    Laplace,
    Mechanism,
    PoissonTrials,
    RandomizedResponse,
    Selection,
    from_spec,
    law_of,
)
from tacit.relation import Relation
from tacit.standing import upward
from tacit.tradeoff import Answer

Draw = np.random.Generator
Property = Callable[[Draw], Iterator[tuple[Answer, Answer]]]
TINY, LEAST = 1e-300, math.ulp(0.0)
DELTAS = (0.0, LEAST, TINY, 1e-30, 1e-12, 1e-5, 0.1, 1 - 1e-12, 1.0)


def log_uniform(draw: Draw, low: float, high: float) -> float:
    """A number in [low, high]; one of the ends once in ten draws."""
    if draw.random() < 0.1:
        return float(draw.choice([low, high]))
    return float(np.exp(draw.uniform(np.log(low), np.log(high))))


def noise(draw: Draw) -> float:
    """From almost no noise to so much that nothing leaks."""
    return log_uniform(draw, *((0.3, 10.0) if draw.random() < 0.7 else (1e-3, 1e5)))


def rate(draw: Draw) -> float:
    """A sampling rate from 1e-9 to 1."""
    return log_uniform(draw, *((1e-4, 0.5) if draw.random() < 0.7 else (1e-9, 1.0)))


def steps(draw: Draw) -> int:
    """From one step to a million."""
    return round(log_uniform(draw, *((1, 300) if draw.random() < 0.8 else (1, 1e6))))


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
    scale, pure = noise(draw), log_uniform(draw, 1e-4, 20.0)
    kinds: list[Callable[[], Mechanism]] = [
        lambda: Laplace(scale),
        lambda: Exponential(pure),
        lambda: RandomizedResponse(pure),
        lambda: DiscreteGaussian(max(scale, 0.3)),
        lambda: FixedSize(Gaussian(max(scale, 0.3)), 100, int(draw.integers(1, 100))),
        lambda: gaussian(scale, rate(draw)),
    ]
    step = kinds[draw.integers(len(kinds))]()
    return step.poisson(rate(draw)) if isinstance(step, Laplace | RandomizedResponse) and draw.random() < 0.4 else step


def anything(draw: Draw) -> Mechanism:
    """One kind of step, repeated, or two kinds together."""
    one = simple(draw) * steps(draw) if draw.random() < 0.5 else gaussian(noise(draw), rate(draw)) * steps(draw)
    return one + simple(draw) * int(draw.integers(1, 4)) if draw.random() < 0.2 else one


def selected(draw: Draw) -> Mechanism:
    """A private selection, up to a million trials."""
    base = gaussian(log_uniform(draw, 0.5, 300.0), log_uniform(draw, 1e-3, 1.0)) * round(log_uniform(draw, 1, 100))
    if draw.random() < 0.5:
        return Selection.of(base, law=PoissonTrials(log_uniform(draw, 0.5, 1e6)))
    return Selection.of(base, law=law_of(float(draw.uniform(-0.95, 3.0)), trials=log_uniform(draw, 1.5, 1e6)))


def answer(mechanism: Mechanism, at: float, neighbours: Relation = Relation.ADD_REMOVE) -> Answer:
    """Epsilon of the exact accountant at delta `at`."""
    return accountant("pld")(mechanism, relation=neighbours).epsilon(at)


def falls_with_delta(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A larger delta needs no larger epsilon; nor is delta 0 cheaper than delta 1e-300."""
    found = accountant("pld")(selected(draw) if draw.random() < 0.1 else anything(draw), relation=relation(draw))
    small, large = sorted([delta(draw), delta(draw)])
    yield found.epsilon(large), found.epsilon(small)
    yield found.epsilon(TINY), found.epsilon(0.0)


def is_unbounded_without_delta(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """Gaussian noise has no finite epsilon at delta 0."""
    found = accountant("pld")(gaussian(noise(draw), rate(draw)) * steps(draw)).epsilon(0.0)
    yield Answer(math.inf, found.standing, math.inf, math.inf), found


def delta_falls_with_epsilon(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A larger epsilon needs no larger delta, and Gaussian noise never delta 0."""
    mechanism = gaussian(noise(draw), rate(draw)) * steps(draw) if draw.random() < 0.5 else anything(draw)
    found = accountant("pld")(mechanism, relation=relation(draw))
    small, large = sorted(log_uniform(draw, 1e-9, 1e6) for _ in range(2))
    yield found.delta(large), found.delta(small)
    if all(type(step) is Gaussian for step in (getattr(part, "base", part) for part, _ in mechanism.parts())):
        yield Answer(LEAST, found.standing, LEAST, LEAST), found.delta(large)


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


def keeps_its_word(draw: Draw) -> Iterator[tuple[Answer, Answer]]:
    """A calibrated noise, printed and read again, meets its target; no claim below a lower end is consistent."""
    q, count, at = log_uniform(draw, 1e-3, 1.0), round(log_uniform(draw, 1, 3000)), log_uniform(draw, 1e-12, 1e-2)
    target = Epsilon(log_uniform(draw, 0.05, 20.0), at)
    found = smallest("noise_multiplier", lambda value: gaussian(value, q) * count, target)
    again = answer(gaussian(float(upward(found.value, 10)), q) * count, at)
    yield again, Answer(target.epsilon, again.standing, target.epsilon, target.epsilon)
    claimed = float(again.lower or 0.0) * (1 - 1e-6)
    judged = examine(Claim(Ledger.of(gaussian(found.value, q) * count), claimed, at))
    if judged.verdict is not Verdict.REFUTED:
        yield Answer(1.0, again.standing, 1.0, 1.0), Answer(0.0, again.standing, 0.0, 0.0)


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
)


def violation(number: int) -> str:
    """What draw `number` shows: empty where its property holds, "refused" where the accountant has no answer."""
    draw = np.random.default_rng([20261124, number])
    holds = PROPERTIES[number % len(PROPERTIES)]
    try:
        for small, large in holds(draw):
            low, high = small.interval[0], large.interval[1]
            if low is not None and high is not None and not low <= high:
                return f"{number} {holds.__name__}: {small.interval} against {large.interval}"
    except (Refused, InvalidInput) as error:
        return "refused" if "report" not in str(error) else f"{number} {holds.__name__}: {error}"
    return ""


def main() -> None:
    """Draw, and print every violation and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(given.start, given.start + given.draws):
        found = violation(number)
        counts["refused" if found == "refused" else "violated" if found else "held"] += 1
        if found and found != "refused":
            print(found, flush=True)
    print(f"{given.draws} draws: {dict(counts)}")


if __name__ == "__main__":
    main()
