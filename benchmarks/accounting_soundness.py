"""Answers of the accountants against engines and closed forms that share no code with them; counts the unsound ones.

python benchmarks/accounting_soundness.py truth
python benchmarks/accounting_soundness.py random --start 0 --count 250       of 2,000 settings
python benchmarks/accounting_soundness.py directions --start 0 --count 500   of 2,000 settings, each direction by itself
python benchmarks/accounting_soundness.py peer --start 0 --count 500         of 2,000 settings, needs dp-accounting
python benchmarks/accounting_soundness.py schedule --start 0 --count 100     of schedules of unlike noises
python benchmarks/accounting_soundness.py adversarial --start 0 --count 200
python benchmarks/accounting_soundness.py renyi --start 0 --count 2000
python benchmarks/accounting_soundness.py judge --start 0 --count 1000     needs python-flint

Each setting is drawn from its own number, so that pieces add up. Results go into benchmarks/results.
"""

import argparse
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

from tacit.accounting.ledger import Ledger
from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.dispatch import Dispatch
from tacit.errors import TacitError
from tacit.mechanisms import Compose, Gaussian, Mechanism, RandomizedResponse
from tacit.relation import Relation
from tacit.serialization import write_text

RESULTS = Path(__file__).parent / "results" / "accounting_soundness.json"
TRUTH = Path(__file__).parents[2] / "shared" / "truth" / "accounting.json"
CLOSE = 1e-6  # Relative error allowed to the inversion below, which is an estimate with its own check and no bound.
_NODES, _FREQUENCIES = 4000, 40_000
_EPSILONS = (1e-6, 500.0)  # What is asked of the inversion below.
_PEER_EPSILONS = (1e-3, 50.0)  # What the grids of dp-accounting reach in about a second.
_PEER_POINTS = 1e7  # Points of its grid at most.
_PEER_LOG_SIZE, _PEER_SHARE = 20, 1e-3  # log2 of the size of its transforms, and the share of delta they may lose.


@dataclass
class Count:
    """What was asked, refused, left to no engine, and unsound."""

    asked: int = 0
    refused: int = 0
    skipped: int = 0
    unsound: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def judge(self, name: str, tacit: tuple[float, float], other: tuple[float, float], slack: float = 0.0) -> None:
        """Unsound where the two intervals are disjoint by more than a relative slack."""
        self.asked += 1
        if tacit[1] < other[0] * (1 - slack) or tacit[0] > other[1] * (1 + slack):
            self.unsound.append(f"{name}: {tacit} against {other}")

    def judge_or_skip(self, name: str, tacit: tuple[float, float], other: tuple[float, float] | None) -> None:
        """The same up to `CLOSE`, or one more that no engine answers."""
        if other is None:
            self.skipped += 1
        else:
            self.judge(name, tacit, other, CLOSE)

    def by_balls(self, name: str, mechanism: Mechanism, delta: float) -> None:
        """The printed bracket of epsilon, decided in ball arithmetic; skipped where that decides nothing."""
        from tacit.judge import Verdict, check_bracket

        try:
            lower, upper = Pld()(Ledger.of(mechanism)).epsilon(delta).interval
        except TacitError:
            self.refused += 1
            return
        found = check_bracket(mechanism, delta, lower, upper)
        self.asked += 1
        self.seconds.append(found.seconds)
        if found.verdict is Verdict.REFUTED:
            self.unsound.append(f"{name}: {(lower, upper)}, {found.row()}")
        elif found.verdict is Verdict.NOT_DECIDED:
            self.skipped += 1
            self.reasons[re.sub(r"[0-9.e+-]+ ", "", found.reason)] += 1
            print(f"not decided {name}: {(lower, upper)}, {found.reason}")


def truth(_: range) -> Count:
    """Every public row of the truth files."""
    count = Count()
    for row in json.loads(TRUTH.read_text(encoding="utf-8"))["rows"]:
        found = Pld()(Ledger.from_spec(row["spec"])).epsilon(row["delta"]).interval
        exact = row["exact_epsilon"]
        count.judge(row["id"], found, (exact, exact), 1e-8)
    return count


