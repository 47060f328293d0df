import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats

import tacit
from tacit.errors import InvalidInput, Refused
from tacit.noise import SecureStream, SeededStream, gaussian, laplace


def test_secure_streams_never_repeat_and_say_so():
    first, second = SecureStream(), SecureStream()
    assert first.secure
    draws = [first.bits(1000), first.bits(1000), second.bits(1000)]
    assert len(np.unique(np.concatenate(draws))) == 3000


def test_seeded_stream_repeats_and_is_marked_insecure():
    assert not SeededStream(5).secure
    assert np.array_equal(SeededStream(5).normal(100), SeededStream(5).normal(100))
    assert not np.array_equal(SeededStream(5).bits(100), SeededStream(6).bits(100))
    assert not np.array_equal(SeededStream(2**255).bits(9), SeededStream(0).bits(9))


def test_the_keystream_does_not_depend_on_how_it_is_asked_for():
    whole, parts = SeededStream(1), SeededStream(1)
    assert np.array_equal(whole.bits(50_000), np.concatenate([parts.bits(n) for n in (0, 1, 16_384, 33_615)]))


@pytest.mark.parametrize("drawn", [0, 1, 2, 33_333])
def test_a_seeded_stream_goes_on_where_its_state_was_taken(drawn):
    stream, resumed = SeededStream(1), SeededStream(1)
    stream.bits(drawn)
    resumed.bits(7)
    resumed.restore(stream.state())
    assert resumed.state() == stream.state()
    assert np.array_equal(resumed.normal(1001), stream.normal(1001))
    assert stream.state().keys() == {"drawn", "fingerprint"}


def test_the_state_of_another_seed_is_refused_and_secure_streams_have_none():
    with pytest.raises(InvalidInput, match="stream must be the seeded stream that the run began with"):
        SeededStream(1).restore(SeededStream(2).state())
    assert not hasattr(SecureStream(), "state")
    assert not hasattr(SecureStream(), "restore")


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InvalidInput, match="seed must be an integer >= 0"):
        SeededStream(seed)


@pytest.mark.parametrize("stream", [SecureStream(), SeededStream(0)])
def test_streams_cannot_be_copied(stream):
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="draw the same noise"):
            duplicate(stream)


def test_a_forked_process_draws_from_its_own_key():
    stream = SecureStream()
    stream.bits(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, stream.bits(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 32) != stream.bits(4).tobytes()


def test_uniform_is_open_and_uses_53_bits():
    values = SeededStream(2).uniform((500, 400))
    assert values.shape == (500, 400)
    assert values.min() > 0.0
    assert values.max() < 1.0
    scaled = values * 2.0**53
    assert np.array_equal(scaled, np.floor(scaled))
    assert np.mean(scaled % 2) == pytest.approx(0.5, abs=0.01)
    assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-6


class Extreme(SeededStream):
    """A stream whose every word is the same, for the ends of the transforms."""

    def __init__(self, word: int):
        self.word = word

    def bits(self, count):
        return np.full(count, self.word, np.uint64)


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_transforms_are_finite(word, dtype):
    stream = Extreme(word)
    assert np.isfinite(stream.normal(5, dtype)).all()
    assert np.isfinite(laplace(stream, 3, scale=1.0)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 32_767, 32_769])
def test_any_size_is_filled(size, dtype):
    values = SeededStream(3).normal(size, dtype)
    assert values.shape == (size,)
    assert values.dtype == dtype
    assert len(np.unique(values)) >= 0.99 * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_are_standard_and_independent(dtype):
    """Seeded, and each check alone would raise a false alarm with probability below 1e-6."""
    count = 1_000_000
    values = SeededStream(11).normal(count, dtype).astype(np.float64)
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert abs(values.mean()) < 5 / count**0.5
    assert abs(values.var() - 1) < 5 * (2 / count) ** 0.5
    assert abs((values**4).mean() - 3) < 5 * (96 / count) ** 0.5
    for lag in (1, 2, 16_384, 32_768):
        for power in (1, 2):
            left, right = values[:-lag] ** power, values[lag:] ** power
            assert abs(np.corrcoef(left, right)[0, 1]) < 5.5 / count**0.5
    beyond = np.sum(np.abs(values) > 4)
    assert stats.binomtest(int(beyond), count, 2 * stats.norm.sf(4)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda s, n: gaussian(s, n, std=2.5), stats.norm(scale=2.5)),
        (lambda s, n: laplace(s, n, scale=0.7), stats.laplace(scale=0.7)),
    ],
)
def test_noises_follow_their_law(draw, law):
    values = draw(SeededStream(7), 200_000)
    assert stats.kstest(values, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf"), "1"])
def test_bad_scales_are_refused(scale):
    with pytest.raises(InvalidInput, match="std must be in"):
        gaussian(SeededStream(0), 3, std=scale)
    with pytest.raises(InvalidInput, match="scale must be in"):
        laplace(SeededStream(0), 3, scale=scale)


def test_threads_share_a_seeded_stream_and_draw_every_word_once():
    stream, alone = SeededStream(3), SeededStream(3)
    with ThreadPoolExecutor(8) as pool:
        drawn = np.concatenate(list(pool.map(lambda _: stream.bits(1000), range(64))))
    assert sorted(drawn.tolist()) == sorted(alone.bits(64_000).tolist())
    assert stream.state() == alone.state()


def test_line_8_no_stream_but_the_secure_one_calls_itself_secure():
    stream = SeededStream(1)
    with pytest.raises(Refused, match="secure must be left to tacit"):
        stream.secure = True
    with pytest.raises(Refused, match="secure must be left to tacit"):
        type("Mine", (SeededStream,), {"secure": True})
    assert not stream.secure
    assert not type("Mine", (SecureStream,), {})().secure  # its methods may be others


def test_a_secure_stream_with_a_replaced_method_is_not_secure():
    stream = SecureStream()
    stream.bits = lambda count: np.zeros(count, np.uint64)
    assert not stream.secure


def test_line_8_a_run_with_a_stream_that_calls_itself_secure_is_not_proven():
    class Mine(SecureStream):
        def bits(self, count):
            return super().bits(count)

    model, ledger = torch.nn.Linear(3, 1), tacit.Ledger()
    tacit.fit(
        model,
        torch.randn(40, 3),
        torch.randn(40, 1),
        loss=lambda outputs, targets: (outputs - targets).square().mean(1),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        clip_norm=1.0,
        noise_multiplier=1.0,
        sample_rate=0.1,
        steps=1,
        stream=Mine(),
        ledger=ledger,
    )
    assert ledger.standing is not tacit.Standing.PROVEN
