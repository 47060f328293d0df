"""`LowOrderBits`: released values that a constant plus floating-point noise cannot have produced (Mironov 2012).

Noise is proven for real numbers, and added to a sum in floating point. The floats that c + std * z can round to, for
floats z, are not the same for every c. A release outside of the set of c = 0 proves that the sum was not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit import check

_NEAR = range(-2, 3)  # floats around the rounded quotient: each of the two roundings is off by one at most
_SURE = 1e6  # weight of a release that the sum 0 cannot have produced against one that the canary cannot have


def reachable(released: NDArray[np.float32], constant: float, *, std: float, divisor: float) -> NDArray[np.bool_]:
    """Whether each released value can be (constant + std * z) / divisor for some float32 z, in float32 arithmetic.

    The product may be rounded before the sum or together with it; both orders count as possible.

    Args:
        released: float32 values, any shape.
        constant: the sum before noise.
        std: of the noise on the sum, > 0.
        divisor: > 0.

    Raises:
        InvalidInput: `std` or `divisor` is not above 0.

    Example:
        >>> value = np.float32(2.0**-30)
        >>> [bool(reachable(value, constant, std=1.0, divisor=1.0)) for constant in (0.0, 1.0)]
        [True, False]
    """
    std32 = np.float32(check.positive("std", std))
    divisor32, start = np.float32(check.positive("divisor", divisor)), np.float32(constant)
    released = np.asarray(released, dtype=np.float32)
    found = np.zeros(released.shape, bool)
    with np.errstate(all="ignore"):
        for near in _NEAR:
            noisy = _step(released * divisor32, near)
            right = (noisy / divisor32) == released
            quotient = ((noisy.astype(np.float64) - np.float64(start)) / np.float64(std32)).astype(np.float32)
            for shift in _NEAR:
                z = _step(quotient, shift)
                fused = (np.float64(start) + np.float64(std32) * z.astype(np.float64)).astype(np.float32)
                found |= right & ((start + std32 * z == noisy) | (fused == noisy))
    return found


@dataclass
class LowOrderBits:
    """Score of canaries: how often the released value cannot come from a sum of 0, less how often not from theirs.

    Args:
        std: standard deviation of the noise on the sum, > 0.
        divisor: of the noisy sum, > 0.
        contribution: what a canary adds to the sum.

    Attributes:
        total: the score so far, shape (canaries,).

    Example:
        >>> bits = LowOrderBits(std=1.0, divisor=1.0, contribution=1.0)
        >>> bits.add(np.array([2.0**-30, 0.75], np.float32))
        >>> bits.total
        array([-1.,  0.])
    """

    std: float
    divisor: float
    contribution: float
    total: NDArray[np.float64] | float = field(default=0.0, init=False, repr=False)

    def add(self, release: NDArray[np.float32]) -> None:
        """Count one release as it is, shape (canaries,), float32."""
        sizes = {"std": self.std, "divisor": self.divisor}
        impossible_out = ~reachable(release, 0.0, **sizes)
        impossible_in = ~reachable(release, self.contribution, **sizes)
        self.total = self.total + (_SURE * impossible_out.astype(np.float64) - impossible_in)


def _step(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The float32 `count` places further away from minus infinity."""
    toward = np.float32(np.inf if count > 0 else -np.inf)
    for _ in range(abs(count)):
        values = np.nextafter(values, toward)
    return values
