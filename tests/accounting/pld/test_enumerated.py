"""Few steps of a discrete Gaussian against sums at 50 digits, at epsilons that are losses themselves."""

from __future__ import annotations

import collections
from functools import cache

import mpmath
import numpy as np
import pytest

from tacit.accounting.pld.dispatch import Dispatch
from tacit.mechanisms import DiscreteGaussian
from tacit.mechanisms.pairs.discrete import DiscreteGaussianPair
from tacit.mechanisms.pairs.subsampled import SampledPair
from tacit.relation import Relation


def _exact(scale: float, shift: int, steps: int, epsilon: float) -> mpmath.mpf:
    """delta of unsampled steps: their loss depends on the sum of the noises only."""
    return mpmath.fsum(p * -mpmath.expm1(epsilon - loss) for loss, p in _losses(scale, shift, steps) if loss > epsilon)


@cache
def _losses(scale: float, shift: int, steps: int) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    s, law = mpmath.mpf(scale), {0: mpmath.mpf(1)}
    reach = int(20 * scale) + 3
    total = mpmath.fsum(mpmath.exp(-((x / s) ** 2) / 2) for x in map(mpmath.mpf, range(-reach, reach + 1)))
    one = {x: mpmath.exp(-((mpmath.mpf(x - shift) / s) ** 2) / 2) / total for x in range(shift - reach, shift + reach)}
    for _ in range(steps):
        sums: dict[int, mpmath.mpf] = collections.defaultdict(mpmath.mpf)
        for k, mass in law.items():
            for x, p in one.items():
                sums[k + x] += mass * p
        law = sums
    return [((2 * mpmath.mpf(k) - steps * shift) * shift / (2 * s**2), p) for k, p in law.items()]


@pytest.mark.parametrize("scale", [0.30078125, 0.06, 0.7, 1.234])
@pytest.mark.parametrize(("shift", "steps"), [(1, 2), (2, 3)])
def test_an_epsilon_at_a_loss_is_bracketed_however_heavy_its_atom(scale: float, shift: int, steps: int) -> None:
    """The atom outweighs all losses above it, so the rounding of its own loss decides about delta's last digits."""
    with mpmath.workdps(50):
        for k in range(4):
            loss = (2 * (steps * shift + k) - steps * shift) * shift / (2 * scale**2)
            for epsilon in (loss, float(np.nextafter(loss, 0)), float(np.nextafter(loss, np.inf)), 0.999 * loss):
                direction = Dispatch([(DiscreteGaussianPair(scale, shift), steps)])
                low, high = direction.delta(epsilon)
                exact = _exact(scale, shift, steps, epsilon)
                assert low <= exact <= high


def _sampled_exact(scale: float, rate: float, steps: int, epsilon: float, *, remove: bool) -> mpmath.mpf:
    masses = _sampled_masses(scale, rate, steps, remove=remove)
    return mpmath.fsum(p - mpmath.exp(epsilon) * q for loss, (p, q) in masses.items() if loss > epsilon)


@cache
def _sampled_masses(
    scale: float, rate: float, steps: int, *, remove: bool
) -> dict[mpmath.mpf, tuple[mpmath.mpf, mpmath.mpf]]:
    s, r = mpmath.mpf(scale), mpmath.mpf(rate)
    reach = range(-int(14 * scale) - 3, int(14 * scale) + 5)
    weight = {x: mpmath.exp(-((x / s) ** 2) / 2) for x in map(mpmath.mpf, range(reach.start - 1, reach.stop))}
    total = mpmath.fsum(mpmath.exp(-((mpmath.mpf(x) / s) ** 2) / 2) for x in range(-30, 31))
    runs = {mpmath.mpf(0): (mpmath.mpf(1), mpmath.mpf(1))}
    for _ in range(steps):
        found = {}
        for ratio, (p, q) in runs.items():
            for x in reach:
                plain, shifted = weight[x] / total, weight[x - 1] / total
                mixed = (1 - r) * plain + r * shifted
                new = (mixed, plain) if remove else (shifted * 0 + plain, (1 - r) * plain + r * shifted)
                key = ratio + mpmath.log(new[0] / new[1])
                before = found.get(key, (0, 0))
                found[key] = (before[0] + p * new[0], before[1] + q * new[1])
        runs = found
    return runs


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("scale", "rate"), [(0.30078125, 0.3), (0.3, 1e-4), (0.8, 0.99)])
def test_sampled_steps_at_their_losses_are_bracketed(scale: float, rate: float, remove: bool) -> None:
    pair = SampledPair(DiscreteGaussianPair(scale, 1), rate, remove)
    loss = pair.table[0][pair.table[1] > 1e-12] if pair.table else np.zeros(0)
    with mpmath.workdps(50):
        for epsilon in np.abs(np.array([2 * loss[-1], loss[-1] + loss[-2], loss[0] + loss[-1]])):
            low, high = Dispatch([(pair, 2)]).delta(float(epsilon))
            exact = _sampled_exact(scale, rate, 2, float(epsilon), remove=remove)
            assert low <= exact <= high


def test_losses_beyond_the_range_of_doubles_leave_both_sides_true() -> None:
    """e^epsilon was once cut at e^700, so that the lower bound came out too high."""
    (pair,) = DiscreteGaussian(0.03).dominating_pairs(Relation.ADD_REMOVE)
    top = 2 * (2 * 1 - 1) / (2 * 0.03**2)
    with mpmath.workdps(50):
        for epsilon in (0.999 * top, top - 0.5, 1.2 * top):
            direction = Dispatch([(pair, 2)])
            low, high = direction.delta(epsilon)
            assert low <= _exact(0.03, 1, 2, epsilon) <= high
