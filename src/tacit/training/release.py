"""`NoisyMean`: from a clipped sum to the noisy mean that is released; and `DrawAhead`, the bits of its noise."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.clipping import Clip
from tacit.gradients import FlatGradient
from tacit.noise import NormalDraw, SecureStream, Stream, rounded_gaussian
from tacit.training.correlation import Correlation


@dataclass(frozen=True)
class Release:
    """Result of one step.

    Attributes:
        mean: noisy mean gradient.
        noise_std: standard deviation of the noise on every coordinate of it.
        clip: the clip of the next step.
    """

    mean: FlatGradient
    noise_std: float
    clip: Clip


class NoisyMean:
    """Releases noisy means of clipped sums:  (sum + N(0, (noise_multiplier * sensitivity (1 + nu))^2 I)) / divisor.

    The noise is exact: the released sum is the rounded Gaussian mechanism on the computed sum, see
    `tacit.noise.rounded_gaussian`. Rounding lets computed sums of neighbouring batches lie apart by the sensitivity
    times 1 + nu, nu the `slack` of the sum; the noise grows by as much, so its multiplier is the one that is recorded.
    Rounding to the type of the model, division, and all that the optimizer does are post-processing.

    Args:
        stream: source of the noise.
        ahead: whether a second thread draws the bits of the next step; None to do so where it saves time.
        correlation: that of the run; None for noise that is independent from step to step.
    """

    def __init__(self, stream: Stream, *, ahead: bool | None = None, correlation: Correlation | None = None):
        self._stream, self._correlation = stream, correlation
        self._draws = DrawAhead(stream, ahead=ahead)

    def __call__(
        self, clip: Clip, total: FlatGradient, norms: Tensor, noise_multiplier: float, expected_batch_size: float
    ) -> Release:
        """Make `total` noisy; it must not be used any more. A clip of the mean makes it first, and is not divided.

        Args:
            clip: the clip of this step.
            total: clipped sum, and its slack; overwritten.
            norms: gradient norms of the units drawn, shape (units,).
            noise_multiplier: noise std / sensitivity, >= 0.
            expected_batch_size: > 0.

        Returns:
            The noisy mean, the standard deviation of its noise, and the clip of the next step.

        Raises:
            InvalidInput: the sum is not finite.
        """
        clip.finish(total.flat, len(norms))
        std, divisor = scales(clip, noise_multiplier, expected_batch_size)
        if self._correlation is not None:
            return self._correlated(self._correlation, clip, total, std, divisor)
        std *= 1 + total.slack
        self._add_noise(total.flat, std)
        total = total.as_released()
        total.flat.div_(divisor)
        if clip.statistics:
            count = torch.tensor([clip.statistic(norms)], dtype=torch.float64)
            self._add_noise(count, clip.statistic_std(noise_multiplier))
            clip = clip.after(float(count), expected_batch_size)
        return Release(total, std / divisor, clip)

    def _correlated(
        self, correlation: Correlation, clip: Clip, total: FlatGradient, std: float, divisor: float
    ) -> Release:
        """The estimate of this sum from all rows that were released; see `tacit.noise.correlated`."""
        std *= 1 + correlation.slack(total.slack)
        rows = correlation.encode(total.flat, std)
        self._add_noise(rows, std)
        estimate, spread = correlation.decode(rows)
        kept = total.released_in if total.released_in is not None else total.flat.dtype
        mean = FlatGradient.of(estimate.div_(divisor).to(total.flat.device, kept), total.parts)
        return Release(mean, std * spread / divisor, clip)

    def _add_noise(self, values: Tensor, std: float) -> None:
        """Overwrite `values` with what may be released of them; as they are without noise."""
        draw = self._draws.take(values.numel())
        if std:
            noisy = rounded_gaussian(values.detach().cpu().numpy(), self._stream, std=std, draw=draw)
            values.copy_(torch.from_numpy(noisy))


def scales(clip: Clip, noise_multiplier: float, expected_batch_size: float) -> tuple[float, float]:
    """Standard deviation of the noise on the sum, and divisor of the noisy sum."""
    return noise_multiplier * clip.sensitivity, 1.0 if clip.of_mean else expected_batch_size


# Values; drawing fewer takes less time than a few hand-overs between threads.
LEAST_AHEAD = 2**17


class DrawAhead:
    """Fresh normals for one step after another, each used once.

    AES and array functions take most of the time of a draw, and let other threads run. So with a secure stream, many
    values and a spare processor, a second thread draws the values of the next step ahead, from a secure stream of its
    own: no two threads share one. Values of any other stream are drawn on demand, in order, so that a seeded run
    repeats. After a fork the child draws anew.

    Args:
        stream: source of the bits.
        ahead: whether to draw ahead; None to do so where it saves time.
    """

    def __init__(self, stream: Stream, *, ahead: bool | None = None):
        self._stream = stream
        self._ahead = _processor_to_spare() if ahead is None else ahead
        self._least = LEAST_AHEAD if ahead is None else 0
        self._process = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._next: Future[NormalDraw] | None = None

    def take(self, size: int) -> NormalDraw:
        """`size` independent standard normals."""
        if not self._ahead or size < self._least or type(self._stream) is not SecureStream:
            return NormalDraw.of(self._stream, size)
        if self._thread is None or self._process != os.getpid():
            self._process, self._next = os.getpid(), None
            self._thread, self._own = ThreadPoolExecutor(1, thread_name_prefix="tacit-noise"), SecureStream()
        drawn = self._next.result() if self._next is not None else None
        if drawn is None or len(drawn.guesses) != size:
            drawn = NormalDraw.of(self._own, size)
        self._next = self._thread.submit(NormalDraw.of, self._own, size)
        return drawn


def _processor_to_spare() -> bool:
    """Whether torch leaves a processor free."""
    return len(os.sched_getaffinity(0)) > torch.get_num_threads() if hasattr(os, "sched_getaffinity") else False
