"""The trials of a search: how many there are, which one is kept, and that everything else is forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

from tacit import check
from tacit.mechanisms import NegativeBinomial, PoissonTrials, TrialLaw
from tacit.noise import Stream
from tacit.noise.discrete import poisson, truncated_negative_binomial, uniform_integer

Result = TypeVar("Result")
HIDDEN = "The number of trials, and the time that they took, are not observed by those who see the result."
"""The assumption behind a search, for `Ledger.assume`."""


@dataclass
class Standings(Generic[Result]):
    """Where a search stands between two trials: secret until it is over.

    Attributes:
        trials: how many there are in all.
        done: how many are over.
        kept: (score, result) of those that may still win.
        tied: how many trials had the best score so far.
    """

    trials: int
    done: int = 0
    kept: list[tuple[float, Result]] = field(default_factory=list)
    tied: int = 1


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
    standings: Standings[Result],
    stream: Stream,
    run: Callable[[], tuple[float, Result]],
    forget: Callable[[Result], object],
    save: Callable[[], object] = lambda: None,
) -> Result | None:
    """The result of the highest score of all trials; ties by a fair draw; None where there was no trial.

    Args:
        standings: at the start, or where an earlier process left off.
        stream: source of the randomness.
        run: draws a setting, trains and scores: (private score, result). A score that is not finite is the lowest.
        forget: called with every result but the best, as soon as it is beaten.
        save: called after each trial, with `standings` as they are then.
    """
    while standings.done < standings.trials:
        score, result = run()
        _enter(standings, stream, score if math.isfinite(score) else -math.inf, result, forget)
        standings.done += 1
        save()
    return standings.kept[0][1] if standings.kept else None


def _enter(
    standings: Standings[Result], stream: Stream, score: float, result: Result, forget: Callable[[Result], object]
) -> None:
    if not standings.kept:
        standings.kept = [(score, result)]
        return
    ((best, holder),) = standings.kept
    standings.tied = standings.tied + (score == best) if score <= best else 1
    better = score > best or (score == best and uniform_integer(stream, standings.tied) == 0)
    forget(holder if better else result)
    if better:
        standings.kept = [(score, result)]


def chosen_trial(
    standings: Standings[Result],
    run: Callable[[], tuple[float, Result]],
    choose: Callable[[list[float]], int],
    forget: Callable[[Result], object],
    save: Callable[[], object] = lambda: None,
) -> Result:
    """The result that a private choice picks once all trials are over.

    Args:
        standings: at the start, or where an earlier process left off; of at least one trial.
        run: as for `best_trial`; the scores need no noise, because nobody but `choose` sees them.
        choose: the index of one of the scores, privately.
        forget: called with every other result.
        save: called after each trial and after the choice, with `standings` as they are then.
    """
    while standings.done < standings.trials:
        standings.kept.append(run())
        standings.done += 1
        save()
    if len(standings.kept) > 1:
        chosen = choose([score for score, _ in standings.kept])
        for at, (_, result) in enumerate(standings.kept):
            if at != chosen:
                forget(result)
        standings.kept = [standings.kept[chosen]]
        save()
    return standings.kept[0][1]
