"""Membership by the entropy of the prediction (Salem et al. 2019; Song & Mittal 2021)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit.attacks.base import Attack, Examples, Model, class_probabilities

_LEAST = 1e-30


class Entropy(Attack):
    """Score sum_c p_c log p_c, minus the entropy of the prediction: models are sure of what they were trained on.

    It does not look at the label, so a confident wrong answer counts as membership.
    """

    name: ClassVar[str] = "entropy"

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        probabilities, _ = class_probabilities(model, examples)
        return np.sum(probabilities * _log(probabilities), axis=1)


class ModifiedEntropy(Attack):
    """Score (1 - p_y) log p_y + sum_{c != y} p_c log(1 - p_c): 0 for a sure right answer, low for a sure wrong one.

    Source: Song & Mittal 2021, equation 8, with the sign turned.
    """

    name: ClassVar[str] = "modified_entropy"

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        probabilities, labels = class_probabilities(model, examples)
        rows = np.arange(len(labels))
        terms = probabilities * _log(1 - probabilities)
        of_label = probabilities[rows, labels]
        terms[rows, labels] = (1 - of_label) * _log(of_label)
        return terms.sum(axis=1)


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(values, _LEAST))
