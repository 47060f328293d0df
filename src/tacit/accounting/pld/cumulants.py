"""Cumulants of the steps of a composition at one tilt, one class for each kind of pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from tacit.accounting.pld.discrete_cumulants import DiscreteCumulant, MixtureCumulant
from tacit.accounting.pld.interpolation import InterpolatedCumulant
from tacit.accounting.pld.quadrature import reach
from tacit.accounting.pld.step_cumulants import (
    BandLimitedCumulant,
    GaussianCumulant,
    SampledGaussianCumulant,
    StepCumulant,
    Unsuitable,
)
from tacit.mechanisms.pairs import GaussianPair, MixedPair, Pair, SampledGaussian

_FEW = 24  # Up to so many unlike noises one quadrature each costs less than the nodes of an interpolation.
_WIDEST = 2000.0  # Longest interval of noise, in units of min(1, sigma), whose nodes a line can afford.


def cumulants_of(
    parts: Sequence[tuple[Pair, int]], theta: float, log_delta: float, *, limited: bool = False
) -> list[StepCumulant]:
    """Return the cumulant of every part at one tilt, many sampled Gaussians of a kind as one.

    Args:
        parts: pairs with the number of times that they run.
        theta: > 0, the tilt.
        log_delta: log of the delta in question; P-masses far below it may be left out.
        limited: take discrete Gaussians for continuous ones, up to the frequency where that ends.

    Raises:
        Unsuitable: some part has no cumulant at a reasonable cost.
    """
    found: list[StepCumulant] = []
    kinds: dict[Pair, list[tuple[SampledGaussian, int]]] = {}
    for pair, steps in parts:
        if isinstance(pair, SampledGaussian):
            kinds.setdefault(pair.kind, []).append((pair, steps))
            continue
        gaussian, limit = pair.gaussian_limit() if limited else (pair, np.inf)
        cumulant = _cumulant(gaussian, steps, theta, log_delta)
        found.append(cumulant if limit == np.inf else BandLimitedCumulant(cumulant, limit))
    for members in kinds.values():
        if len(members) > _FEW:
            found.append(InterpolatedCumulant(members, theta, log_delta))
        else:
            found += [_cumulant(pair, steps, theta, log_delta) for pair, steps in members]
    return found


@singledispatch
def _cumulant(pair: Pair, steps: int, theta: float, log_delta: float) -> StepCumulant:
    return DiscreteCumulant(pair, steps, theta, _log_ignored(steps, log_delta))


@_cumulant.register
def _(pair: GaussianPair, steps: int, theta: float, log_delta: float) -> StepCumulant:
    return GaussianCumulant(pair.mu * steps**0.5, theta)


@_cumulant.register
def _(pair: MixedPair, steps: int, theta: float, log_delta: float) -> StepCumulant:
    usual, rare = (_cumulant(one, steps, theta, log_delta) for one in (pair.usual, pair.rare))
    if not (isinstance(usual, SampledGaussianCumulant) and isinstance(rare, SampledGaussianCumulant)):
        raise Unsuitable
    return MixtureCumulant(usual, rare, pair.share)


@_cumulant.register
def _(pair: SampledGaussian, steps: int, theta: float, log_delta: float) -> StepCumulant:
    log_cut, log_ignored = _log_cut(steps), _log_ignored(steps, log_delta)
    own = reach(pair, theta, log_cut, log_ignored)
    if own is None or own[1] - own[0] > _WIDEST * min(1.0, pair.sigma):
        raise Unsuitable
    for largest in (3 * theta + 5, 2 * theta + 3, 1.5 * theta, 1.2 * theta, 1.05 * theta):
        ends = reach(pair, largest, log_cut, log_ignored)
        if ends is not None and ends[1] - ends[0] < min(20 + 2 * (own[1] - own[0]), _WIDEST * min(1.0, pair.sigma)):
            ends = (min(own[0], ends[0]), max(own[1], ends[1]))
            return SampledGaussianCumulant(pair, steps, theta, largest, ends)
    return SampledGaussianCumulant(pair, steps, theta, theta, own)


def _log_cut(steps: int) -> float:
    """Return log of a share of one step that `steps` may lose: e^-38 = 3e-17 is below a rounding unit."""
    return -38.0 - np.log(steps)


def _log_ignored(steps: int, log_delta: float) -> float:
    """Return log of the P-mass of one step that does not matter at this delta."""
    return min(log_delta, 0.0) + _log_cut(steps)
