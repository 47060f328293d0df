"""Membership attacks: they get models as callables, and never train the model that they attack."""

from tacit.attacks.base import Attack, Examples, Model, Scores
from tacit.attacks.loss_threshold import LossThreshold, record_losses
from tacit.attacks.metrics import (
    accuracy_loss,
    advantage,
    approximate_bound,
    error_rates,
    gaussian_bound,
    members_at_fpr,
    ppv,
    ppv_at_priors,
    pure_bound,
    roc,
)
from tacit.attacks.registry import ATTACKS, attack_named

__all__ = [
    "ATTACKS",
    "Attack",
    "Examples",
    "LossThreshold",
    "Model",
    "Scores",
    "accuracy_loss",
    "advantage",
    "approximate_bound",
    "attack_named",
    "error_rates",
    "gaussian_bound",
    "members_at_fpr",
    "ppv",
    "ppv_at_priors",
    "pure_bound",
    "record_losses",
    "roc",
]
