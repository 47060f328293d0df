"""Scores of privacy units in [0, 1], and their sum in whole steps, which one unit moves by a known amount."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.noise import Stream

LEVELS = 16
"""Steps of a score that is no count: its sum in steps moves by so many with one unit."""


def unit_means(scores: NDArray[np.float64], units: NDArray[np.generic] | None) -> NDArray[np.float64]:
    """The mean score of each unit, in the order of their names; `scores` where each record is a unit.

    Args:
        scores: of the records, shape (n,).
        units: whose record each is, shape (n,), or None.

    Example:
        >>> unit_means(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9])).tolist()
        [0.5, 1.0]
    """
    if units is None:
        return scores
    _, places = np.unique(units, return_inverse=True)
    return np.bincount(places, scores) / np.bincount(places)


def rounded_sum(scores: NDArray[np.float64], levels: int, stream: Stream) -> int:
    """The sum of `levels` times each score, each rounded up or down at random; one score moves it by at most `levels`.

    Args:
        scores: those outside of [0, 1] count as its ends, shape (n,).
        levels: steps from 0 to 1, >= 1.
        stream: source of the roundings.

    Example:
        >>> from tacit.noise import SeededStream
        >>> rounded_sum(np.array([1.0, 0.0, 1.0]), 1, SeededStream(0))
        2
    """
    scaled = np.clip(scores, 0.0, 1.0) * levels
    whole = np.floor(scaled)
    up = stream.uniform(len(scores)) < scaled - whole
    return int(np.minimum(whole + up, levels).sum())
