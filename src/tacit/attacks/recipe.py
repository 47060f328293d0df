"""How shadow models are trained."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

import numpy as np

from tacit import check
from tacit.clipping import FlatClip

OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """Settings of a fully connected ReLU network with softmax, trained with or without privacy.

    Attributes:
        hidden: widths of the hidden layers; () is logistic regression.
        batch_size: records in a batch; with noise, the expected number in a Poisson batch.
        epochs: passes over a model's own records; steps = round(epochs * n / batch_size).
        learning_rate, optimizer, momentum: of "adam" or of "sgd".
        l2_penalty: lambda of the penalty lambda |W|^2 on the weight matrices, added after any privatisation.
        clip_norm, noise_multiplier: both, to train as DP-SGD does; neither, to train without privacy. Shadow models
            belong to the attacker: they are no release and no ledger knows them.
        precision: of the matrix products; "bfloat16" is faster on wide layers, and only without privacy.
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
            if self.precision != "float32":
                raise check.fail("precision", "float32 for private shadow models", self.precision)

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return self.clip_norm is not None

    def fitted(self, smallest: int) -> Recipe:
        """The same with batches no larger than the `smallest` number of records that a model is trained on."""
        return replace(self, batch_size=min(self.batch_size, smallest))

    def steps(self, records: float) -> int:
        """Number of steps on `records` records."""
        return max(1, round(self.epochs * records / self.batch_size))

    def fingerprint(self, included: np.ndarray, seed: int, first: int, models: int) -> str:
        """SHA-256 of all that the weights of a group of shadow models depend on but the data.

        `first` is the group's first row of `included`, `models` its size.
        """
        place = {"seed": seed, "shape": included.shape, "first": first, "models": models}
        said = json.dumps(asdict(self) | place, sort_keys=True)
        return hashlib.sha256(said.encode() + np.packbits(included).tobytes()).hexdigest()
