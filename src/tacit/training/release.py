"""`release`: from a clipped sum to a noisy mean; and `Normals`, the normal values of its noise."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.clipping import Clip
from tacit.gradients import FlatGradient
from tacit.noise import SecureStream, Stream


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


def release(
    clip: Clip, total: FlatGradient, norms: Tensor, noise: Tensor, noise_multiplier: float, expected_batch_size: float
) -> Release:
    """Make `total` noisy in place:  (sum + noise_multiplier * sensitivity * noise) / expected_batch_size.

    A clip that makes a mean itself does so first, and is not divided; see `Clip`.

    Args:
        clip: the clip of this step.
        total: clipped sum; overwritten.
        norms: gradient norms of the units drawn, shape (units,).
        noise: fresh N(0, 1) values, shape (noise_size,).
        noise_multiplier: noise std / sensitivity, >= 0.
        expected_batch_size: > 0.

    Returns:
        The noisy mean, the standard deviation of its noise, and the clip of the next step.
    """
    size = total.flat.numel()
    clip.finish(total.flat, len(norms))
    std, divisor = scales(clip, noise_multiplier, expected_batch_size)
    total.flat.add_(noise[:size] if clip.statistics else noise, alpha=std).div_(divisor)
    if clip.statistics:
        clip = clip.after(norms, noise[size:], noise_multiplier, expected_batch_size)
    return Release(total, std / divisor, clip)


def scales(clip: Clip, noise_multiplier: float, expected_batch_size: float) -> tuple[float, float]:
    """Standard deviation of the noise on the sum, and divisor of the noisy sum."""
    return noise_multiplier * clip.sensitivity, 1.0 if clip.of_mean else expected_batch_size


def noise_size(clip: Clip, total: FlatGradient) -> int:
    """Number of normal values that one step uses."""
    return total.flat.numel() + clip.statistics


# Values; drawing fewer takes less time than a few hand-overs between threads.
LEAST_AHEAD = 2**17


class Normals:
    """Fresh N(0, 1) values for one step after another, each used once.

    AES and array functions take most of the time of a draw, and let other threads run. So with a secure stream, many
    values and a spare processor, a second thread draws the values of the next step ahead, from a secure stream of its
    own: no two threads share one. Values of any other stream are drawn on demand, in order, so that a seeded run
    repeats. After a fork the child draws anew.

    Args:
        stream: source of the values.
        ahead: whether to draw ahead; None to do so where it saves time.
    """

    def __init__(self, stream: Stream, *, ahead: bool | None = None):
        self._stream = stream
        self._ahead = _processor_to_spare() if ahead is None else ahead
        self._least = LEAST_AHEAD if ahead is None else 0
        self._process = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._next: Future[Tensor] | None = None

    def take(self, like: Tensor, size: int) -> Tensor:
        """`size` independent N(0, 1) values of the type and on the device of `like`."""
        if not self._ahead or size < self._least or type(self._stream) is not SecureStream:
            return normals(self._stream, size, like)
        if self._thread is None or self._process != os.getpid():
            self._process, self._next = os.getpid(), None
            self._thread, self._own = ThreadPoolExecutor(1, thread_name_prefix="tacit-noise"), SecureStream()
        drawn = self._next.result() if self._next is not None else None
        if drawn is None or drawn.numel() != size or drawn.dtype != like.dtype or drawn.device != like.device:
            drawn = normals(self._own, size, like)
        self._next = self._thread.submit(normals, self._own, size, like)
        return drawn


def normals(stream: Stream, size: int, like: Tensor) -> Tensor:
    """`size` independent N(0, 1) values of `stream`, of the type and on the device of `like`."""
    noise = torch.empty(size, dtype=like.dtype)
    stream.fill_normal(noise.numpy())
    return noise.to(like.device)


def _processor_to_spare() -> bool:
    """Whether torch leaves a processor free."""
    return len(os.sched_getaffinity(0)) > torch.get_num_threads() if hasattr(os, "sched_getaffinity") else False
