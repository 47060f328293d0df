"""The arguments of a search, and what follows from them before and after the number of records is known.

The parts of a search's records: those that trials train on, score on, and set aside as their holdout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit import check
from tacit.data import Dataset
from tacit.mechanisms import Mechanism, TrialLaw
from tacit.mechanisms.selection import law_from_spec
from tacit.noise import Stream
from tacit.runs import Config
from tacit.runs.loop_settings import NO_VALIDATION, ValidationSettings
from tacit.runs.methods.base import Predict
from tacit.tradeoff import Epsilon
from tacit.tuning.plan import RANDOM_TRIALS, SELECTIONS, Search, plan_search
from tacit.tuning.space import Candidates, Space
from tacit.tuning.trials import draw_trials


@dataclass(frozen=True)
class ScoredRecords:
    """The records that scores are computed on.

    Attributes:
        x: their inputs.
        y: their classes.
    """

    x: np.ndarray
    y: np.ndarray

    def right(self, predict: Predict) -> int:
        """How many are classified right; one record changes it by at most 1."""
        return int(np.count_nonzero(predict(self.x).argmax(axis=1) == self.y))


@dataclass(frozen=True)
class Parts:
    """The parts, no record in two of them; the same for all trials, so that a record pays for one of them.

    Attributes:
        training: what trials train on.
        scored: what scores are computed on.
        held: the holdout of every trial; None without [validation].
    """

    training: Dataset
    scored: ScoredRecords
    held: Dataset | None

    @classmethod
    def of(cls, dataset: Dataset, *, public: bool, aside: np.ndarray, held: np.ndarray | None) -> Parts:
        """The parts of `dataset`: scores on its public test records, or on those `aside`.

        Args:
            dataset: with all training records.
            public: whether scores are computed on the test records.
            aside: for scores, bool (rows,).
            held: for the holdout, bool (rows,), none of those aside.
        """
        scored = (
            ScoredRecords(dataset.x_test, dataset.y_test)
            if public
            else ScoredRecords(dataset.x_train[aside], dataset.y_train[aside])
        )
        if held is None:
            return cls(dataset.without(aside), scored, None)
        return cls(dataset.without(aside | held), scored, dataset.without(~held))


def draw_held(aside: np.ndarray, share: float, stream: Stream) -> np.ndarray:
    """Which of the records that are not `aside` go to the holdout, each by a coin of its own, bool (rows,).

    Raises:
        InvalidInput: one of the two parts is empty.
    """
    held = ~aside & (stream.uniform(len(aside)) < share)
    if not held.any() or (held | aside).all():
        raise check.fail("share of [validation]", "one that leaves records for training and for the holdout", share)
    return held


VALIDATION = ("private", "public")
"""Where scores are computed: on training records set aside, or on the test records, declared public."""


@dataclass(frozen=True)
class Asked:
    """The arguments of a search, all of them public.

    Attributes:
        space: of the settings.
        target: of everything together.
        trials: law of the number of trials; a fixed number for a selection by choice.
        selection: one of SELECTIONS.
        validation: one of VALIDATION.
        validation_share: probability with which a record is set aside.
        holdout: the [validation] of every trial, as it was given: that of a trial has its cost in it.
    """

    space: Space | Candidates
    target: Epsilon
    trials: TrialLaw | int
    selection: str
    validation: str
    validation_share: float
    holdout: ValidationSettings = NO_VALIDATION

    def __post_init__(self) -> None:
        check.choice("validation", self.validation, VALIDATION)
        check.choice("selection", self.selection, SELECTIONS)
        check.probability("validation_share", self.validation_share, open_low=True, open_high=True)
        if self.selection != RANDOM_TRIALS and self.validation == "public":
            raise check.fail("selection", f"{RANDOM_TRIALS} with public validation data", self.selection)

    @property
    def private(self) -> bool:
        """Whether scores are computed on records set aside."""
        return self.validation == "private"

    def whole(self, config: Config, records: int | None) -> Mechanism | None:
        """The whole search on so many records, as nearly as their number tells; None where that is not known."""
        if records is None:
            return None
        kept = records * (1 - self.validation_share) if self.private else float(records)
        kept *= 1 - self.holdout.share if self.holdout.given else 1.0
        return self.plan(config, max(1, round(kept))).mechanism

    def plan(self, config: Config, records: int) -> Search:
        """The search with so many records to train on."""
        return plan_search(
            config,
            self.space,
            self.trials,
            self.target,
            records,
            selection=self.selection,
            private=self.private,
            holdout=self.holdout,
        )

    def draw_aside(self, records: int, stream: Stream) -> np.ndarray:
        """Which records are set aside, each by a coin of its own, shape (records,)."""
        if not self.private:
            return np.zeros(records, dtype=bool)
        aside = stream.uniform(records) < self.validation_share
        if not aside.any() or aside.all():
            rule = "one that leaves records for training and for scores"
            raise check.fail("validation_share", rule, self.validation_share)
        return aside

    def draw_held(self, aside: np.ndarray, stream: Stream) -> np.ndarray | None:
        """Which of the records that are not `aside` are the holdout of every trial; None without [validation]."""
        return draw_held(aside, self.holdout.share, stream) if self.holdout.given else None

    def draw_trials(self, stream: Stream) -> int:
        """How many trials are made."""
        return self.trials if isinstance(self.trials, int) else draw_trials(self.trials, stream)

    def table(self) -> dict[str, Any]:
        """JSON form; `of` is its inverse."""
        space = self.space
        return {
            "space": dict(space.values) if isinstance(space, Space) else [dict(each) for each in space.settings],
            "target": [self.target.epsilon, self.target.delta],
            "trials": self.trials if isinstance(self.trials, int) else self.trials.spec(),
            "selection": self.selection,
            "validation": self.validation,
            "validation_share": self.validation_share,
            "holdout": asdict(self.holdout),
        }

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Asked:
        """The arguments that `table` was made of."""
        drawn, trials = table["space"], table["trials"]
        return cls(
            Candidates(tuple(drawn)) if isinstance(drawn, list) else Space(drawn),
            Epsilon(*table["target"]),
            trials if isinstance(trials, int) else law_from_spec(trials),
            table["selection"],
            table["validation"],
            table["validation_share"],
            ValidationSettings(**table.get("holdout", {})),  # A search of an earlier version has none.
        )
