"""`NoisyMean`: from a clipped sum to the noisy mean that is released; `Correlation`: the correlated noise of a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.clipping import Clip
from tacit.errors import TrainingMisuse
from tacit.gradients import FlatGradient
from tacit.gradients.rounding import MOST_UNITS
from tacit.mechanisms import Strategy
from tacit.noise import Stream, rounded_gaussian
from tacit.noise.correlated import CorrelatedNoise
from tacit.noise.device import rounded_gaussian_

_FEW = 1 << 16  # values of a device to which the host adds noise in less time than a launch and its answer take


class Correlation:
    """The noise of a run whose steps are correlated by `strategy`; every release of the run passes through it.

    A record's contribution reaches several releases, so the steps of the noise must be those of the sampler: each
    charged step is released before the next is charged, at one standard deviation throughout.
    """

    def __init__(self, strategy: Strategy):
        self.begin(strategy)

    def begin(self, strategy: Strategy) -> None:
        """Begin a run, or what is left of an interrupted one, whose sums and noise are not kept: it costs anew."""
        self._noise = CorrelatedNoise.of(strategy)
        self._std: float | None = None
        self._charged = False

    def charge(self) -> None:
        """Expect the release of a step; raises `TrainingMisuse` where that of the last one is missing."""
        if self._charged:
            raise TrainingMisuse(
                "a run with correlated noise must release every step that it charges; got one that failed after its "
                "charge. Resume from a checkpoint, or begin a new run."
            )
        self._charged = True

    def slack(self, of_sums: float) -> float:
        """Nu of the run: that of its sums, and of the products and sums over steps that are made of them."""
        return self._noise.slack(of_sums, MOST_UNITS)

    def encode(self, sums: Tensor, std: float) -> Tensor:
        """What this step releases of the sums so far, before noise of `std`."""
        if self._std not in (None, std):
            raise TrainingMisuse("clip and noise must stay as they are during a run with correlated noise.")
        self._std = std
        return torch.from_numpy(self._noise.encode(sums.detach().cpu().double().numpy()))

    def decode(self, rows: Tensor) -> tuple[Tensor, float]:
        """The estimate of this step's sum from what was released, and the ratio of its noise to that of a row."""
        self._charged = False
        return torch.from_numpy(np.ascontiguousarray(self._noise.decode(rows.numpy()))), self._noise.spread

    def state(self) -> dict[str, Any]:
        """What a checkpoint of a seeded run keeps; private sums are in it, which its seed does not protect anyway."""
        return self._noise.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._noise.restore(state)
        self._charged = False


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
        correlation: that of the run; None for noise that is independent from step to step.
    """

    def __init__(self, stream: Stream, *, correlation: Correlation | None = None):
        self._stream, self._correlation = stream, correlation

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
        if not std:
            return
        if values.is_cuda and values.numel() > _FEW:
            whole = values.detach().contiguous()
            rounded_gaussian_(whole, self._stream, std=std)
        else:
            whole = host = values.detach().cpu().contiguous()
            rounded_gaussian(host.numpy(), self._stream, std=std, out=host.numpy())
        if whole.data_ptr() != values.data_ptr():
            values.copy_(whole)


def scales(clip: Clip, noise_multiplier: float, expected_batch_size: float) -> tuple[float, float]:
    """Standard deviation of the noise on the sum, and divisor of the noisy sum."""
    return noise_multiplier * clip.sensitivity, 1.0 if clip.of_mean else expected_batch_size
