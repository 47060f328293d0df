"""The first tier of `rounded_gaussian` in compiled code, where the distribution `tacit-noise` is installed and fits.

It fits if it has this version, was built from the source whose digest stands here, and gives the stored answer of a
self-test bit for bit. Every operation is one of IEEE 754 in single precision, so all processors give that answer. What
is released does not depend on it: see `tacit.noise.rounded_gaussian`.
"""

import functools
import hashlib
import importlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

VERSION = "0.2.0"
"""Version of `tacit-noise` that is used."""
SOURCE = "bf0b24a2d1863bbc4e46c13529dd33ab925e42de8fc6a238876b25eb1e370549"
"""SHA-256 of `native/tacit_noise/first_tier.c`."""
SELF_TEST = "a4fe6c038cd73311e8a01484881fd74c66c8aaed55ac012a9d866778bc85191c"
"""SHA-256 of the answer of `self_test`."""
_SIZE = 4095

Values, Words, Angles = NDArray[np.floating], NDArray[np.uint64], NDArray[np.int32]
FirstTier = Callable[[Values, Values, Words, Angles, float, float, float], NDArray[np.int64]]
"""(values, out, radius_words, angle_words, grid, tau / grid, limit) -> places that are left open."""


@functools.cache
def first_tier() -> FirstTier | None:
    """The compiled first tier; None where it is absent or does not fit.

    Example:
        >>> first_tier() is None or callable(first_tier())
        True
    """
    try:
        tacit_noise = importlib.import_module("tacit_noise")
    except ImportError:
        return None
    if (tacit_noise.__version__, tacit_noise.SOURCE) != (VERSION, SOURCE):
        return None

    def decide(values: Values, out: Values, radius: Words, angle: Angles, *numbers: float) -> NDArray[np.int64]:
        places = np.empty(values.size, np.int32)
        count = tacit_noise.first_tier(values, out, radius, angle, places, *numbers)
        return places[:count].astype(np.int64)

    return decide if self_test(decide) == SELF_TEST else None


def engine() -> str:
    """What computes the first tier, for the card.

    Example:
        >>> engine() in ("numpy", f"tacit-noise {VERSION}")
        True
    """
    return "numpy" if first_tier() is None else f"tacit-noise {VERSION}"


def self_test(decide: FirstTier) -> str:
    """Digest of the answers of `decide` in both precisions for fixed words, ends of their ranges among them."""
    pairs = (_SIZE + 1) // 2
    words = np.arange(1, pairs + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words[:6] = [0, 1, 2**50 - 1, 2**50, 2**64 - 2**40, 2**64 - 1]
    angles = (words ^ (words >> np.uint64(29))).astype(np.uint32)
    angles[:8] = np.arange(8, dtype=np.uint32) << np.uint32(29)
    digest = hashlib.sha256()
    for kind in (np.float32, np.float64):
        values = np.linspace(-30, 30, _SIZE).astype(kind)
        out = np.empty_like(values)
        places = decide(values, out, words, angles.view(np.int32), 2.0**-4, 17.5, 0.5 - 2.0**-12)
        digest.update(places.astype("<i8").tobytes() + out.astype(out.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
