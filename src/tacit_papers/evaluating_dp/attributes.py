"""Attribute inference: guess one attribute of a record from the rest of it, its label and the model.

Each attack gives `Scores` of 1 for a right guess and 0 for a wrong one, so that the advantage is
P(right | member) - P(right | non-member) (Yeom et al. 2018, Definition 5), and every metric and audit applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.attacks.base import Examples, Model, Scores, class_probabilities, joined
from tacit.attacks.threshold_attacks import record_losses


@dataclass(frozen=True)
class Attribute:
    """A binary attribute from a feature: the attacker guesses on which side of `pivot` the value lies.

    Attributes:
        column: position in the flattened input.
        low: value that the attacker puts in for the guess "at most `pivot`".
        high: value that the attacker puts in for the guess "above `pivot`".
        pivot: the attribute is 1 where the value exceeds it.

    Example:
        >>> Attribute.of(np.array([[0.0], [1.0], [1.0]]), 0)
        Attribute(column=0, low=0.0, high=1.0, pivot=0.5)
    """

    column: int
    low: float
    high: float
    pivot: float

    @classmethod
    def of(cls, inputs: np.ndarray, column: int) -> Attribute:
        """The attribute of a column: its two values and their middle, or quartiles and median of more unique values.

        Raises `InvalidInput` for a constant column.
        """
        values = np.unique(_flat(inputs)[:, column])
        if len(values) < 2:
            raise check.fail("column", "of a feature that varies", column, "Choose another attribute.")
        if len(values) == 2:
            return cls(column, float(values[0]), float(values[1]), float(values.mean()))
        low, high, pivot = np.quantile(values, [0.25, 0.75, 0.5])
        return cls(column, float(low), float(high), float(pivot))

    def truth(self, inputs: np.ndarray) -> np.ndarray:
        """The true attribute, boolean (n,): whether the value exceeds the pivot."""
        return _flat(inputs)[:, self.column] > self.pivot

    def guessed(self, inputs: np.ndarray, value: float) -> np.ndarray:
        """`inputs` with `value` in place of the attribute."""
        changed = _flat(inputs).copy()
        changed[:, self.column] = value
        return changed.reshape(np.shape(inputs))


def attributes(inputs: np.ndarray, *, count: int = 5, seed: int = 21312) -> list[Attribute]:
    """`count` random attributes; a binary one only if its rarer value has a share in (.1, .5).

    Raises `InvalidInput` when fewer are eligible.

    Example:
        >>> [attribute.column for attribute in attributes(np.random.default_rng(0).normal(size=(20, 3)), count=2)]
        [2, 1]
    """
    count = check.count("count", count)
    flat, found = _flat(inputs), []
    for column in np.random.default_rng(seed).permutation(flat.shape[1]):
        values = np.unique(flat[:, column])
        minority = min(np.mean(flat[:, column] == value) for value in values) if len(values) <= 2 else 0.3
        if len(values) >= 2 and 0.1 < minority < 0.5:
            found.append(Attribute.of(inputs, int(column)))
        if len(found) == count:
            return found
    raise check.fail("count", f"at most {len(found)}, the attributes that are eligible", count)


def loss_posterior(
    model: Model, *, members: Examples, non_members: Examples, attribute: Attribute, training_loss: float | None = None
) -> Scores:
    """Yeom et al. 2018: guess the value with the larger prior times N(loss; 0, training loss).

    The guess is low iff (1 - pi) N(l_low; 0, s) >= pi N(l_high; 0, s), where l is the loss with either value put in,
    s the mean training loss (over the members, if None) and pi the share of high values among all records scored,
    as in the evaluation of Jayaraman & Evans 2019.

    Args:
        model: the attacked model.
        members: records that it was trained on.
        non_members: records that it was not trained on.
        attribute: what is guessed.
        training_loss: mean training loss that the trainer reported, >= 0.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> members, others = (np.array([[0.0], [1.0]]), np.array([0, 1])), (np.array([[0.0], [1.0]]), np.array([1, 0]))
        >>> scores = loss_posterior(
        ...     lambda inputs: np.hstack([1 - inputs, inputs]),
        ...     members=members,
        ...     non_members=others,
        ...     attribute=Attribute.of(members[0], 0),
        ... )
        >>> mean_advantage([scores])
        1.0
    """
    inputs, labels = joined(members, non_members)
    spread = float(record_losses(model, members).mean()) if training_loss is None else training_loss
    spread = max(check.real("training_loss", spread, low=0.0), 1e-12)
    truth = attribute.truth(inputs)
    high_share = float(truth.mean())
    low, high = (record_losses(model, (attribute.guessed(inputs, v), labels)) for v in (attribute.low, attribute.high))
    guess_low = _log(1 - high_share) - 0.5 * (low / spread) ** 2 >= _log(high_share) - 0.5 * (high / spread) ** 2
    return _scores("attribute_loss", guess_low != truth, len(members[1]))


def confusion_posterior(model: Model, *, members: Examples, non_members: Examples, attribute: Attribute) -> Scores:
    """Fredrikson et al. 2014: guess the value v that maximises prior(v) C[label, prediction with v put in].

    C[y, c] is the share of true labels y among predictions c, over all records scored; the source takes it from
    the model's published confusion matrix. Ties go to the more frequent value.

    Args:
        model: the attacked model.
        members: records that it was trained on.
        non_members: records that it was not trained on.
        attribute: what is guessed.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> members, others = (np.array([[0.0], [1.0]]), np.array([0, 1])), (np.array([[0.0]]), np.array([0]))
        >>> scores = confusion_posterior(
        ...     lambda inputs: np.hstack([1 - inputs, inputs]),
        ...     members=members,
        ...     non_members=others,
        ...     attribute=Attribute.of(members[0], 0),
        ... )
        >>> scores.members
        array([1., 1.])
    """
    inputs, labels = joined(members, non_members)
    probabilities, labels = class_probabilities(model, (inputs, labels))
    confusion = np.full((probabilities.shape[1],) * 2, 1e-9)
    np.add.at(confusion, (labels, probabilities.argmax(axis=1)), 1.0)
    confusion /= confusion.sum(axis=0)
    truth = attribute.truth(inputs)
    high_share = float(truth.mean())
    weights = []
    for value, prior in ((attribute.low, 1 - high_share), (attribute.high, high_share)):
        predicted = class_probabilities(model, (attribute.guessed(inputs, value), labels))[0].argmax(axis=1)
        weights.append(prior * confusion[labels, predicted])
    guess_high = np.where(weights[0] == weights[1], high_share > 0.5, weights[1] > weights[0])
    return _scores("attribute_confusion", guess_high == truth, len(members[1]))


def mean_advantage(scores: Sequence[Scores]) -> float:
    """The advantage averaged over attributes.

    Example:
        >>> mean_advantage([Scores("attribute_loss", [1.0, 1.0], [1.0, 0.0], 0.5)])
        0.5
    """
    return float(np.mean([guesses.members.mean() - guesses.non_members.mean() for guesses in scores]))


def _scores(name: str, right: np.ndarray, members: int) -> Scores:
    right = right.astype(float)
    return Scores(name, right[:members], right[members:], 0.5)


def _flat(inputs: np.ndarray) -> np.ndarray:
    return np.asarray(inputs).reshape(len(inputs), -1)


def _log(share: float) -> float:
    return float(np.log(share)) if share > 0 else -np.inf
