"""Several runs of one setting: who is flagged in how many of them (Jayaraman & Evans 2019, Figures 4, 8, 11, 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from tacit import check
from tacit.attacks.base import Scores
from tacit.attacks.metrics import members_at_fpr


@dataclass(frozen=True)
class Overlap:
    """Records flagged in at least `runs` of all runs.

    Attributes:
        members, non_members: how many of either are.
        ppv: fraction of members among them, half of all being members (as `metrics.ppv`); 0 if none is flagged.
        chance: the fraction that guesses by fair coins, independent over the runs, would flag that often.
    """

    runs: int
    members: int
    non_members: int
    ppv: float
    chance: float


def overlaps(scores: Sequence[Scores]) -> list[Overlap]:
    """For k = 0 to the number of runs, who is flagged in at least k of them.

    Args:
        scores: of the same records in the same order, one for each run.
    """
    inside, outside = _times(scores)
    runs = len(scores)
    rows = []
    for least in range(runs + 1):
        found, wrong = int(np.sum(inside >= least)), int(np.sum(outside >= least))
        tpr, fpr = found / len(inside), wrong / len(outside)
        value = tpr / (tpr + fpr) if found + wrong else 0.0
        rows.append(Overlap(least, found, wrong, value, _at_least(least, runs)))
    return rows


def shared_members(scores: Sequence[Scores], *, fpr: float) -> np.ndarray:
    """Which members, boolean (n,), every run flags at its lowest threshold of FPR below `fpr`."""
    _times(scores)
    return np.all([members_at_fpr(each, fpr) for each in scores], axis=0)


def _at_least(least: int, runs: int) -> float:
    return 1.0 if least == 0 else float(bdtrc(least - 1, runs, 0.5))


def _times(scores: Sequence[Scores]) -> tuple[np.ndarray, np.ndarray]:
    """How often each member and each non-member is flagged."""
    if not scores or len({each.count for each in scores}) != 1:
        raise check.fail("scores", "of the same records, one or more runs", [each.count for each in scores])
    inside = np.sum([each.members >= each.threshold for each in scores], axis=0)
    return inside, np.sum([each.non_members >= each.threshold for each in scores], axis=0)