def random_settings(numbers: range) -> Count:
    """DP-SGD: rate 1e-6 to 1, noise .2 to 1e3, 1 to 1e9 steps, under add/remove, at an epsilon of the curve itself.

    Against an inversion of its own, where that has no answer against dp-accounting, and else by ball arithmetic.
    """
    count = Count()
    for number in numbers:
        random = np.random.default_rng([20, number])
        rate, sigma = 10 ** random.uniform(-6, 0), 10 ** random.uniform(np.log10(0.2), 3)
        steps, log_delta = round(10 ** random.uniform(0, 9)), random.uniform(-12, -1)
        mechanism = Gaussian(sigma).poisson(rate) * steps
        answer = _asked(count, mechanism, 10**log_delta, _EPSILONS)
        if answer is None:
            continue
        epsilon, found = answer
        name = f"{number}: noise {sigma!r}, rate {rate!r}, {steps} steps, epsilon {epsilon!r}"
        own = _larger_delta([(sigma, rate, steps)], epsilon)
        other = peer_bounds(sigma, rate, steps, epsilon, found[1]) if own is None else (own, own)
        if other is None:
            count.by_balls(name, mechanism, 10**log_delta)
        else:
            count.judge(name, found, other, CLOSE)
    return count


def _asked(
    count: Count, mechanism: Mechanism, delta: float, within: tuple[float, float]
) -> tuple[float, tuple[float, float]] | None:
    """The epsilon of `delta`, and bounds on delta there; None, and counted, where it is refused or not `within`."""
    try:
        curve = Pld()(mechanism)
        epsilon = curve.epsilon(delta).upper
        if within[0] < epsilon < within[1]:
            return epsilon, curve.delta(epsilon).interval
        count.skipped += 1
    except TacitError:
        count.refused += 1
    return None


def directions(numbers: range) -> Count:
    """Each direction of DP-SGD by itself: the larger delta of two hides what is wrong with the other.

    Rate 1e-4 to 1, noise .3 to 10, 3 to 1e4 steps, at the epsilon of that direction for a delta of 1e-14 to .1.
    """
    count = Count()
    for number in numbers:
        random = np.random.default_rng([24, number])
        rate, sigma = 10 ** random.uniform(-4, 0), 10 ** random.uniform(np.log10(0.3), 1)
        steps, delta = round(10 ** random.uniform(np.log10(3), 4)), 10 ** random.uniform(-14, -1)
        for sign, pair in zip(
            (1, -1), Gaussian(sigma).poisson(rate).dominating_pairs(Relation.ADD_REMOVE), strict=True
        ):
            name = f"{number}, {pair}, {steps} steps"
            try:
                bounds = Dispatch([(pair, steps)])
                epsilon = bounds.epsilon(delta)[1]
                found = bounds.delta(epsilon) if _EPSILONS[0] < epsilon < _EPSILONS[1] else None
            except TacitError:
                count.refused += 1
                continue
            other = None if found is None else delta_of([(sigma, rate, steps)], epsilon, sign)
            if found is None or other is None:
                count.skipped += 1
            else:
                count.judge(f"{name}, epsilon {epsilon!r}", found, (other, other), CLOSE)
    return count


def peer_bounds(sigma: float, rate: float, steps: int, epsilon: float, delta: float) -> tuple[float, float] | None:
    """dp-accounting's optimistic and pessimistic estimate of delta, which hold it between them.

    None where its grid would be too large, or `delta` is so small that its rounding hides it.
    """
    from dp_accounting.pld import privacy_loss_distribution

    if not _PEER_EPSILONS[0] < epsilon < _PEER_EPSILONS[1] or _peer_rounding(steps) > _PEER_SHARE * delta:
        return None
    width = max(1e-3 * min(epsilon, 1.0), 1e-5) / max(1.0, steps**0.5 / 30)
    # Its grid reaches the loss of a step at some 12 deviations of noise, and that of all steps in the worst case.
    if (12 / sigma + 0.5 / sigma**2) * steps**0.5 > _PEER_POINTS * width:
        return None
    low, high = (
        privacy_loss_distribution.from_gaussian_mechanism(
            sigma, pessimistic_estimate=pessimistic, value_discretization_interval=width, sampling_prob=rate,
            use_connect_dots=pessimistic,
        ).self_compose(steps).get_delta_for_epsilon(epsilon)
        for pessimistic in (False, True)
    )  # fmt: skip
    return max(low - _peer_rounding(steps), 0.0), high + _peer_rounding(steps)


def _peer_rounding(steps: int) -> float:
    """What dp-accounting's transforms lose: the power of a transform that errs by the bound of THEORY.md, Theorem 5.4.

    Its masses are not tilted, so that this is absolute: below it, its two estimates exclude each other.
    """
    return steps * 16 * 2.0**-53 * (_PEER_LOG_SIZE + 1)


