"""The continuous noises that mechanisms add, drawn from a stream.

Floating-point noise is not exactly the analysed distribution (Mironov 2012): the low-order bits of a single released
value can leak. Training and most releases take exact noise instead (`rounded_gaussian`, `discrete`).
"""

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.noise.stream import Size, Stream


def gaussian(stream: Stream, size: Size, *, std: float) -> NDArray[np.floating]:
    """Independent N(0, std^2) values; `std` >= 0."""
    return stream.normal(size) * check.real("std", std, low=0.0)


def laplace(stream: Stream, size: Size, *, scale: float) -> NDArray[np.float64]:
    """Independent Laplace values of density exp(-|x| / scale) / (2 scale); `scale` >= 0.

    The difference of two exponentials, so that both tails keep the full resolution of the uniform.
    """
    exponentials = np.log(stream.uniform(size)) - np.log(stream.uniform(size))
    return exponentials * check.real("scale", scale, low=0.0)


def gumbel(stream: Stream, size: Size, *, scale: float = 1.0) -> NDArray[np.float64]:
    """Independent Gumbel values -scale log(-log U); the argmax of score + Gumbel is the exponential mechanism."""
    return -np.log(-np.log(stream.uniform(size))) * check.real("scale", scale, low=0.0)
