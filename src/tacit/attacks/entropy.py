"""Membership by the entropy of the prediction (Salem et al. 2019; Song & Mittal 2021)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit.attacks.base import Attack, Examples, Model, class_probabilities, safe_log


class Entropy(Attack):
    """Score sum_c p_c log p_c, minus the entropy of the prediction: models are confident on their training records.

    The label is not used, so a confident wrong prediction counts as membership.

    Example:
        >>> Entropy().score(lambda inputs: inputs, (np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0, 0]))).round(3)
        array([ 0.   , -0.693])
    """

    name: ClassVar[str] = "entropy"

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """Minus the entropy of each prediction."""
        probabilities, _ = class_probabilities(model, examples)
        return np.sum(probabilities * safe_log(probabilities), axis=1)


class ModifiedEntropy(Attack):
    """Score (1 - p_y) log p_y + sum_{c != y} p_c log(1 - p_c).

    It is 0 for a confident right prediction and low for a confident wrong one. Source: Song & Mittal 2021, equation 8,
    with the sign turned.

    Example:
        >>> model, labels = lambda inputs: inputs, np.array([0, 0])
        >>> ModifiedEntropy().score(model, (np.array([[1.0, 0.0], [0.5, 0.5]]), labels)).round(3)
        array([ 0.   , -0.693])
    """

    name: ClassVar[str] = "modified_entropy"

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """Minus the modified entropy of each prediction."""
        probabilities, labels = class_probabilities(model, examples)
        rows = np.arange(len(labels))
        terms = probabilities * safe_log(1 - probabilities)
        of_label = probabilities[rows, labels]
        terms[rows, labels] = (1 - of_label) * safe_log(of_label)
        return terms.sum(axis=1)
