"""Worst-case rounding in units of 2^-53: elementary functions, sums in any order, masses of pairs.

Every other module counts its operations in these units (THEORY.md, Section 2).
"""

import numpy as np

UNIT = 2.0**-53
"""The rounding unit u of a double: one operation changes its result by a factor in [1 - u, 1 + u]."""

FUNCTION = 8.0
"""Units that an elementary function loses at most: numpy promises 4 spacings for exp, log, expm1, log1p, sin, cos."""

COMPLEX_FUNCTION = 48.0
"""The same for the modulus of a complex exp or expm1 (Lemma 2.2)."""

COMPLEX_LOGARITHM = 32.0
"""The same for a complex log or log1p (Lemma 2.2)."""

PAIRWISE = 32.0
"""Units of numpy's pairwise sum up to 64 terms, relative to the sum of sizes; one more for each doubling."""

MASS, MASS_SLOPE = 16.0, 4.0
"""Relative units of a tail mass m: MASS + MASS_SLOPE |log m|, as e^(-x^2 / 2) turns units of x^2 into relative ones."""

LOG_LEAST_TAIL = -80.0
"""log of the tail mass below which `PERTURBATION` is not claimed: what lies there is added to the error as a whole."""

PERTURBATION = 16 * UNIT * (MASS + MASS_SLOPE * -LOG_LEAST_TAIL)
"""What a step's rounded masses move at most: losses by so much, and delta by so much of itself (Lemma 5.3)."""


def mass_units(mass: np.ndarray | float) -> np.ndarray:
    """Units of the relative error of tail masses (Lemma 2.4); those of the smallest normal double for none."""
    return MASS + MASS_SLOPE * np.abs(np.log(np.maximum(mass, np.finfo(float).tiny)))


def pairwise_units(count: int) -> float:
    """Units of `numpy.sum` over a contiguous array of `count` numbers, relative to the sum of their sizes (2.1)."""
    return PAIRWISE + max(float(np.log2(max(count, 1) / 64)), 0.0)


def dot_units(count: int) -> float:
    """Units of a complex inner product of `count` terms in any order, relative to the sum of sizes (Lemma 2.1)."""
    return 3.0 * count + 2.0
