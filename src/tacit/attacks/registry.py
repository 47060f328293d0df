"""Attacks by name: black-box attacks, and those that need more than query access."""

from tacit import check
from tacit.attacks.base import Attack
from tacit.attacks.likelihood_ratio import LikelihoodRatioOffline, LikelihoodRatioOnline, RelativeMembership
from tacit.attacks.shadow_models import ShadowModels
from tacit.attacks.threshold_attacks import (
    Entropy,
    GradientNorm,
    LabelOnly,
    LossThreshold,
    ModifiedEntropy,
    QuantileRegression,
)

ATTACKS: dict[str, type[Attack]] = {kind.name: kind for kind in (LossThreshold, Entropy, ModifiedEntropy, LabelOnly)}
"""Black-box attacks: they need the predictions of the model alone."""

PRIVILEGED_ATTACKS: dict[str, type[Attack]] = {
    kind.name: kind
    for kind in (
        GradientNorm,
        QuantileRegression,
        ShadowModels,
        LikelihoodRatioOffline,
        LikelihoodRatioOnline,
        RelativeMembership,
    )
}
"""Attacks beyond query access: they need weights, public records or shadow models."""


def attack_named(name: str) -> Attack:
    """The attack called `name` with its defaults; raises `InvalidInput` with the list and the nearest name.

    Example:
        >>> attack_named("entropy").name
        'entropy'
    """
    return ATTACKS[check.choice("attack", name, ATTACKS)]()
