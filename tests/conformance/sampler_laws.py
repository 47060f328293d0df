"""Laws of who is in which batch, for samplings whose batches depend on each other."""

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from tacit.mechanisms import (
    BalancedIteration,
    BallsAndBins,
    CyclicAllocation,
    CyclicPoisson,
    Mechanism,
    RandomAllocation,
)
from tacit.testing.draws import require
from tacit.testing.sampler import _check_passes, _passes, _require_law


def law_of_batches(mechanism: Mechanism, drawn: NDArray[np.bool_], false_alarm: float) -> None:
    """Random allocation, a fixed number of steps of a run, groups that take turns, and bins."""
    if isinstance(mechanism, RandomAllocation):
        _check_passes(np.full(mechanism.steps_per_epoch, 1 / mechanism.steps_per_epoch), drawn, false_alarm)
        _check_pairs_of_places(mechanism.steps_per_epoch, drawn, false_alarm)
    elif isinstance(mechanism, BalancedIteration):
        _check_subsets(mechanism.participations, _passes(mechanism.iterations, drawn), false_alarm)
    elif isinstance(mechanism, CyclicPoisson):
        turns = _turns(mechanism.groups, drawn, false_alarm)
        p = mechanism.sample_rate
        _require_law([int((~turns).sum()), int(turns.sum())], np.array([1 - p, p]), "turns taken", false_alarm)
    elif isinstance(mechanism, CyclicAllocation):
        turns = _turns(mechanism.groups, drawn, false_alarm)
        _check_passes(np.full(mechanism.steps_per_block, 1 / mechanism.steps_per_block), turns, false_alarm)
        _check_pairs_of_places(mechanism.steps_per_block, turns, false_alarm)
    else:
        assert isinstance(mechanism, BallsAndBins)
        require(_turns(mechanism.steps_per_epoch, drawn, false_alarm).all(), "a record must be in its bin every epoch.")


def _check_pairs_of_places(length: int, drawn: NDArray[np.bool_], false_alarm: float) -> None:
    """Two units draw their places in a pass independently, and one unit those in two passes in a row."""
    places = _passes(length, drawn).argmax(axis=1)
    law = np.full(length**2, 1 / length**2)
    for first, second, what in (
        (places[:, 0], places[:, 1], "places of two units in a pass"),
        (places[0:-1:2, 0], places[1::2, 0], "places of a unit in two passes in a row"),
    ):
        counts = np.bincount(first * length + second, minlength=length**2)
        _require_law(counts.tolist(), law, what, false_alarm)


def _check_subsets(size: int, runs: NDArray[np.bool_], false_alarm: float) -> None:
    """Every unit is in a uniform subset of so many steps of a run, (runs, steps, units), drawn by itself each time."""
    steps = runs.shape[1]
    require((runs.sum(axis=1) == size).all(), f"every run must hold each record exactly {size} times.")
    law = np.full(math.comb(steps, size), 1 / math.comb(steps, size))
    drawn = Counter(map(bytes, runs.transpose(0, 2, 1).reshape(-1, steps)))
    require(len(drawn) <= len(law), f"a record must be in {size} of {steps} steps.")
    counts = [*drawn.values(), *[0] * (len(law) - len(drawn))]
    _require_law(counts, law, "subsets of steps", false_alarm)
    shared = hypergeom.pmf(np.arange(size + 1), steps, size, size)
    for first, second, what in (
        (runs[:, :, 0:-1:2], runs[:, :, 1::2], "steps that two units share in a run"),
        (runs[0:-1:2], runs[1::2], "steps that a unit shares between two runs in a row"),
    ):
        width = min(first.shape[2], second.shape[2])
        common = (first[:, :, :width] & second[:, :, :width]).sum(axis=1).ravel()
        _require_law(np.bincount(common, minlength=size + 1).tolist(), shared, what, false_alarm)


def _turns(groups: int, drawn: NDArray[np.bool_], false_alarm: float) -> NDArray[np.bool_]:
    """Which unit was in the batch at which turn of its group, after a check that it was in no other, (turns, units)."""
    drawn = drawn[: len(drawn) // groups * groups].reshape(-1, groups, drawn.shape[1])
    touched = drawn.any(axis=0)
    require((touched.sum(axis=0) <= 1).all(), f"a record must be in batches {groups} steps apart only.")
    group = touched.argmax(axis=0)
    _require_law(np.bincount(group, minlength=groups).tolist(), np.full(groups, 1 / groups), "groups", false_alarm)
    return drawn[:, group, np.arange(drawn.shape[2])]
