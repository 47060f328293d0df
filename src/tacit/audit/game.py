"""The membership game, played: whoever runs the mechanism is a callable, the coins are drawn here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit import check
from tacit.attacks import Scores
from tacit.noise import SecureStream, Stream

Trial = Callable[[bool], float]
"""Runs the mechanism once, with the canary or without, and scores what it released: higher means "with"."""

Lane = Callable[[np.ndarray], np.ndarray]
"""Runs the mechanism once with the canaries that a boolean vector (m,) chooses; gives a score of each, shape (m,)."""

Progress = Callable[[int, int], None]


def many_runs(
    trial: Trial,
    *,
    attack: str,
    runs: int,
    threshold: float = 0.0,
    on_progress: Progress = lambda done, total: None,
) -> Scores:
    """`runs` independent runs with the canary and as many without: trials that bounds on the mechanism need.

    The worlds alternate, so that a machine that drifts affects both alike.

    Args:
        trial: must start from scratch each time.
        attack: its name.
        runs: in each world, >= 1.
        threshold: the attack's own rule, fixed beforehand.
    """
    runs = check.count("runs", runs)
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * runs):
        included = number % 2 == 0
        found[included].append(float(trial(included)))
        on_progress(number + 1, 2 * runs)
    return Scores(attack, np.array(found[True]), np.array(found[False]), threshold)


def one_run(lane: Lane, *, attack: str, canaries: int, threshold: float = 0.0, stream: Stream | None = None) -> Scores:
    """One run with each of `canaries` in or out by its own fair coin.

    Args:
        lane: one run of the production path; it must not score by the coins.
        attack: its name.
        canaries: >= 2.
        threshold: the attack's own rule, fixed beforehand.
        stream: source of the coins; a new `SecureStream` by default.

    Raises `InvalidInput` when the scores are not one for each canary.
    """
    canaries = check.count("canaries", canaries, minimum=2)
    source = stream if stream is not None else SecureStream()
    included = source.uniform(canaries) < 0.5
    while included.all() or not included.any():
        included = source.uniform(canaries) < 0.5
    scores = np.asarray(lane(included), dtype=float)
    if scores.shape != included.shape:
        raise check.fail("scores", f"one for each of {canaries} canaries", f"shape {scores.shape}")
    return Scores(attack, scores[included], scores[~included], threshold)
