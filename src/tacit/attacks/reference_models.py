"""Reference models, trained with and without each record, and the recipe by which shadow models are trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from tacit import check
from tacit.attacks.base import Examples, Model, label_probability, logit_confidence
from tacit.clipping import FlatClip

OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "bfloat16", "float64")


@dataclass(frozen=True)
class Recipe:
    """Settings of a network with softmax, trained with or without privacy.

    Attributes:
        hidden: widths of the hidden layers of a fully connected ReLU network; () is logistic regression.
        batch_size: records in a batch; with noise, the expected number in a Poisson batch.
        epochs: passes over a model's own records; steps = round(epochs * n / batch_size).
        learning_rate: > 0.
        optimizer: "adam" or "sgd".
        momentum: of "sgd", in [0, 1).
        l2_penalty: lambda of the penalty lambda |W|^2 on the weight matrices, added after any privatisation.
        clip_norm: clipping norm of DP-SGD; None, with `noise_multiplier`, to train without privacy. Shadow models
            belong to the attacker: they are not released and no ledger records them.
        noise_multiplier: of DP-SGD, >= 0.
        precision: of the matrix products; "bfloat16" is faster on wide layers, and only without privacy. With "float64"
            weights are double too.

    Raises:
        InvalidInput: a setting breaks its rule.

    Example:
        >>> Recipe(epochs=10, batch_size=20).steps(200)
        100
    """

    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 200
    epochs: float = 100.0
    learning_rate: float = 0.01
    optimizer: str = "adam"
    momentum: float = 0.0
    l2_penalty: float = 0.0
    clip_norm: float | None = None
    noise_multiplier: float | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        for width in self.hidden:
            check.count("hidden", width)
        check.count("batch_size", self.batch_size)
        check.positive("epochs", self.epochs)
        check.positive("learning_rate", self.learning_rate)
        check.choice("optimizer", self.optimizer, OPTIMIZERS)
        check.real("momentum", self.momentum, low=0.0, high=1.0, open_high=True)
        check.real("l2_penalty", self.l2_penalty, low=0.0)
        check.choice("precision", self.precision, PRECISIONS)
        if (self.clip_norm is None) != (self.noise_multiplier is None):
            raise check.fail("noise_multiplier", "given together with clip_norm", self.noise_multiplier)
        if self.clip_norm is not None:
            FlatClip(self.clip_norm)
            check.real("noise_multiplier", self.noise_multiplier, low=0.0)
            if self.precision == "bfloat16":
                raise check.fail("precision", "float32 or float64 for private shadow models", self.precision)

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return self.clip_norm is not None

    def fitted(self, smallest: int) -> Recipe:
        """The recipe with batches of at most `smallest` records, the smallest training set of a model."""
        return replace(self, batch_size=min(self.batch_size, smallest))

    def steps(self, records: float) -> int:
        """Number of steps on `records` records."""
        return max(1, round(self.epochs * records / self.batch_size))

    def fingerprint(self, included: np.ndarray, seed: int, first: int, models: int, *, network: str) -> str:
        """SHA-256 of all settings that the weights of a group of shadow models depend on, without the data.

        Args:
            included: boolean (models, records), the records of every model.
            seed: of the training.
            first: the group's first row of `included`.
            models: size of the group.
            network: its layers in words.
        """
        group = {"seed": seed, "shape": included.shape, "first": first, "models": models, "network": network}
        settings = json.dumps(asdict(self) | group, sort_keys=True)
        return hashlib.sha256(settings.encode() + np.packbits(included).tobytes()).hexdigest()


@dataclass(frozen=True)
class References:
    """Models trained on known parts of the records that will be scored.

    Attributes:
        models: K models.
        included: the records that each model was trained on, boolean (K, n), for the n records scored, members
            first. All False for models that were trained on other data.

    Raises:
        InvalidInput: no model, or `included` is not boolean with one row for each model.

    Example:
        >>> references = References([lambda inputs: inputs], np.array([[True]]))
        >>> references.label_probabilities((np.array([[0.25, 0.75]]), np.array([1])))
        array([[0.75]])
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


def half_splits(models: int, records: int, *, seed: int = 0) -> np.ndarray:
    """Boolean (models, records): each record is in exactly half of the models, in a random half (Carlini et al. 2022).

    With an odd number of models it is in one less than out. Each model is trained on about half of the records.

    Example:
        >>> half_splits(4, 10).sum(axis=0)
        array([2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    models, records = check.count("models", models), check.count("records", records)
    order = np.random.default_rng(check.count("seed", seed, minimum=0)).random((models, records)).argsort(axis=0)
    return order < models // 2
