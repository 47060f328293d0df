"""Membership by loss (Yeom, Giacomelli, Fredrikson & Jha 2018): a record the model fits well was trained on."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, Scores, class_probabilities, vector

LEAST_PROBABILITY = 1e-6


class LossThreshold(Attack):
    """Flag (x, y) as a member iff loss(x, y) <= mean training loss; the score is minus the loss.

    loss(x, y) = -log max(p_y(x), 1e-6), as in the evaluation of Jayaraman & Evans (USENIX Security 2019).

    Args:
        training_loss: the mean training loss that the trainer reported, >= 0; None for the mean over the scored
            members, the usual case when every training record is scored.
    """

    name: ClassVar[str] = "loss_threshold"

    def __init__(self, *, training_loss: float | None = None):
        self.training_loss = None if training_loss is None else check.real("training_loss", training_loss, low=0.0)

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        return -record_losses(model, examples)

    def threshold(self, member_scores: np.ndarray) -> float:
        return float(member_scores.mean()) if self.training_loss is None else -self.training_loss

    def from_losses(self, member_losses: np.ndarray, non_member_losses: np.ndarray) -> Scores:
        """The same attack one step lower: from the loss of each member, shape (n,), and non-member, shape (m,)."""
        members = -vector("member losses", member_losses)
        return Scores(self.name, members, -vector("non-member losses", non_member_losses), self.threshold(members))


def record_losses(model: Model, examples: Examples) -> np.ndarray:
    """-log max(p[y], 1e-6) of each example, shape (n,); raises `InvalidInput` as `class_probabilities` does."""
    probabilities, labels = class_probabilities(model, examples)
    return -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY))
