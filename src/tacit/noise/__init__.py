"""The only place that draws privacy noise: streams of secret bits and the noises made from them."""

from tacit.noise.draw import gaussian, gumbel, laplace
from tacit.noise.rounded_gaussian import NORMAL_ERROR, NormalDraw, near_gaussian, rounded_gaussian
from tacit.noise.stream import SecureStream, SeededStream, Stream

__all__ = [
    "NORMAL_ERROR",
    "NormalDraw",
    "SecureStream",
    "SeededStream",
    "Stream",
    "gaussian",
    "gumbel",
    "laplace",
    "near_gaussian",
    "rounded_gaussian",
]
