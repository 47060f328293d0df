"""Membership inference attacks on models given as callables."""

from tacit.attacks.base import Attack, Examples, Model, Scores
from tacit.attacks.metrics import (
    Overlap,
    advantage,
    approximate_bound,
    error_rates,
    gaussian_bound,
    overlaps,
    ppv,
    pure_bound,
    roc,
)
from tacit.attacks.reference_attacks import (
    ATTACKS,
    PRIVILEGED_ATTACKS,
    LikelihoodRatioOffline,
    LikelihoodRatioOnline,
    RelativeMembership,
    attack_named,
)
from tacit.attacks.reference_models import Recipe, References, half_splits
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
    "Stack",
    "advantage",
    "approximate_bound",
    "attack_named",
    "error_rates",
    "gaussian_bound",
    "half_splits",
    "overlaps",
    "ppv",
    "pure_bound",
    "record_losses",
    "roc",
    "train_stacked",
]
