"""`check_draws`: secure noise and batches follow no generator that a program can seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from tacit.clipping import FlatClip
from tacit.errors import Refused
from tacit.gradients import FlatGradient
from tacit.gradients.module_state import restored_generators
from tacit.noise import SecureStream
from tacit.sampling import Sampling
from tacit.training.refusals import refuse
from tacit.training.release import NoisyMean

# Two independent draws agree with a probability below 1e-17: values of noise, and variance of the size of a batch, of
# which two are equal with probability prod (q^2 + (1 - q)^2) <= exp(-2 n q (1 - q)).
_VALUES, _LEAST_VARIANCE = 64, 20.0


def check_draws(sampling: Sampling, records: int, sample_rate: float) -> None:
    """Draw noise and a batch twice from new secure streams, all generators put back in between.

    Args:
        sampling: of the run.
        records: number of records.
        sample_rate: in (0, 1].

    Raises:
        Refused: both draws are the same: a seed, or a key that is no secret, decides them.

    Example:
        >>> from tacit.sampling import PoissonSampling
        >>> check_draws(PoissonSampling(), 1000, 0.1)
    """
    if _same(_noise):
        _refuse("noise")
    varies = sampling.units(records) * sample_rate * (1 - sample_rate) >= _LEAST_VARIANCE
    # Another sampling may draw as it likes; its accounting is its own.
    if (
        sampling.uniform
        and varies
        and _same(lambda: sampling.sampler(records, sample_rate, SecureStream()).draw().indices)
    ):
        _refuse("batches")


def _noise() -> np.ndarray:
    zeros = FlatGradient(torch.zeros(_VALUES), {})
    return NoisyMean(SecureStream())(FlatClip(1.0), zeros, torch.zeros(0), 1.0, 1.0).mean.flat.numpy()


def _same(draw: Callable[[], np.ndarray]) -> bool:
    """Whether `draw` gives the same twice after the same state of torch's, numpy's and Python's generators."""
    with restored_generators() as again:
        first = draw()
        again()
        return np.array_equal(first, draw())


def _refuse(what: str) -> None:
    refuse(
        Refused(
            f"{what} must come from the secure stream; two draws are the same. A generator that can be seeded decides "
            "them: report it, with the versions of tacit and torch."
        )
    )
