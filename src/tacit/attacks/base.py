"""`Attack`: the base class of membership attacks, and the checked black-box answers of a model that they use."""

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
LEAST_PROBABILITY = 1e-30
"""Probabilities are raised to this before a logarithm or division: finite, and below any float32 softmax of use."""


@dataclass(frozen=True)
class Scores:
    """An attack's scores of members and non-members; a record is flagged when its score is >= `threshold`.

    Members and non-members must come from one distribution, or the attack measures that difference instead.
    The scores are per-record secrets: `repr`, logs and cards leave them out.

    Attributes:
        attack: name of the attack.
        members: scores of records that were trained on, shape (n,), n >= 1, no NaN.
        non_members: scores of records that were not, shape (m,), m >= 1, no NaN.
        threshold: the attack's own rule.

    Raises:
        InvalidInput: one class is empty, a score is NaN, or the arrays are not one-dimensional numbers.

    Example:
        >>> Scores("loss_threshold", [2.0, 1.0], [0.0], threshold=0.5).count
        (2, 1)
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
    """Scores records by a model's predictions on them; a higher score means "was in the training data".

    Attributes:
        name: name of the attack.

    Example:
        >>> from tacit.attacks import LossThreshold
        >>> model = lambda inputs: np.column_stack([inputs, 1 - inputs])
        >>> members, others = (np.array([0.9, 0.8]), np.array([0, 0])), (np.array([0.4]), np.array([0]))
        >>> LossThreshold()(model, members=members, non_members=others).count
        (2, 1)
    """

    name: ClassVar[str]

    @abstractmethod
    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """One number for each example, shape (n,): higher means that membership in the training data is likelier."""

    def threshold(self, member_scores: np.ndarray) -> float:
        """The attack's own rule: it flags records of at least this score.

        The mean score of the members, as the trainer may report it (Yeom et al. 2018); attacks whose rule does not
        depend on the members override it.
        """
        return float(member_scores.mean())

    def __call__(self, model: Model, *, members: Examples, non_members: Examples) -> Scores:
        """Scores of `model` on records that it was trained on and records that it was not."""
        scores = self.score(model, joined(members, non_members))
        flagged, others = scores[: len(members[1])], scores[len(members[1]) :]
        return Scores(self.name, flagged, others, self.threshold(vector("scores of members", flagged)))


def joined(members: Examples, non_members: Examples) -> Examples:
    """Members, then non-members, as one set of examples; raises `InvalidInput` when one is empty or shapes differ."""
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


def class_probabilities(model: Model, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of the examples, shapes (n, classes) and (n,).

    Raises `InvalidInput` when lengths differ, labels are not classes of the model, or the model's answers are not
    probabilities (rows in [0, 1] that sum to 1 within 1e-3).

    Example:
        >>> class_probabilities(lambda inputs: inputs, (np.array([[0.25, 0.75]]), np.array([1])))
        (array([[0.25, 0.75]]), array([1]))
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


def label_probability(model: Model, examples: Examples) -> np.ndarray:
    """p_y of each example, shape (n,)."""
    probabilities, labels = class_probabilities(model, examples)
    return probabilities[np.arange(len(labels)), labels]


def logit_confidence(model: Model, examples: Examples) -> np.ndarray:
    """log(p_y / sum_{c != y} p_c), shape (n,): near normal over training runs (Carlini et al. 2022, Section V.B).

    Example:
        >>> logit_confidence(lambda inputs: inputs, (np.array([[0.25, 0.75]]), np.array([1]))).round(4)
        array([1.0986])
    """
    probabilities, labels = class_probabilities(model, examples)
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = 0.0
    return safe_log(probabilities[rows, labels]) - safe_log(others.sum(axis=1))


def safe_log(values: np.ndarray) -> np.ndarray:
    """Logarithm of max(value, `LEAST_PROBABILITY`)."""
    return np.log(np.maximum(values, LEAST_PROBABILITY))
