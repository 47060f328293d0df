"""The only place that draws privacy noise: streams of secret bits and the noises made from them."""

from tacit.noise.draw import gaussian, gumbel, laplace
from tacit.noise.rounded_gaussian import NormalDraw, rounded_gaussian
from tacit.noise.stream import SecureStream, SeededStream, Stream

__all__ = [
    "NormalDraw",
    "SecureStream",
    "SeededStream",
    "Stream",
    "gaussian",
    "gumbel",
    "laplace",
    "rounded_gaussian",
]
