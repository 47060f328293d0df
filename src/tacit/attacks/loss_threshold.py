"""Membership by loss (Yeom, Giacomelli, Fredrikson & Jha 2018): a record the model fits well was trained on."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, Scores, vector

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

    def __call__(self, model: Model, *, members: Examples, non_members: Examples) -> Scores:
        return self.from_losses(record_losses(model, members), record_losses(model, non_members))

    def from_losses(self, member_losses: np.ndarray, non_member_losses: np.ndarray) -> Scores:
        """The same attack one step lower: from the loss of each member, shape (n,), and non-member, shape (m,)."""
        members = vector("member losses", member_losses)
        non_members = vector("non-member losses", non_member_losses)
        bar = float(members.mean()) if self.training_loss is None else self.training_loss
        return Scores(self.name, -members, -non_members, -bar)


def record_losses(model: Model, examples: Examples) -> np.ndarray:
    """-log max(p[y], 1e-6) of each example, shape (n,).

    Raises `InvalidInput` when lengths differ, labels are not classes of the model, or the model's answers are not
    probabilities (rows in [0, 1] that sum to 1 within 1e-3).
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
    return -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY))
