"""Noise of density proportional to e^{-rate ||b||_2}: what pure epsilon-DP needs for an L2 sensitivity."""

from __future__ import annotations

import math

import numpy as np

from tacit import check
from tacit.noise import Stream, gaussian


def radial(stream: Stream, shape: tuple[int, ...], *, rate: float) -> np.ndarray:
    """b with a uniform direction and ||b|| ~ Gamma(shape d, scale 1 / rate), d the number of entries.

    The norm is a sum of d exponentials. Each coordinate has variance (d + 1) / rate^2.

    Source: Chaudhuri, Monteleoni & Sarwate 2011, Section 3.2.
    """
    check.positive("rate", rate)
    size = math.prod(shape)
    direction = gaussian(stream, size, std=1.0)
    norm = -np.log(stream.uniform(size)).sum() / rate
    return (direction * (norm / np.linalg.norm(direction))).reshape(shape)
