"""The membership inference game: the caller runs the mechanism, the coins are drawn here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit import check
from tacit.attacks import Scores
from tacit.noise import SecureStream, Stream

Trial = Callable[[bool], float]
"""Runs the mechanism once, with the canary or without, and scores what it released: higher means "with"."""

CanaryRun = Callable[[np.ndarray], np.ndarray]
"""Runs the mechanism once with the canaries that a boolean vector (m,) chooses; returns their scores, shape (m,)."""

Progress = Callable[[int, int], None]


def many_runs(
    trial: Trial,
    *,
    attack: str,
    runs: int,
    threshold: float = 0.0,
    on_progress: Progress = lambda done, total: None,
) -> Scores:
    """Scores of `runs` independent runs with the canary and `runs` without: the trials of bounds on the mechanism.

    The worlds alternate, so that a machine that drifts affects both alike.

    Args:
        trial: runs the mechanism; each run must start anew, from nothing that an earlier one left.
        attack: name of the attack.
        runs: in each world, >= 1.
        threshold: the attack's own rule, fixed beforehand.
        on_progress: called with (runs done, runs in all).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> many_runs(float, attack="sure", runs=3, threshold=0.5).count
        (3, 3)
    """
    runs = check.count("runs", runs)
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * runs):
        included = number % 2 == 0
        found[included].append(float(trial(included)))
        on_progress(number + 1, 2 * runs)
    return Scores(attack, np.array(found[True]), np.array(found[False]), threshold)


def one_run(
    run: CanaryRun, *, attack: str, canaries: int, threshold: float = 0.0, stream: Stream | None = None
) -> Scores:
    """Scores of one run that includes each of `canaries` independently with probability 1/2.

    Args:
        run: one run of the production path; its scores must not depend on the coins themselves.
        attack: name of the attack.
        canaries: >= 2.
        threshold: the attack's own rule, fixed beforehand.
        stream: source of the coins; a new `SecureStream` by default.

    Raises:
        InvalidInput: an argument breaks its rule, or the scores are not one for each canary.

    Example:
        >>> sum(one_run(lambda included: included.astype(float), attack="sure", canaries=10).count)
        10
    """
    canaries = check.count("canaries", canaries, minimum=2)
    source = stream if stream is not None else SecureStream()
    included = source.uniform(canaries) < 0.5
    while included.all() or not included.any():
        included = source.uniform(canaries) < 0.5
    scores = np.asarray(run(included), dtype=float)
    if scores.shape != included.shape:
        raise check.fail("scores", f"one for each of {canaries} canaries", f"shape {scores.shape}")
    return Scores(attack, scores[included], scores[~included], threshold)