def peer(numbers: range) -> Count:
    """DP-SGD against the optimistic and the pessimistic estimate of dp-accounting, which hold delta between them.

    Rate 1e-4 to 1, noise .3 to 30, 1 to 1e5 steps; epsilons beyond the reach of their grids are skipped.
    """
    count = Count()
    for number in numbers:
        random = np.random.default_rng([23, number])
        rate, sigma = 10 ** random.uniform(-4, 0), 10 ** random.uniform(np.log10(0.3), np.log10(30))
        steps, delta = round(10 ** random.uniform(0, 5)), 10 ** random.uniform(-9, -1)
        answer = _asked(count, Gaussian(sigma).poisson(rate) * steps, delta, _PEER_EPSILONS)
        if answer is None:
            continue
        epsilon, found = answer
        name = f"{number}: noise {sigma!r}, rate {rate!r}, {steps} steps, epsilon {epsilon!r}"
        count.judge_or_skip(name, found, peer_bounds(sigma, rate, steps, epsilon, found[1]))
    return count


def schedules(numbers: range) -> Count:
    """3 to 9 unlike noises, some with unlike rates, against the inversion of `random`, else by ball arithmetic."""
    count = Count()
    for number in numbers:
        random = np.random.default_rng([24, number])
        rate, sigma = 10 ** random.uniform(-4, -0.5), 10 ** random.uniform(np.log10(0.4), 1)
        steps, log_delta = round(10 ** random.uniform(0, 3)), random.uniform(-12, -1)
        sigmas = sigma * np.exp(random.uniform(0, random.uniform(1e-9, 1.5), int(random.integers(3, 10))))
        rates = rate * np.exp(random.uniform(0, 1, len(sigmas)) * int(random.integers(2)))
        parts = [(float(s), min(float(r), 1.0), steps) for s, r in zip(sigmas, rates, strict=True)]
        schedule = Compose.of(*((Gaussian(s).poisson(r), t) for s, r, t in parts))
        answer = _asked(count, schedule, 10**log_delta, _EPSILONS)
        if answer is None:
            continue
        epsilon, found = answer
        own = _larger_delta(parts, epsilon)
        name = f"{number}: noise from {sigma!r}, rate from {rate!r}, {steps} steps each, epsilon {epsilon!r}"
        if own is None:
            count.by_balls(name, schedule, 10**log_delta)
        else:
            count.judge(name, found, (own, own), CLOSE)
    return count


def judged(numbers: range) -> Count:
    """Brackets that the accountant prints for DP-SGD, decided in ball arithmetic; skipped are the undecided ones.

    Rate 1e-5 to .5, noise .4 to 10, 1 to 1e6 steps, delta 1e-10 to 1e-3, log-uniform in rate, noise - .3, steps, delta.
    """
    count = Count()
    for number in numbers:
        random = np.random.default_rng([26, number])
        rate, sigma = 10 ** random.uniform(-5, np.log10(0.5)), 0.3 + 10 ** random.uniform(-1, np.log10(9.7))
        steps, delta = round(10 ** random.uniform(0, 6)), 10 ** random.uniform(-10, -3)
        name = f"{number}: noise {sigma!r}, rate {rate!r}, {steps} steps, delta {delta!r}"
        count.by_balls(name, Gaussian(sigma).poisson(rate) * steps, delta)
    return count


Parts = list[tuple[float, float, int]]


def _larger_delta(parts: Parts, epsilon: float) -> float | None:
    """The larger of `delta_of` over both directions; None where one has no answer."""
    both = [delta_of(parts, epsilon, sign) for sign in (1, -1)]
    known = [value for value in both if value is not None]
    return max(known) if len(known) == len(both) else None


def delta_of(parts: Parts, epsilon: float, sign: int) -> float | None:
    """Delta of one direction by Fourier inversion along a tilt; None where two rules disagree or it does not decay.

    Its nodes, tilts and periods are its own: a trapezoid sum over 30 standard deviations of noise, and two tilts whose
    values must agree.

    Args:
        parts: noise, rate and count of the steps.
        epsilon: > 0.
        sign: 1 when a record is removed, -1 when it is added.
    """
    one, other = (_inverted(parts, epsilon, sign, shift) for shift in (1.0, 1.25))
    if one is None or other is None or not one > 0:
        return None
    return one if abs(other / one - 1) < CLOSE / 10 else None


