"""The search itself: a secret number of trials, the best one kept, everything else forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from tacit import check
from tacit.mechanisms import NegativeBinomial, PoissonTrials, TrialLaw
from tacit.noise import Stream
from tacit.noise.discrete import poisson, truncated_negative_binomial, uniform_integer

Result = TypeVar("Result")
HIDDEN = "The number of trials, and the time that they took, are not observed by those who see the result."
"""The assumption behind a search, for `Ledger.assume`."""


def draw_trials(law: TrialLaw, stream: Stream) -> int:
    """A number of trials of that law, drawn exactly; it must stay secret.

    Raises `InvalidInput` for a negative binomial law of a shape above 1, for which there is no sampler.

    Example:
        >>> from tacit.mechanisms import law_of
        >>> from tacit.noise import SeededStream
        >>> draw_trials(law_of("logarithmic", trials=3), SeededStream(0)) >= 1
        True
    """
    if isinstance(law, PoissonTrials):
        return poisson(stream, Fraction(law.average))
    if not isinstance(law, NegativeBinomial) or law.shape > 1:
        raise check.fail("law", "Poisson, or negative binomial of a shape of at most 1", str(law))
    return truncated_negative_binomial(stream, Fraction(law.shape), Fraction(law.gamma))


def best_trial(
    law: TrialLaw, stream: Stream, run: Callable[[], tuple[float, Result]], forget: Callable[[Result], object]
) -> Result | None:
    """The result of the highest score of a secret number of runs; ties by a fair draw; None where there was no run.

    Args:
        law: of the number of runs.
        stream: source of the randomness.
        run: draws a setting, trains and scores: (private score, result). A score that is not finite is the lowest.
        forget: called with every result but the best, as soon as it is beaten.
    """
    best: tuple[float, Result] | None = None
    tied = 1
    for _ in range(draw_trials(law, stream)):
        score, result = run()
        score = score if math.isfinite(score) else -math.inf
        if best is None:
            best = score, result
            continue
        tied = tied + (score == best[0]) if score <= best[0] else 1
        better = score > best[0] or (score == best[0] and uniform_integer(stream, tied) == 0)
        forget(best[1] if better else result)
        best = (score, result) if better else best
    return None if best is None else best[1]
