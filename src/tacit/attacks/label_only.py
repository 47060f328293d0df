"""Membership from predicted labels alone (Choquette-Choo, Tramer, Carlini & Papernot 2021)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, class_probabilities


class LabelOnly(Attack):
    """Score the fraction of noisy copies of the record, itself included, that the model labels right.

    Members lie further inside their class. Only the argmax of the prediction is used. With `copies=0` it is the
    gap attack: a record is flagged iff it is labelled right.

    Args:
        noise: standard deviation of the Gaussian noise on every input value, as a fraction of the standard deviation
            of that value over the examples scored, >= 0.
        copies: noisy copies of each record, >= 0; the model predicts copies + 1 times.
        seed: of the noise, which is not for privacy.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> examples = np.array([[0.25, 0.75], [0.75, 0.25]]), np.array([1, 1])
        >>> LabelOnly(copies=0).score(lambda inputs: inputs, examples)
        array([1., 0.])
    """

    name: ClassVar[str] = "label_only"

    def __init__(self, *, noise: float = 0.5, copies: int = 20, seed: int = 0):
        self.noise = check.real("noise", noise, low=0.0)
        self.copies = check.count("copies", copies, minimum=0)
        self.seed = check.count("seed", seed, minimum=0)

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """The fraction of right labels."""
        inputs, draw = np.asarray(examples[0]), np.random.default_rng(self.seed)
        scale = self.noise * inputs.std(axis=0)
        right = self._right(model, examples)
        for _ in range(self.copies):
            noisy = inputs + scale * draw.standard_normal(inputs.shape)
            right += self._right(model, (noisy.astype(inputs.dtype), examples[1]))
        return right / (self.copies + 1)

    @staticmethod
    def _right(model: Model, examples: Examples) -> np.ndarray:
        probabilities, labels = class_probabilities(model, examples)
        return (probabilities.argmax(axis=1) == labels).astype(float)
