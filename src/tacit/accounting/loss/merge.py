"""Fewer, rounded parts in place of very many unlike ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.mechanisms.pairs import GaussianReplacePair, Pair, SampledGaussianPair

_MOST = 32
_CELLS = 40

Parts = Sequence[tuple[Pair, int]]


def thinned(parts: Parts) -> tuple[Parts, Parts]:
    """Lower and upper parts: more than a few sampled Gaussians are rounded to the corners of cells of parameters.

    Less noise and a higher rate dominate: N(0) against N(1) of the larger deviation is a garbling, and so is a
    sample of a sample. In each cell the upper part has the smallest sigma and the largest rate, the lower one
    the largest sigma and the smallest rate.
    """
    kinds: dict[object, list[tuple[SampledGaussianPair | GaussianReplacePair, int]]] = {}
    lower: list[tuple[Pair, int]] = []
    for pair, steps in parts:
        if isinstance(pair, SampledGaussianPair | GaussianReplacePair):
            kinds.setdefault((type(pair), getattr(pair, "remove", True)), []).append((pair, steps))
        else:
            lower.append((pair, steps))
    upper = list(lower)
    for members in kinds.values():
        cells = _cells(members) if len(members) > _MOST else [[member] for member in members]
        for cell in cells:
            steps = sum(count for _, count in cell)
            sigma, rate = [pair.sigma for pair, _ in cell], [pair.rate for pair, _ in cell]
            lower.append((replace(cell[0][0], sigma=max(sigma), rate=min(rate)), steps))
            upper.append((replace(cell[0][0], sigma=min(sigma), rate=max(rate)), steps))
    return lower, upper


def _cells(members: list) -> list[list]:
    sigma, rate = (np.log([getattr(pair, name) for pair, _ in members]) for name in ("sigma", "rate"))
    both = np.ptp(sigma) > 0 and np.ptp(rate) > 0
    count = int(_CELLS**0.5) if both else _CELLS
    keys = [np.floor(count * (v - v.min()) / (np.ptp(v) or 1.0) * (1 - 1e-12)).astype(int) for v in (sigma, rate)]
    found: dict[tuple[int, int], list] = {}
    for member, *key in zip(members, *keys, strict=True):
        found.setdefault((int(key[0]), int(key[1])), []).append(member)
    return list(found.values())
