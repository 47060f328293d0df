"""Groups of unlike noises: steps of neighbouring parameters counted together, from above and from below.

Less noise and a higher rate dominate (`SampledGaussian`), so steps at the smallest sigma and the largest rate of a
group leak at least as much as its own, and steps at the largest sigma and the smallest rate at most as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.mechanisms.pairs import Pair, SampledGaussian

Parts = Sequence[tuple[Pair, int]]
SampledGaussians = list[tuple[SampledGaussian, int]]

_FEW = 32  # So many unlike parts a lattice transforms one by one; each costs it two transforms.


def thinned(parts: Parts, few: int = _FEW) -> tuple[Parts, Parts]:
    """Return (lower, upper) parts with more than a few sampled Gaussians of a kind grouped by noise and rate."""
    kinds, others = _kinds(parts, by_rate=False)
    groups = [
        group
        for members in kinds
        for group in (_groups(members, few) if len(members) > few else [[member] for member in members])
    ]
    return _bounds(groups, others)


def grouped_by_noise(parts: Parts, distinct: int) -> tuple[Parts, Parts]:
    """Return (lower, upper) parts with at most about `distinct` sampled Gaussians, only steps of one rate together."""
    kinds, others = _kinds(parts, by_rate=True)
    total = sum(len(members) for members in kinds)
    groups = [group for members in kinds for group in _groups(members, max(1, distinct * len(members) // total))]
    return _bounds(groups, others)


def _kinds(parts: Parts, *, by_rate: bool) -> tuple[list[SampledGaussians], list[tuple[Pair, int]]]:
    """Return the sampled Gaussians, those of one kind (and rate) together, and all other parts."""
    kinds: dict[tuple[SampledGaussian, float], SampledGaussians] = {}
    others: list[tuple[Pair, int]] = []
    for pair, steps in parts:
        if isinstance(pair, SampledGaussian):
            kinds.setdefault((pair.kind, pair.rate if by_rate else 1.0), []).append((pair, steps))
        else:
            others.append((pair, steps))
    return list(kinds.values()), others


def _groups(members: SampledGaussians, count: int) -> list[SampledGaussians]:
    """Return the members by cells of equal width in log sigma and log rate, `count` cells at most."""
    logs = [np.log([pair.sigma for pair, _ in members]), np.log([pair.rate for pair, _ in members])]
    count = int(count**0.5) if all(np.ptp(values) > 0 for values in logs) else count
    # The factor 1 - 1e-12 keeps the largest value in the last cell.
    keys = [np.floor(count * (v - v.min()) / (np.ptp(v) or 1.0) * (1 - 1e-12)).astype(int) for v in logs]
    found: dict[tuple[int, int], SampledGaussians] = {}
    for member, sigma_cell, rate_cell in zip(members, *keys, strict=True):
        found.setdefault((int(sigma_cell), int(rate_cell)), []).append(member)
    return list(found.values())


def _bounds(groups: list[SampledGaussians], others: list[tuple[Pair, int]]) -> tuple[Parts, Parts]:
    """Return the other parts with every group at its least and at its most leaky corner."""
    lower, upper = list(others), list(others)
    for group in groups:
        steps = sum(count for _, count in group)
        sigma, rate = [pair.sigma for pair, _ in group], [pair.rate for pair, _ in group]
        lower.append((replace(group[0][0], sigma=max(sigma), rate=min(rate)), steps))
        upper.append((replace(group[0][0], sigma=min(sigma), rate=max(rate)), steps))
    return lower, upper
