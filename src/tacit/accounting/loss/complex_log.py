"""log(1 + z) for complex z."""

import numpy as np


def log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z), keeping the relative digits of small z, which numpy's own loses for complex arguments."""
    x, y = np.real(z), np.imag(z)
    near = np.maximum(2 * x + x * x + y * y, -0.75)
    with np.errstate(divide="ignore"):
        size = np.where(np.abs(z) < 0.5, 0.5 * np.log1p(near), np.log(np.abs(1 + z)))
    return size + 1j * np.arctan2(y, 1 + x)
