"""Why two attacks find less here than in the paper: how long attack networks train, which attribute is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tacit import attacks
from tacit.attacks.base import joined
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.evaluating_dp import attributes
from tacit_papers.evaluating_dp.leakage import open_model, private_model, shadow_attack
from tacit_papers.evaluating_dp.privacy import KEY, NUMBERS, Folder, protocol, sigma, split

_DATASET, _MODEL, _EPSILON, _SEED = "cifar100_pca50", "lr", 1000.0, 0
_ATTACK_EPOCHS = (3, 10, 30, 100)
_PUBLISHED = next(
    cell["value"]
    for cell in NUMBERS["stated"]["cifar-lr"]["cells"]
    if (cell["method"], cell.get("epsilon"), cell["quantity"]) == ("rdp", _EPSILON, "shokri")
)
_RULES = {"posterior": "normal posterior, as in the paper's code", "closest": "closest loss, as in its text"}


def shadows_by_epochs(
    *, records: int, batch_size: int, epochs: int, shadows: int, attack_epochs: Sequence[int], data_dir: Folder = None
) -> dict[str, float]:
    """Advantage of the attack by shadow models on one RDP run at epsilon 1000, its networks trained so many epochs.

    Args:
        records: of the training set.
        batch_size: expected records in a batch.
        epochs: passes over the records.
        shadows: number of shadow models.
        attack_epochs: passes that train the attack networks, one result for each.
        data_dir: folder of the data files.
    """
    parts = split(_DATASET, records, data_dir)
    members, others = parts["members"], parts["others"]
    noise = sigma("rdp", _EPSILON, epochs, batch_size / records)
    target = private_model(members, _MODEL, noise, "poisson", batch_size, epochs, _SEED, "recorded")
    found = {}
    for count in attack_epochs:
        attack = shadow_attack(_DATASET, _MODEL, records, batch_size, epochs, shadows, data_dir, count)
        found[str(count)] = attacks.advantage(attack(target, members=members, non_members=others))
    return found


def every_attribute(*, records: int, batch_size: int, epochs: int, data_dir: Folder = None) -> dict[str, float]:
    """Mean and largest advantage over all attributes of one model without privacy, by two rules of decision.

    Args:
        records: of the training set.
        batch_size: records in a batch.
        epochs: passes over the records.
        data_dir: folder of the data files.
    """
    parts = split(_DATASET, records, data_dir)
    members, others = parts["members"], parts["others"]
    target = open_model(members, _MODEL, batch_size, epochs, _SEED)
    loss = float(attacks.record_losses(target, members).mean())
    inputs, labels = joined(members, others)
    found: dict[str, list[float]] = {rule: [] for rule in _RULES}
    for column in range(inputs.shape[1]):
        attribute = attributes.Attribute.of(members[0], column)
        guess = attributes.loss_posterior(target, members=members, non_members=others, attribute=attribute)
        found["posterior"].append(attributes.mean_advantage([guess]))
        low, high = (
            attacks.record_losses(target, (attribute.guessed(inputs, value), labels))
            for value in (attribute.low, attribute.high)
        )
        right = (np.abs(high - loss) < np.abs(low - loss)) == attribute.truth(inputs)
        found["closest"].append(float(right[: len(members[1])].mean() - right[len(members[1]) :].mean()))
    return {f"{rule}_{name}": float(f(each)) for rule, each in found.items() for name, f in _OVER.items()}


_OVER = {"mean": np.mean, "largest": np.max}


def _tasks(size: str) -> list[Task]:
    if size == "quick":
        return []
    names = ("records", "batch_size", "epochs")
    sizes = {name: value for name, value in protocol(size).items() if name in names}
    shadows = {"shadows": protocol(size)["shadows"], "attack_epochs": list(_ATTACK_EPOCHS)}
    return [
        Task(f"{__name__}:shadows_by_epochs", sizes | shadows, 60.0, reads_data=True),
        Task(f"{__name__}:every_attribute", sizes, 15.0, reads_data=True),
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    if not values:
        return []
    make, (by_epochs, by_attribute) = partial(Row, KEY, "attack-traces"), values
    words = "RDP, epsilon 1000: advantage, shadow models, attack networks trained"
    # The paper's attack networks train for 100 epochs.
    stated = {_ATTACK_EPOCHS[-1]: _PUBLISHED}
    rows = [
        make(f"{words} {count} epochs", stated.get(count), by_epochs[str(count)], repeats=1) for count in _ATTACK_EPOCHS
    ]
    return rows + [
        make(f"without privacy: {name} advantage over 50 attributes, {rule_words}", None, value, repeats=1)
        for rule, rule_words in _RULES.items()
        for name, value in ((name, by_attribute[f"{rule}_{name}"]) for name in _OVER)
    ]


ITEM = Item("attack-traces", "advantage of two attacks by attack epochs and by attribute", _tasks, _rows)
