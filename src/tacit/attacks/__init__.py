"""Membership and attribute inference attacks on models given as callables."""

from tacit.attacks.attribute import Attribute, attributes, confusion_posterior, loss_posterior, mean_advantage
from tacit.attacks.base import Attack, Examples, Model, Scores, class_probabilities, logit_confidence
from tacit.attacks.likelihood_ratio import LikelihoodRatioOffline, LikelihoodRatioOnline, RelativeMembership
from tacit.attacks.metrics import (
    Overlap,
    accuracy_loss,
    advantage,
    approximate_bound,
    error_rates,
    gaussian_bound,
    members_at_fpr,
    overlaps,
    ppv,
    ppv_at_priors,
    pure_bound,
    roc,
    shared_members,
)
from tacit.attacks.reference_models import Recipe, References, Trainer, half_splits, train_references
from tacit.attacks.registry import ATTACKS, PRIVILEGED_ATTACKS, attack_named
from tacit.attacks.shadow_models import ShadowModels, shadow_splits
from tacit.attacks.stacked_training import Stack, train_stacked
from tacit.attacks.threshold_attacks import (
    Entropy,
    GradientNorm,
    LabelOnly,
    LossThreshold,
    ModifiedEntropy,
    QuantileRegression,
    record_losses,
)

__all__ = [
    "ATTACKS",
    "PRIVILEGED_ATTACKS",
    "Attack",
    "Attribute",
    "Entropy",
    "Examples",
    "GradientNorm",
    "LabelOnly",
    "LikelihoodRatioOffline",
    "LikelihoodRatioOnline",
    "LossThreshold",
    "Model",
    "ModifiedEntropy",
    "Overlap",
    "QuantileRegression",
    "Recipe",
    "References",
    "RelativeMembership",
    "Scores",
    "ShadowModels",
    "Stack",
    "Trainer",
    "accuracy_loss",
    "advantage",
    "approximate_bound",
    "attack_named",
    "attributes",
    "class_probabilities",
    "confusion_posterior",
    "error_rates",
    "gaussian_bound",
    "half_splits",
    "logit_confidence",
    "loss_posterior",
    "mean_advantage",
    "members_at_fpr",
    "overlaps",
    "ppv",
    "ppv_at_priors",
    "pure_bound",
    "record_losses",
    "roc",
    "shadow_splits",
    "shared_members",
    "train_references",
    "train_stacked",
]
