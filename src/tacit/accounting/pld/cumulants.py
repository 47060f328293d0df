"""The parts of a composition as the saddle line sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.accounting.pld.discrete_cumulants import SmoothMixed, SmoothNodes
from tacit.accounting.pld.interpolation import SmoothSchedule
from tacit.accounting.pld.quadrature import SampledGaussian, reach
from tacit.accounting.pld.smooth_cumulants import Limited, Smooth, SmoothGaussian, SmoothSampled, Unsuitable
from tacit.mechanisms.pairs import (
    DiscreteGaussianPair,
    DiscreteGaussianReplacePair,
    GaussianPair,
    GaussianReplacePair,
    MixedPair,
    Pair,
    SampledGaussianPair,
    SampledPair,
)

_FEW = 24
_WIDEST = 2000.0
_SMOOTH = 20.0


def cumulants_of(
    parts: Sequence[tuple[Pair, int]], theta: float, log_delta: float, *, limited: bool = False
) -> list[Smooth]:
    """Every part at one tilt, many sampled Gaussians of a kind together; raises `Unsuitable` if some cannot be seen.

    `limited` sees discrete Gaussians as continuous ones, up to the frequency where that ends.
    """
    found: list[Smooth] = []
    kinds: dict[object, list[tuple[SampledGaussian, int]]] = {}
    for pair, steps in parts:
        if isinstance(pair, SampledGaussianPair | GaussianReplacePair):
            kinds.setdefault((type(pair), getattr(pair, "remove", True)), []).append((pair, steps))
            continue
        gaussian, limit = as_gaussian(pair) if limited else (pair, np.inf)
        view = _view(gaussian, steps, theta, log_delta)
        found.append(view if limit == np.inf else Limited(view, limit))
    for members in kinds.values():
        if len(members) > _FEW:
            found.append(SmoothSchedule(members, theta, log_delta))
        else:
            found += [_view(pair, steps, theta, log_delta) for pair, steps in members]
    return found


def as_gaussian(pair: Pair) -> tuple[Pair, float]:
    """The Gaussian pair with the E_P e^{zL} of a discrete Gaussian of large scale for |Im z| <= pi / 2 scale^2 / shift.

    By Poisson summation the sum over the integers misses the integral by a relative e^{-pi^2 scale^2} there. Every
    other pair is returned as it is. The second value is the largest |Im z|.
    """
    own = pair
    rate, remove = 1.0, True
    if isinstance(pair, SampledPair):
        rate, remove, pair = pair.rate, pair.remove, pair.base
    if not isinstance(pair, DiscreteGaussianPair | DiscreteGaussianReplacePair) or pair.scale < _SMOOTH:
        return own, np.inf
    sigma, limit = pair.scale / pair.shift, np.pi / 2 * pair.scale**2 / pair.shift
    if isinstance(pair, DiscreteGaussianReplacePair):
        return GaussianReplacePair(sigma, pair.rate), limit
    return GaussianPair(1 / sigma) if rate == 1.0 else SampledGaussianPair(sigma, rate, remove), limit


def _view(pair: Pair, steps: int, theta: float, log_delta: float) -> Smooth:
    """One pair at one tilt."""
    if isinstance(pair, GaussianPair):
        return SmoothGaussian(pair.mu * steps**0.5, theta)
    if isinstance(pair, MixedPair):
        usual, rare = (_view(each, steps, theta, log_delta) for each in (pair.usual, pair.rare))
        if not (isinstance(usual, SmoothSampled) and isinstance(rare, SmoothSampled)):
            raise Unsuitable
        return SmoothMixed(usual, rare, pair.share)
    log_cut = -38.0 - np.log(steps)
    log_ignored = min(log_delta, 0.0) + log_cut
    if not isinstance(pair, SampledGaussianPair | GaussianReplacePair):
        return SmoothNodes(pair, steps, theta, log_ignored)
    own = reach(pair, theta, log_cut, log_ignored)
    if own is None or own[1] - own[0] > _WIDEST * min(1.0, pair.sigma):
        raise Unsuitable
    for largest in (3 * theta + 5, 2 * theta + 3, 1.5 * theta, 1.2 * theta, 1.05 * theta):
        ends = reach(pair, largest, log_cut, log_ignored)
        if ends is not None and ends[1] - ends[0] < min(20 + 2 * (own[1] - own[0]), _WIDEST * min(1.0, pair.sigma)):
            return SmoothSampled(pair, steps, theta, largest, (min(own[0], ends[0]), max(own[1], ends[1])))
    return SmoothSampled(pair, steps, theta, theta, own)
