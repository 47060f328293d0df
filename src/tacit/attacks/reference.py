"""Reference models: what attacks with shadow models know about models that did and did not see a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit import check
from tacit.attacks.base import Examples, Model
from tacit.attacks.outputs import class_probabilities, logit_confidence

Trainer = Callable[[Examples], Model]
"""Trains a model on examples, the way the attacker believes that the attacked model was trained."""


@dataclass(frozen=True)
class References:
    """Models trained on known parts of the records that will be scored.

    Attributes:
        models: K models.
        included: which record each model was trained on, boolean (K, n), for the n records scored, members first.
            All False for models that were trained on other data.

    Raises:
        InvalidInput: no model, or `included` is not boolean with one row for each model.
    """

    models: Sequence[Model]
    included: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        included = np.asarray(self.included)
        if not self.models or included.dtype != bool or included.ndim != 2 or len(included) != len(self.models):
            got = f"{included.dtype} of shape {included.shape} for {len(self.models)} models"
            raise check.fail("included", "boolean, one row for each of one or more models", got)

    def confidences(self, examples: Examples) -> np.ndarray:
        """The logit confidence of every model on every example, shape (K, n)."""
        return self._ask(examples, logit_confidence)

    def label_probabilities(self, examples: Examples) -> np.ndarray:
        """The probability that every model gives to the label of every example, shape (K, n)."""
        return self._ask(examples, label_probability)

    def _ask(self, examples: Examples, question: Callable[[Model, Examples], np.ndarray]) -> np.ndarray:
        if len(examples[1]) != self.included.shape[1]:
            known = self.included.shape[1]
            raise check.fail("examples", f"the {known} records that the reference models know", len(examples[1]))
        return np.stack([question(model, examples) for model in self.models])


def label_probability(model: Model, examples: Examples) -> np.ndarray:
    """p_y of each example, shape (n,)."""
    probabilities, labels = class_probabilities(model, examples)
    return probabilities[np.arange(len(labels)), labels]


def half_splits(models: int, records: int, *, seed: int = 0) -> np.ndarray:
    """Boolean (models, records): each record is in exactly half of the models, in a random half (Carlini et al. 2022).

    With an odd number of models it is in one less than out. Each model then gets about half of the records.
    """
    models, records = check.count("models", models), check.count("records", records)
    order = np.random.default_rng(check.count("seed", seed, minimum=0)).random((models, records)).argsort(axis=0)
    return order < models // 2


def train_references(trainer: Trainer, examples: Examples, included: np.ndarray) -> References:
    """One model after another on its part of `examples`; `attacks.stacked` trains many at a time."""
    inputs, labels = np.asarray(examples[0]), np.asarray(examples[1])
    rows: Iterable[np.ndarray] = np.asarray(included)
    return References([trainer((inputs[row], labels[row])) for row in rows], included)
