"""Noise drawn ahead: fresh, normal, and never shared between threads, steps or processes."""

import os

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.noise import SecureStream, SeededStream
from tacit.training.release import Normals, normals

LIKE = torch.empty(0)


def test_values_are_normal_and_never_handed_out_twice():
    """Kolmogorov-Smirnov at 1e-6, and no value of 24 bits or more recurs at the same place."""
    source = Normals(SecureStream(), ahead=True)
    taken = [source.take(LIKE, 40_000) for _ in range(8)]
    values = torch.stack(taken).double().numpy()
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-6
    for i in range(8):
        for j in range(i):
            assert np.mean(values[i] == values[j]) < 1e-3
            assert abs(np.mean(values[i] * values[j])) < 5.2 / 200
    assert len({tensor.data_ptr() for tensor in taken}) == 8


def test_sizes_and_types_may_change():
    source = Normals(SecureStream(), ahead=True)
    for size, dtype in (
        (5, torch.float32),
        (7, torch.float32),
        (7, torch.float64),
        (0, torch.float64),
        (3, torch.float32),
    ):
        drawn = source.take(torch.empty(0, dtype=dtype), size)
        assert (drawn.shape, drawn.dtype) == ((size,), dtype)


@pytest.mark.parametrize("ahead", [True, False, None])
def test_a_seeded_stream_is_drawn_in_the_order_of_asking(ahead):
    first, second = SeededStream(4), SeededStream(4)
    source = Normals(first, ahead=ahead)
    for size in (200_001, 3, 5):
        assert torch.equal(source.take(LIKE, size), normals(second, size, LIKE))
        assert np.array_equal(first.bits(2), second.bits(2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_draws_its_own():
    source = Normals(SecureStream(), ahead=True)
    source.take(LIKE, 1000)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, source.take(LIKE, 1000).numpy().tobytes())
        os._exit(0)
    theirs = b""
    while len(theirs) < 4000:
        theirs += os.read(reader, 4000)
    os.waitpid(child, 0)
    ours = source.take(LIKE, 1000).numpy()
    assert np.mean(ours == np.frombuffer(theirs, np.float32)) < 0.01
