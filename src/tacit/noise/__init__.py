"""The only place that draws privacy noise: streams of secret bits and the noises made from them."""

from tacit.noise.discrete import gaussian, laplace
from tacit.noise.rounded_gaussian import rounded_gaussian
from tacit.noise.rounded_radial import (
    NORMAL_ERROR,
    longest_radial,
    near_gaussian,
    near_radial,
    radial_error,
    rounded_radial,
)
from tacit.noise.stream import SecureStream, SeededStream, Stream

__all__ = [
    "NORMAL_ERROR",
    "SecureStream",
    "SeededStream",
    "Stream",
    "gaussian",
    "laplace",
    "longest_radial",
    "near_gaussian",
    "near_radial",
    "radial_error",
    "rounded_gaussian",
    "rounded_radial",
]
