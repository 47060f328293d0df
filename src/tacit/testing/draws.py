"""The sampler of a mechanism against its privacy profile, by threshold tests with a stated false-alarm rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import beta as beta_law

from tacit.testing.binned_loss import MASS_ROUNDING
from tacit.testing.expect import require

Draw = Callable[[bool, int], np.ndarray]
"""(with the record or without it, count) to outputs of the mechanism on two neighbours, shape (count,)."""
Profile = Callable[[float], float]
"""epsilon to the delta that the facets allow."""

_EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
_DRAWS = 200_000  # Finds noise that is 20 % too small on a Gaussian of noise multiplier 1.
_THRESHOLDS = 24


def check_draws(draw: Draw, profile: Profile, false_alarm: float) -> None:
    """Require that no threshold test tells the neighbours apart better than `profile` allows.

    Clopper-Pearson intervals at a level that a union bound over all tests shares out. The thresholds are quantiles of
    one half of the draws, the tests use the other half.

    Args:
        draw: (with the record?, count) -> outputs.
        profile: epsilon -> delta.
        false_alarm: probability in (0, 1) that a correct sampler fails.

    Raises:
        AssertionError: a test shows a delta above the profile.
    """
    with_record, without = (np.asarray(draw(present, _DRAWS), dtype=float) for present in (True, False))
    for values in (with_record, without):
        require(values.shape == (_DRAWS,), f"draw must return an array of shape ({_DRAWS},); got {values.shape}.")
    half = _DRAWS // 2
    pooled = np.concatenate([with_record[:half], without[:half]])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.001, 0.999, _THRESHOLDS)))
    tests = 4 * len(thresholds) * len(_EPSILONS)
    level = false_alarm / (2 * tests)
    for threshold in thresholds:
        for above in (True, False):
            first, second = (_count(values[half:], threshold, above) for values in (with_record, without))
            for hits, others in ((first, second), (second, first)):
                _check_event(hits, others, half, level, profile, f"output {'>' if above else '<='} {threshold:.4g}")


def _count(values: np.ndarray, threshold: float, above: bool) -> int:
    return int(np.count_nonzero(values > threshold if above else values <= threshold))


def _check_event(hits: int, others: int, draws: int, level: float, profile: Profile, event: str) -> None:
    """P(event) <= e^epsilon Q(event) + delta(epsilon) at every epsilon, up to sampling error."""
    low = float(beta_law.ppf(level, hits, draws - hits + 1)) if hits else 0.0
    high = float(beta_law.ppf(1 - level, others + 1, draws - others)) if others < draws else 1.0
    for epsilon in _EPSILONS:
        reached, allowed = low - math.exp(epsilon) * high, profile(epsilon)
        sentence = (
            f"the event {event} must have delta({epsilon}) <= {allowed:.4g}; its draws show at least {reached:.4g}."
        )
        require(reached <= allowed + MASS_ROUNDING, sentence)
