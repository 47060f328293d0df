"""Attacks by name."""

from tacit import check
from tacit.attacks.base import Attack
from tacit.attacks.loss_threshold import LossThreshold

ATTACKS: dict[str, type[Attack]] = {kind.name: kind for kind in (LossThreshold,)}


def attack_named(name: str) -> Attack:
    """The attack called `name` with its defaults; raises `InvalidInput` with the list and the nearest name."""
    return ATTACKS[check.choice("attack", name, ATTACKS)]()
