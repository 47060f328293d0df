"""The compiled first tier: the same bits out as by arrays, and used only where it fits."""

import hashlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import noise

import tacit
from tacit.noise import SeededStream, compiled, rounded_gaussian

NATIVE = Path(__file__).parents[2] / "native"
installed = pytest.mark.skipif(compiled.first_tier() is None, reason="tacit-noise is not installed")


def test_the_source_is_that_of_the_stored_digest_and_both_versions_are_equal():
    source = (NATIVE / "tacit_noise" / "first_tier.c").read_bytes()
    assert hashlib.sha256(source).hexdigest() == compiled.SOURCE
    assert f'version = "{compiled.VERSION}"' in (NATIVE / "pyproject.toml").read_text()
    assert f'__version__ = "{compiled.VERSION}"' in (NATIVE / "tacit_noise" / "__init__.py").read_text()
    assert tacit.__version__ == compiled.VERSION


@installed
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 127, 1_025, 32_768, 70_001])
def test_compiled_and_array_code_release_the_same_bits(size, dtype, monkeypatch):
    values = (np.random.default_rng(size).normal(size=size) * 3).astype(dtype)
    by_code = rounded_gaussian(values, SeededStream(size), std=1.37)
    monkeypatch.setattr(compiled, "first_tier", lambda: None)
    assert by_code.tobytes() == rounded_gaussian(values, SeededStream(size), std=1.37).tobytes()


@installed
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_zeros_have_one_sign(dtype):
    released = rounded_gaussian(np.full(20_000, -0.01, dtype), SeededStream(1), std=1.0)
    assert (released == 0).any()
    assert not np.signbit(released[released == 0]).any()


@installed
def test_errors_of_compiled_normals_stay_below_the_bound_that_the_margin_allows():
    """A part of `benchmarks/noise.py --errors 2048`, which takes every word."""
    errors = noise.largest_errors(1)
    assert errors["radius"] + 4.42 * errors["sine and cosine"] < 2.0**-18.38
    assert math.sqrt(2 * 14 * math.log(2)) <= 4.42  # no word of U below 2^-14 has a guess


@installed
def test_radii_near_the_ends_have_no_guess():
    words = np.array([0, 2**50 - 1, 2**50, 2**64 - 2**40 - 1, 2**64 - 2**40, 2**64 - 1], np.uint64)
    cosines, _ = noise.guesses(compiled.first_tier(), words, np.zeros(6, np.int32))
    assert np.isnan(cosines).tolist() == [True, True, False, False, True, True]


@installed
def test_buffers_that_do_not_belong_together_are_refused():
    from tacit_noise import first_tier

    words, places = np.zeros(2, np.uint64), np.zeros(4, np.int32)
    with pytest.raises(ValueError, match="belong together"):
        first_tier(np.zeros(3), np.zeros(3), words, places[:2], places, 1.0, 17.0, 0.4)
    with pytest.raises(ValueError, match="belong together"):
        first_tier(np.zeros(4), np.zeros(4), words[:1], places[:2], places, 1.0, 17.0, 0.4)


@pytest.mark.parametrize("change", ["version", "source", "answer"])
def test_code_that_does_not_fit_is_left_unused(change, monkeypatch):
    class Module:
        __version__ = "0.0.9" if change == "version" else compiled.VERSION
        SOURCE = "" if change == "source" else compiled.SOURCE

        @staticmethod
        def first_tier(*block):
            return 0

    monkeypatch.setitem(sys.modules, "tacit_noise", Module)
    assert compiled.first_tier.__wrapped__() is None


def test_an_installed_distribution_is_used():
    pytest.importorskip("tacit_noise")
    assert compiled.engine() == f"tacit-noise {compiled.VERSION}"
