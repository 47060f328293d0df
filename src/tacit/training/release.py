"""From a clipped sum to what may be released: the noise, the divisor, and the clip of the next step.

Normal values for the noise of a step, drawn on a second thread while the step before computes.
"""

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
    """What one step lets out.

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
        norms: of the units drawn, shape (units,).
        noise: fresh N(0, 1) values, `noise_size` of them.
    """
    size = total.flat.numel()
    clip.finish(total.flat, len(norms))
    std, divisor = scales(clip, noise_multiplier, expected_batch_size)
    total.flat.add_(noise[:size] if clip.statistics else noise, alpha=std).div_(divisor)
    if clip.statistics:
        clip = clip.after(norms, noise[size:], noise_multiplier, expected_batch_size)
    return Release(total, std / divisor, clip)


def scales(clip: Clip, noise_multiplier: float, expected_batch_size: float) -> tuple[float, float]:
    """Standard deviation of the noise on the sum, and what the noisy sum is divided by."""
    return noise_multiplier * clip.sensitivity, 1.0 if clip.of_mean else expected_batch_size


def noise_size(clip: Clip, total: FlatGradient) -> int:
    """How many normal values one step takes."""
    return total.flat.numel() + clip.statistics


_WORTHWHILE = 2**17  # values; drawing fewer takes less than a few hand-overs between threads


class Normals:
    """Fresh N(0, 1) values for one step after another, each handed out once.

    Most of the time of a draw is spent in AES and in array functions, which let other threads run. So with a secure
    stream, many values and a processor to spare, the values of the next step are drawn ahead, from a secure stream of
    this object's own: no two threads share one. Values from any other stream are drawn when they are asked for, in
    that order, so that a seeded run repeats. After a fork the child draws anew.

    Args:
        stream: where the values come from.
        ahead: whether to draw ahead; None to do so where it pays.
    """

    def __init__(self, stream: Stream, *, ahead: bool | None = None):
        self._stream = stream
        self._ahead = _spare() if ahead is None else ahead
        self._least = _WORTHWHILE if ahead is None else 0
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


def _spare() -> bool:
    """Whether torch leaves a processor free."""
    return len(os.sched_getaffinity(0)) > torch.get_num_threads() if hasattr(os, "sched_getaffinity") else False
