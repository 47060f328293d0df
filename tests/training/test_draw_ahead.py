"""Noise drawn ahead: fresh, normal, and never shared between threads, steps or processes."""

import os

import numpy as np
import pytest
from scipy import stats

from tacit.noise import NormalDraw, SecureStream, SeededStream
from tacit.training.release import DrawAhead


def test_values_are_normal_and_never_handed_out_twice():
    """Kolmogorov-Smirnov at 1e-6, and no value of 24 bits or more recurs at the same place."""
    source = DrawAhead(SecureStream(), ahead=True)
    taken = [source.take(40_000).guesses for _ in range(8)]
    values = np.stack(taken).astype(float)
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-6
    for i in range(8):
        for j in range(i):
            assert np.mean(values[i] == values[j]) < 1e-3
            assert abs(np.mean(values[i] * values[j])) < 5.2 / 200
    assert len({drawn.ctypes.data for drawn in taken}) == 8


def test_sizes_may_change():
    source = DrawAhead(SecureStream(), ahead=True)
    for size in (5, 7, 7, 0, 3):
        assert source.take(size).guesses.shape == (size,)


@pytest.mark.parametrize("ahead", [True, False, None])
def test_a_seeded_stream_is_drawn_in_the_order_of_asking(ahead):
    first, second = SeededStream(4), SeededStream(4)
    source = DrawAhead(first, ahead=ahead)
    for size in (200_001, 3, 5):
        assert np.array_equal(source.take(size).guesses, NormalDraw.of(second, size).guesses)
        assert np.array_equal(first.bits(2), second.bits(2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_draws_its_own():
    source = DrawAhead(SecureStream(), ahead=True)
    source.take(1000)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, source.take(1000).guesses.tobytes())
        os._exit(0)
    theirs = b""
    while len(theirs) < 4000:
        theirs += os.read(reader, 4000)
    os.waitpid(child, 0)
    ours = source.take(1000).guesses
    assert np.mean(ours == np.frombuffer(theirs, np.float32)) < 0.01
