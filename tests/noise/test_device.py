"""Noise that a device makes itself: its bits, its first tier, and what it releases, all on tensors of the host."""

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tacit.clipping import clip_of
from tacit.errors import InvalidInput
from tacit.gradients import FlatGradient
from tacit.noise import SecureStream, SeededStream, compiled, device
from tacit.noise.rounded_gaussian import _by_intervals
from tacit.noise.rounded_radial import Cell
from tacit.training.release import NoisyMean

KEY = torch.arange(1, 9, dtype=torch.int32) * 0x1E3779B9


def cipher_words(key, blocks):
    """The key stream of the library that the host uses."""
    stream = Cipher(algorithms.ChaCha20(key.numpy().tobytes(), bytes(16)), None).encryptor().update(bytes(64 * blocks))
    return np.frombuffer(stream, np.int32).reshape(blocks, 16).T


@pytest.mark.parametrize("start", [0, 1, 40])
def test_the_bits_are_those_of_chacha20(start):
    words = device.key_stream(KEY, start, 60 - start).numpy()
    assert np.array_equal(words, cipher_words(KEY, 60)[:, start:])


def test_the_first_tier_is_that_of_the_compiled_code():
    """The stored answer of its self-test, bit for bit, whether or not it is installed."""

    def decide(values, out, radius_words, angle_words, grid, scale, limit):
        there = torch.from_numpy(values.copy())
        radius = torch.from_numpy((radius_words >> np.uint64(32)).astype(np.uint32).view(np.int32))
        found = device._tier_of(there, 0, radius, torch.from_numpy(angle_words.copy()), grid, scale)
        out[:] = there.numpy()
        return np.sort(found.places.numpy()).astype(np.int64)

    assert compiled.self_test(decide) == compiled.SELF_TEST


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 2, 15, 17, 1_001])
def test_every_value_is_the_rounded_sum_of_its_bits(dtype, size, monkeypatch):
    """Against interval arithmetic on the bits of each pair."""
    values = torch.linspace(-2, 2, size, dtype=dtype)
    key = SeededStream(7).bits(4).view(np.int32)
    released = device.rounded_gaussian_(values.clone(), SeededStream(7), std=1.1)
    stream = SeededStream(7)
    stream.bits(4)
    refinement, tau = stream.refinement(), float(np.nextafter(np.float32(1.1), np.float32(2)))
    tau = float(np.float32(1.1)) if float(np.float32(1.1)) >= 1.1 else tau
    pairs = (size + 1) // 2
    blocks = -(-pairs // 8)
    words = cipher_words(torch.from_numpy(key.copy()), blocks).view(np.uint32)
    for place in range(0, size, 1 + size // 50):
        pair = place % pairs if place >= pairs else place
        row, block = divmod(pair, blocks)
        more = int(refinement.of_values(np.array([pair]))[0])
        radius = int(words[2 * row, block]) << 32 | more & 0xFFFFFFFF
        angle = int(words[2 * row + 1, block].view(np.int32)) << 32 | more >> 32
        centre = Fraction(float(values[place])) * 16
        expected = _by_intervals(centre, Cell(radius, angle), place >= pairs, tau * 16, refinement.of_value(pair))
        assert float(released[place]) == expected / 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunks_change_no_bit(dtype, monkeypatch):
    usual = device.rounded_gaussian_(torch.linspace(-3, 3, 4_097, dtype=dtype), SeededStream(2), std=0.7)
    monkeypatch.setattr(device, "_CHUNK", 50)
    assert torch.equal(
        usual, device.rounded_gaussian_(torch.linspace(-3, 3, 4_097, dtype=dtype), SeededStream(2), std=0.7)
    )


def test_values_beyond_the_most_under_one_key_take_another(monkeypatch):
    monkeypatch.setattr(device, "_MOST", 100)
    released = device.rounded_gaussian_(torch.zeros(250), SeededStream(2), std=1.0)
    assert len({tuple(part.tolist()) for part in released.split(50)}) == 5
    assert torch.equal(released[:100], device.rounded_gaussian_(torch.zeros(100), SeededStream(2), std=1.0))
    assert device.rounded_gaussian_(torch.zeros(0), SeededStream(2), std=1.0).numel() == 0


def test_released_values_have_the_moments_of_normals():
    """200,000 values of one seed: within four standard deviations of each moment, fixed beforehand."""
    drawn = device.rounded_gaussian_(torch.zeros(200_000, dtype=torch.float64), SeededStream(5), std=2.0) / 2
    variance = 1 + (1 / 16) ** 2 / 12
    assert abs(float(drawn.mean())) < 4 / 200_000**0.5
    assert abs(float(drawn.square().mean()) - variance) < 4 * (2 / 200_000) ** 0.5
    assert abs(float(drawn.pow(4).mean()) - 3 * variance**2) < 4 * (96 / 200_000) ** 0.5
    half = len(drawn) // 2
    assert abs(float((drawn[:half] * drawn[half:]).mean())) < 4 / half**0.5


def test_each_call_takes_a_key_of_its_own_and_streams_stay_in_step():
    one, other = SeededStream(3), SeededStream(3)
    first, second = (device.rounded_gaussian_(torch.zeros(64), one, std=1.0) for _ in range(2))
    assert not torch.equal(first, second)
    for _ in range(2):
        device.rounded_gaussian_(torch.zeros(64), other, std=1.0)
    assert np.array_equal(one.bits(3), other.bits(3))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_sum_that_is_not_finite_is_refused(bad):
    values = torch.zeros(1_000)
    values[501] = bad
    with pytest.raises(InvalidInput, match="must be finite"):
        device.rounded_gaussian_(values, SecureStream(), std=1.0)


def test_zeros_have_one_sign():
    released = device.rounded_gaussian_(torch.full((20_000,), -0.01), SeededStream(1), std=1.0)
    assert (released == 0).any()
    assert not released[released == 0].signbit().any()


def test_a_tier_with_other_bits_is_not_used():
    def shifted(values, key, grid, scale):
        return device.by_tensors(values, key + 1, grid, scale)

    assert device.agrees(device.by_tensors, "cpu")
    assert not device.agrees(shifted, "cpu")


@pytest.mark.parametrize(("count", "calls"), [(8, 0), (1 << 17, 1)])
def test_large_tensors_of_a_device_get_the_noise_of_the_device(monkeypatch, count, calls):
    """What a CUDA tensor takes, on the host: `is_cuda` is made true of one tensor."""

    class Lent(torch.Tensor):
        is_cuda = True

    taken = []
    monkeypatch.setattr("tacit.training.release.rounded_gaussian_", lambda values, *_, **__: taken.append(1) or values)
    total = FlatGradient.of(torch.zeros(count).as_subclass(Lent), {"weight": torch.zeros(count)})
    NoisyMean(SeededStream(0))(clip_of(1.0, None), total, torch.zeros(1), 1.0, 4.0)
    assert len(taken) == calls
    assert total.flat.any() == (not calls)


def test_the_kernel_gives_the_same_bits_under_the_interpreter():
    """On a device it does, or is not used; here Triton's interpreter runs it where Triton is installed."""
    pytest.importorskip("triton")
    code = (
        "from tacit.noise import device; from tacit.noise.device_kernel import first_tier;"
        "print(device.agrees(lambda *given: device.OpenValues(*first_tier(*given)), 'cpu'))"
    )
    own = os.environ | {"TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "True", ran.stderr
