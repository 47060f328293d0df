"""Cumulants of the steps of a composition at one tilt, one class for each kind of pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from tacit.accounting.pld.discrete_cumulants import DiscreteCumulant, MixtureCumulant
from tacit.accounting.pld.quadrature import reach
from tacit.accounting.pld.sampled_cumulant import SampledGaussianCumulant
from tacit.accounting.pld.schedule_cumulant import ScheduleCumulant
from tacit.accounting.pld.step_cumulants import (
    BandLimitedCumulant,
    GaussianCumulant,
    StepCumulant,
    Unsuitable,
)
from tacit.mechanisms.pairs import GaussianPair, MixedPair, Pair, SampledGaussian

SampledSteps = list[tuple[SampledGaussian, int]]
_FEW = 3  # From so many sampled Gaussians of a kind on, one set of nodes costs less than one each.
_PANEL = 0.5  # Width of a panel in log noise, a factor of 1.65: wider ones need more nodes.
_LEAST_DELTA = -700.0  # log of delta below which, or where none is known, no more noise is covered.
_WIDEST = 2000.0  # Longest interval of noise, in units of min(1, sigma), whose nodes a line can afford.


def cumulants_of(
    parts: Sequence[tuple[Pair, int]], theta: float, log_delta: float, *, limited: bool = False
) -> list[StepCumulant]:
    """Return the cumulant of every part at one tilt, several sampled Gaussians of a kind as one.

    Args:
        parts: pairs with the number of times that they run.
        theta: > 0, the tilt.
        log_delta: log of the delta in question; P-masses far below it may be left out.
        limited: take discrete Gaussians for continuous ones, up to the frequency where that ends.

    Raises:
        Unsuitable: some part has no cumulant at a reasonable cost.
    """
    found: list[StepCumulant] = []
    singles, panels = _panels(parts)
    for pair, steps in singles:
        gaussian, limit = pair.gaussian_limit() if limited else (pair, np.inf)
        cumulant = _cumulant(gaussian, steps, theta, log_delta)
        found.append(cumulant if limit == np.inf else BandLimitedCumulant(cumulant, limit))
    return found + [_schedule(panel, theta, log_delta) for panel in panels]


def _panels(parts: Sequence[tuple[Pair, int]]) -> tuple[list[tuple[Pair, int]], list[SampledSteps]]:
    """Return the parts that are taken one by one, and the sampled Gaussians of a kind and of similar noise.

    Those of one rate share their losses, others only their nodes.
    """
    by_rate: dict[tuple[SampledGaussian, float], SampledSteps] = {}
    singles: list[tuple[Pair, int]] = []
    for pair, steps in parts:
        if isinstance(pair, SampledGaussian):
            by_rate.setdefault((pair.kind, pair.rate), []).append((pair, steps))
        else:
            singles.append((pair, steps))
    groups: dict[tuple[SampledGaussian, float], SampledSteps] = {}
    for (kind, rate), members in by_rate.items():
        groups.setdefault((kind, rate if len(members) >= _FEW else 0.0), []).extend(members)
    panels: list[SampledSteps] = []
    for members in groups.values():
        logs = np.log([pair.sigma for pair, _ in members])
        cells: dict[int, SampledSteps] = {}
        for member, place in zip(members, np.floor((logs - logs.min()) / _PANEL).tolist(), strict=True):
            cells.setdefault(place, []).append(member)
        for cell in cells.values():
            if len(cell) >= _FEW:
                panels.append(cell)
            else:
                singles.extend(cell)
    return singles, panels


def _schedule(members: SampledSteps, theta: float, log_delta: float) -> StepCumulant:
    """Return the cumulant of a panel, with the places that its corners need."""
    members = sorted(members, key=lambda member: member[0].sigma)
    steps = sum(count for _, count in members)
    sigma, rate = ([getattr(pair, name) for pair, _ in members] for name in ("sigma", "rate"))
    corners = {int(find(values)) for values in (sigma, rate) for find in (np.argmin, np.argmax)}
    largest, ends = zip(*(_covered(members[k][0], steps, theta, log_delta) for k in corners), strict=True)
    return ScheduleCumulant(members, theta, min(largest), list(zip(corners, ends, strict=True)))


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
    return SampledGaussianCumulant(pair, steps, theta, *_covered(pair, steps, theta, log_delta))


def _covered(pair: SampledGaussian, steps: int, theta: float, log_delta: float) -> tuple[float, tuple[float, float]]:
    """Return the largest tilt that is affordable and the noise, in standard deviations, that it needs."""
    log_cut, log_ignored = _log_cut(steps), _log_ignored(steps, log_delta)
    own = reach(pair, theta, log_cut, log_ignored)
    if own is None or own[1] - own[0] > _WIDEST * min(1.0, pair.sigma):
        raise Unsuitable
    for largest in (3 * theta + 5, 2 * theta + 3, 1.5 * theta, 1.2 * theta, 1.05 * theta):
        ends = reach(pair, largest, log_cut, log_ignored)
        if ends is not None and ends[1] - ends[0] < min(20 + 2 * (own[1] - own[0]), _WIDEST * min(1.0, pair.sigma)):
            ends = (min(own[0], ends[0]), max(own[1], ends[1]))
            return largest, ends
    return theta, own


def _log_cut(steps: int) -> float:
    """Return log of a share of one step that `steps` may lose: e^-38 = 3e-17 is below a rounding unit."""
    return -38.0 - np.log(steps)


def _log_ignored(steps: int, log_delta: float) -> float:
    """Return log of the P-mass of one step that does not matter at this delta."""
    known = max(min(log_delta, 0.0), _LEAST_DELTA) if np.isfinite(log_delta) else _LEAST_DELTA
    return known + _log_cut(steps)
