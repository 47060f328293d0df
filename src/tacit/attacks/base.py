"""What every membership attack is: a rule that scores records, higher meaning "was in the training data".

What a black-box model says about records, checked: its class probabilities and its confidence in the label.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tacit import check

Model = Callable[[np.ndarray], np.ndarray]
"""Inputs, shape (n, ...), to class probabilities, shape (n, classes), in evaluation mode."""
Examples = tuple[np.ndarray, np.ndarray]
"""Inputs, shape (n, ...), and integer labels in [0, classes), shape (n,)."""


@dataclass(frozen=True)
class Scores:
    """An attack's scores of members and non-members; a record is flagged when its score is >= `threshold`.

    UnitIds and non-members must come from one distribution, or the attack measures that difference instead.
    The scores are per-record secrets: they stay out of `repr`, logs and cards.

    Attributes:
        attack: name of the attack.
        members: scores of records that were trained on, shape (n,), n >= 1, no NaN.
        non_members: scores of records that were not, shape (m,), m >= 1, no NaN.
        threshold: the attack's own rule.

    Raises:
        InvalidInput: one class is empty, a score is NaN, or the arrays are not one-dimensional numbers.
    """

    attack: str
    members: np.ndarray = field(repr=False)
    non_members: np.ndarray = field(repr=False)
    threshold: float = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            object.__setattr__(self, name, vector(f"scores of {name}", getattr(self, name)))
        if np.isnan(self.threshold):
            raise check.fail("threshold", "a number", self.threshold)

    @property
    def count(self) -> tuple[int, int]:
        """Number of members and of non-members."""
        return len(self.members), len(self.non_members)


class Attack(ABC):
    """Scores records by what a model says about them."""

    name: ClassVar[str]

    @abstractmethod
    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """One number for each example, shape (n,): the higher, the surer that `model` was trained on it."""

    def threshold(self, member_scores: np.ndarray) -> float:
        """From which score on the attack's own rule flags a record.

        The mean score of the members, as the trainer may report it (Yeom et al. 2018), unless the attack has a rule
        that needs nothing from the members.
        """
        return float(member_scores.mean())

    def __call__(self, model: Model, *, members: Examples, non_members: Examples) -> Scores:
        """Attack `model` on records that it was trained on and records that it was not."""
        scores = self.score(model, joined(members, non_members))
        flagged, others = scores[: len(members[1])], scores[len(members[1]) :]
        return Scores(self.name, flagged, others, self.threshold(vector("scores of members", flagged)))


def joined(members: Examples, non_members: Examples) -> Examples:
    """UnitIds, then non-members, as one set of examples; raises `InvalidInput` when one is empty or shapes differ."""
    for name, (_, labels) in (("members", members), ("non_members", non_members)):
        if len(labels) == 0:
            raise check.fail(name, "at least one record", 0, "An attack needs members and non-members.")
    parts = [np.asarray(inputs) for inputs, _ in (members, non_members)]
    if parts[0].shape[1:] != parts[1].shape[1:]:
        shapes = f"{parts[0].shape} and {parts[1].shape}"
        raise check.fail("members and non_members", "records of one shape", shapes)
    return np.concatenate(parts), np.concatenate([np.asarray(members[1]), np.asarray(non_members[1])])


def vector(name: str, values: object) -> np.ndarray:
    """`values` as a non-empty float64 vector without NaN; the error never prints a value."""
    rule = "a non-empty vector of numbers without NaN"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise check.fail(name, rule, type(values).__name__) from None
    if array.ndim != 1 or array.size == 0:
        raise check.fail(name, rule, f"shape {array.shape}", "An attack needs members and non-members.")
    missing = int(np.isnan(array).sum())
    if missing:
        raise check.fail(name, rule, f"{missing} NaN of {array.size}", "Did the model diverge?")
    return array


_LEAST = 1e-30


def class_probabilities(model: Model, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of the examples, shapes (n, classes) and (n,).

    Raises `InvalidInput` when lengths differ, labels are not classes of the model, or the model's answers are not
    probabilities (rows in [0, 1] that sum to 1 within 1e-3).
    """
    inputs, labels = examples
    labels = np.asarray(labels)
    probabilities = np.asarray(model(inputs), dtype=float)
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or labels.ndim != 1:
        got = f"{probabilities.shape} for labels of shape {labels.shape}"
        raise check.fail("model output", "of shape (n, classes), one row for each label", got)
    total = probabilities.sum(axis=1)
    if not (np.all(probabilities >= 0) and np.all(np.abs(total - 1) <= 1e-3)):
        raise check.fail("model output", "class probabilities", "other numbers", "Apply a softmax to the logits.")
    classes = probabilities.shape[1]
    if labels.dtype.kind not in "iu" or np.any(labels < 0) or np.any(labels >= classes):
        raise check.fail("labels", f"integers in [0, {classes})", f"{labels.dtype} labels with others among them")
    return probabilities, labels


def logit_confidence(model: Model, examples: Examples) -> np.ndarray:
    """log(p_y / sum_{c != y} p_c), shape (n,): near normal over training runs (Carlini et al. 2022, Section V.B)."""
    probabilities, labels = class_probabilities(model, examples)
    rows = np.arange(len(labels))
    of_label = probabilities[rows, labels].copy()
    others = probabilities.copy()
    others[rows, labels] = 0.0
    return np.log(np.maximum(of_label, _LEAST)) - np.log(np.maximum(others.sum(axis=1), _LEAST))
