"""Membership by loss (Yeom, Giacomelli, Fredrikson & Jha 2018): training lowers the loss of its records."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, Scores, label_probability, vector

_LEAST_PROBABILITY = 1e-6  # as in the evaluation of Jayaraman & Evans


class LossThreshold(Attack):
    """Flag (x, y) as a member iff loss(x, y) <= mean training loss; the score is minus the loss.

    loss(x, y) = -log max(p_y(x), 1e-6), as in the evaluation of Jayaraman & Evans (USENIX Security 2019).

    Args:
        training_loss: the mean training loss that the trainer reported, >= 0; None for the mean over the scored
            members, the usual case when every training record is scored.

    Raises:
        InvalidInput: the training loss breaks its rule.

    Example:
        >>> LossThreshold().from_losses(np.array([0.1, 0.3]), np.array([0.4])).threshold
        -0.2
    """

    name: ClassVar[str] = "loss_threshold"

    def __init__(self, *, training_loss: float | None = None):
        self.training_loss = None if training_loss is None else check.real("training_loss", training_loss, low=0.0)

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """Minus the loss of each example."""
        return -record_losses(model, examples)

    def threshold(self, member_scores: np.ndarray) -> float:
        """Minus the mean training loss."""
        return float(member_scores.mean()) if self.training_loss is None else -self.training_loss

    def from_losses(self, member_losses: np.ndarray, non_member_losses: np.ndarray) -> Scores:
        """Scores from the loss of each member, shape (n,), and each non-member, shape (m,)."""
        members = -vector("member losses", member_losses)
        return Scores(self.name, members, -vector("non-member losses", non_member_losses), self.threshold(members))


def record_losses(model: Model, examples: Examples) -> np.ndarray:
    """-log max(p[y], 1e-6) of each example, shape (n,); raises `InvalidInput` as `class_probabilities` does.

    Example:
        >>> record_losses(lambda inputs: inputs, (np.array([[0.25, 0.75]]), np.array([1]))).round(4)
        array([0.2877])
    """
    return -np.log(np.maximum(label_probability(model, examples), _LEAST_PROBABILITY))