def _nodes(sigma: float, rate: float, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses of one step, and logs of their P-masses."""
    u, step = np.linspace(-15.0, 15.0 + 1 / sigma + 60 * min(sigma, 1 / sigma, 1.0), _NODES, retstep=True)
    loss = np.logaddexp(np.log1p(-rate) if rate < 1 else -np.inf, np.log(rate) + u / sigma - 0.5 / sigma**2)
    log_mass = -(u**2) / 2 - 0.5 * np.log(2 * np.pi) + np.log(step)
    return (loss, log_mass + loss) if sign > 0 else (-loss, log_mass)


def _cumulant(loss: np.ndarray, log_mass: np.ndarray, theta: float) -> tuple[float, float, float]:
    """Log moment of one step, mean and variance under the tilt."""
    small = float((theta * loss).max()) < 600.0
    top = float((log_mass + theta * loss).max())
    moment = float((np.exp(log_mass) * (np.expm1(theta * loss) + theta * np.expm1(-loss))).sum()) if small else 0.0
    value = math.log1p(moment) if small else top + math.log(float(np.exp(log_mass + theta * loss - top).sum()))
    weights = np.exp(log_mass + theta * loss - value)
    mean = float((weights * loss).sum() / weights.sum())
    return value, mean, float((weights * (loss - mean) ** 2).sum())


def _inverted(parts: Parts, epsilon: float, sign: int, shift: float) -> float | None:
    laws = [(*_nodes(sigma, rate, sign), steps) for sigma, rate, steps in parts]

    def cumulants(theta: float) -> np.ndarray:
        return np.array([_cumulant(loss, log_mass, theta) for loss, log_mass, _ in laws])

    counts = np.array([steps for *_, steps in laws], dtype=float)
    low, high = 1e-3, 1e6
    for _ in range(60):
        theta = math.sqrt(low * high)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            mean = float(counts @ cumulants(theta)[:, 1])
        above = not math.isfinite(mean) or mean - 1 / theta - 1 / (1 + theta) > epsilon
        low, high = (low, theta) if above else (theta, high)
    theta = math.sqrt(low * high) * shift
    each = cumulants(theta)
    value, mean, variance = counts @ each
    tilted = [np.exp(log_mass + theta * loss - own[0]) for (loss, log_mass, _), own in zip(laws, each, strict=True)]
    if not variance > 0 or any(max(w[0], w[-1]) > 1e-18 * w.max() for w in tilted):
        return None
    spacing = 2 * math.pi / (2 * (abs(epsilon - mean) + 14 * math.sqrt(variance) + 40 / theta))
    last = math.sqrt(80.0 / variance) * 1.5
    if last / spacing > _FREQUENCIES:
        return None
    t = spacing * np.arange(math.ceil(last / spacing) + 1)
    total = np.zeros(len(t))
    log_phi = np.zeros(1, dtype=complex)
    for start in range(0, len(t), 500):
        part = t[start : start + 500]
        log_phi = np.zeros(len(part), dtype=complex)
        for (loss, _, steps), weights, own in zip(laws, tilted, each, strict=True):
            log_phi += steps * np.log1p(np.expm1(1j * np.multiply.outer(part, loss - own[1])) @ weights)
        z = theta + 1j * part
        total[start : start + 500] = np.real(np.exp(log_phi + 1j * part * (mean - epsilon)) / (z * (z + 1)))
        if np.real(log_phi[-1]) < -60:
            break
    if np.real(log_phi[-1]) > -35:
        return None
    log_scale = float(value - theta * epsilon)
    return math.exp(log_scale) * spacing / math.pi * float(total.sum() - total[0] / 2) if log_scale < 700 else None


def adversarial(numbers: range) -> Count:
    """Half enumerations of randomized response at 60 digits, half attackers of DP-SGD at extreme settings."""
    count = Count()
    for number in numbers:
        random = np.random.default_rng([21, number])
        try:
            (_enumerated if number % 2 else _attacked)(count, random, number)
        except TacitError:
            count.refused += 1
    return count


def _enumerated(count: Count, random: np.random.Generator, number: int) -> None:
    """Delta of up to 60 binary answers, each sampled at a rate, from every number of ones."""
    epsilon, steps = float(10 ** random.uniform(-2, 0.7)), int(random.integers(1, 61))
    rate = 1.0 if random.integers(2) else float(10 ** random.uniform(-3, 0))
    step = RandomizedResponse(epsilon)
    mechanism = (step if rate == 1.0 else step.poisson(rate)) * steps
    at = float(random.uniform(0, 0.9) * steps * epsilon * rate)
    found = Pld()(mechanism).delta(at).interval
    with mpmath.workdps(60):
        truth_told = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        q = 1 - truth_told  # Replacing a record flips the answer; leaving it out leaves the other answer's law.
        p = (1 - mpmath.mpf(rate)) * q + mpmath.mpf(rate) * truth_told
        worst = max(_binomial_delta(a, b, steps, mpmath.mpf(at)) for a, b in ((p, q), (q, p)))
    count.judge(f"{number}: {mechanism}, epsilon {at!r}", found, (float(worst), float(worst)), 1e-8)


def _binomial_delta(p: Any, q: Any, steps: int, epsilon: Any) -> Any:
    masses = (
        (mpmath.binomial(steps, k) * p**k * (1 - p) ** (steps - k), (q / p) ** k * ((1 - q) / (1 - p)) ** (steps - k))
        for k in range(steps + 1)
    )
    return mpmath.fsum(max(mass * (1 - mpmath.exp(epsilon) * ratio), 0) for mass, ratio in masses)


def _attacked(count: Count, random: np.random.Generator, number: int) -> None:
    """The attack "the noise of some step exceeds c" shows delta >= TPR - e^epsilon FPR."""
    rate, sigma = 10 ** random.uniform(-6, 0), 10 ** random.uniform(np.log10(0.05), 3)
    steps, delta = round(10 ** random.uniform(0, 9)), 10 ** random.uniform(-30, -1)
    upper = Pld()(Gaussian(sigma).poisson(rate) * steps).epsilon(delta).upper
    shown = 0.0
    with mpmath.workdps(60):
        for c in np.linspace(0.0, 1 / sigma + 12, 60).tolist():
            away, near = mpmath.ncdf(-mpmath.mpf(c)), mpmath.ncdf(1 / mpmath.mpf(sigma) - mpmath.mpf(c))
            moved = (1 - mpmath.mpf(rate)) * away + mpmath.mpf(rate) * near
            fpr, tpr = (-mpmath.expm1(steps * mpmath.log1p(-tail)) for tail in (away, moved))
            if tpr > delta:
                shown = max(shown, float(mpmath.log((tpr - mpmath.mpf(delta)) / fpr)))
    count.judge(
        f"{number}: noise {sigma!r}, rate {rate!r}, {steps} steps, delta {delta!r}", (0.0, upper), (shown, np.inf)
    )


def renyi(numbers: range) -> Count:
    """Renyi divergence at integer orders against the binomial sum at 40 digits."""
    count = Count()
    for number in numbers:
        random = np.random.default_rng([22, number])
        rate, sigma = float(10 ** random.uniform(-7, 0)), float(10 ** random.uniform(np.log10(0.2), 2))
        order = int(random.integers(2, 129))
        found = float(Gaussian(sigma).poisson(rate).rdp(np.array([float(order)]), Relation.ADD_REMOVE)[0])
        with mpmath.workdps(40):
            r, v = mpmath.mpf(rate), 2 * mpmath.mpf(sigma) ** 2
            terms = (
                mpmath.binomial(order, k) * (1 - r) ** (order - k) * r**k * mpmath.exp(k * (k - 1) / v)
                for k in range(order + 1)
            )
            exact = float(mpmath.log(mpmath.fsum(terms)) / (order - 1))
        count.judge(f"{number}: noise {sigma!r}, rate {rate!r}, order {order}", (found, found), (exact, exact), 1e-6)
    return count


KINDS: dict[str, Callable[[range], Count]] = {
    "truth": truth,
    "random": random_settings,
    "directions": directions,
    "peer": peer,
    "schedule": schedules,
    "adversarial": adversarial,
    "renyi": renyi,
    "judge": judged,
}


def main() -> None:
    """Run one piece, print its count and add it to the stored results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    arguments = parser.parse_args()
    begun = time.process_time()
    found = KINDS[arguments.kind](range(arguments.start, arguments.start + arguments.count))
    piece = {
        "asked": found.asked, "refused": found.refused, "skipped": found.skipped, "unsound": found.unsound,
        "cpu_seconds": round(time.process_time() - begun, 1),
    }  # fmt: skip
    if found.seconds:
        shares = (50, 95, 99, 100)
        seconds = {f"p{share}": round(float(np.percentile(found.seconds, share)), 2) for share in shares}
        piece |= {"judge_seconds": seconds, "not_decided": dict(found.reasons)}
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    stored.setdefault(arguments.kind, {})[f"{arguments.start}+{arguments.count}"] = piece
    write_text(RESULTS, json.dumps(stored, indent=1, sort_keys=True) + "\n")
    print(f"{arguments.kind}: {json.dumps(piece, indent=1)}")


if __name__ == "__main__":
    main()
