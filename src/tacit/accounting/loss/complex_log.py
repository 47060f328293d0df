"""log(1 + z) for complex z."""

import numpy as np


def log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z), keeping the relative digits of small z, which numpy's own loses for complex arguments."""
    x, y = np.real(z), np.imag(z)
    value = 0.5 * np.log1p(np.maximum(2 * x + x * x + y * y, -0.75)) + 1j * np.arctan2(y, 1 + x)
    large = np.abs(x) + np.abs(y) > 0.5
    if large.any():
        with np.errstate(divide="ignore"):
            value.real[large] = np.log(np.abs(1 + z[large]))
    return value
