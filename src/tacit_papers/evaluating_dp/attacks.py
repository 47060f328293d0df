"""Attribute inference by two measures: TPR - FPR of the guess (the paper's code); the lead of members (Yeom et al.).

Why two attacks find less here than in the paper: how long attack networks train, which attribute is guessed.
"""

from collections.abc import Sequence
from functools import partial
from random import Random
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tacit import attacks
from tacit.attacks.base import joined
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.evaluating_dp import attributes
from tacit_papers.evaluating_dp.leakage import open_model, private_model, shadow_attack
from tacit_papers.evaluating_dp.privacy import KEY, NUMBERS, POISSON, SEED, Folder, protocol, sigma, split

_DATASET, _MODEL = "cifar100_pca50", "lr"
_CELLS = NUMBERS["attribute_inference"]["cells"]
_MEASURES = {
    "guess": "TPR - FPR of the guess over all records, as in the paper's code",
    "members": "members guessed right less others guessed right, as of Yeom et al.",
}


def authors_columns() -> list[int]:
    """The five of 50 attributes that the authors' code draws, by its seed of Python's own generator."""
    return sorted(Random(SEED).sample(range(50), 5))


def attribute_rates(
    *,
    method: str,
    epsilon: float,
    seed: int,
    records: int,
    batch_size: int,
    epochs: int,
    columns: Sequence[int] | None = None,
    data_dir: Folder = None,
) -> dict[str, float]:
    """Both measures of one private run of softmax regression, each the mean over the attributes.

    Args:
        method: the calibration.
        epsilon: what it is asked for, at delta 1e-5.
        seed: of weights, batches and noise.
        records: members, and as many others.
        batch_size: expected records in a batch.
        epochs: passes over the members.
        columns: the attributes; all by default.
        data_dir: folder of the data files.
    """
    parts = split(_DATASET, records, data_dir)
    members, others = parts["members"], parts["others"]
    noise = sigma(method, epsilon, epochs, batch_size / records)
    sampling = "poisson" if method in POISSON else "shuffled"
    target = private_model(members, _MODEL, noise, sampling, batch_size, epochs, seed, "recorded")
    inputs, _ = joined(members, others)
    found: dict[str, list[float]] = {name: [] for name in _MEASURES}
    for column in range(inputs.shape[1]) if columns is None else columns:
        attribute = attributes.Attribute.of(members[0], column)
        scores = attributes.loss_posterior(target, members=members, non_members=others, attribute=attribute)
        found["members"].append(attributes.mean_advantage([scores]))
        right = np.concatenate([scores.members, scores.non_members])
        found["guess"].append(guess_advantage(attribute.truth(inputs), right))
    return {name: fmean(each) for name, each in found.items()}


def guess_advantage(truth: np.ndarray, right: np.ndarray) -> float:
    """TPR - FPR of guessing a binary attribute.

    Args:
        truth: the attribute of every record, boolean (n,).
        right: whether it was guessed, 0 or 1, (n,).

    Example:
        >>> guess_advantage(np.array([True, True, False, False]), np.array([1.0, 1.0, 1.0, 0.0]))
        0.5
    """
    return float(right[truth].mean() - (1 - right[~truth]).mean())


def _tasks(size: str) -> list[Task]:
    if size == "quick":
        return []
    sizes = {name: value for name, value in protocol(size).items() if name in ("records", "batch_size", "epochs")}
    return [
        Task(
            f"{__name__}:attribute_rates",
            {"method": cell["method"], "epsilon": cell["epsilon"], "seed": seed} | sizes | chosen,
            12.0,
            reads_data=True,
        )
        for chosen in ({"columns": authors_columns()}, {})
        for cell in _CELLS
        for seed in range(protocol(size)["runs"])
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    if size == "quick":
        return []
    runs, half = protocol(size)["runs"], len(values) // 2
    return [*_measured(values[:half], runs, "the authors' five attributes: "), *_measured(values[half:], runs, "")]


def _measured(values: Sequence[Any], runs: int, where: str) -> list[Row]:
    """Rows of every cell, for the authors' attributes or for all; the paper's number is of the former."""
    make, rows = partial(Row, KEY, "attribute-inference"), []
    for place, cell in enumerate(_CELLS):
        done = [value for value in values[place * runs : (place + 1) * runs] if value is not None]
        prefix = f"{cell['method']}, epsilon {cell['epsilon']:g}: {where}"
        for name, words in _MEASURES.items():
            own = [value[name] for value in done]
            compared = (cell["value"], cell["tolerance"]) if name == "guess" and where else (None, None)
            ours = round(fmean(own), 4) if own else None
            rows.append(make(f"{prefix}{words}", compared[0], ours, compared[1], repeats=len(own)))
        spread = round(stdev(value["guess"] for value in done), 4) if len(done) > 1 else None
        rows.append(make(f"{prefix}standard deviation of the first", None, spread, repeats=len(done)))
    return rows


ITEM = Item("attribute-inference", "attribute inference by two measures", _tasks, _rows, partial=True)


_TRACED_DATASET, _TRACED_MODEL, _EPSILON, _SEED = "cifar100_pca50", "lr", 1000.0, 0
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
    parts = split(_TRACED_DATASET, records, data_dir)
    members, others = parts["members"], parts["others"]
    noise = sigma("rdp", _EPSILON, epochs, batch_size / records)
    target = private_model(members, _TRACED_MODEL, noise, "poisson", batch_size, epochs, _SEED, "recorded")
    found = {}
    for count in attack_epochs:
        attack = shadow_attack(_TRACED_DATASET, _TRACED_MODEL, records, batch_size, epochs, shadows, data_dir, count)
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
    parts = split(_TRACED_DATASET, records, data_dir)
    members, others = parts["members"], parts["others"]
    target = open_model(members, _TRACED_MODEL, batch_size, epochs, _SEED)
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


def _trace_tasks(size: str) -> list[Task]:
    if size == "quick":
        return []
    names = ("records", "batch_size", "epochs")
    sizes = {name: value for name, value in protocol(size).items() if name in names}
    shadows = {"shadows": protocol(size)["shadows"], "attack_epochs": list(_ATTACK_EPOCHS)}
    return [
        Task(f"{__name__}:shadows_by_epochs", sizes | shadows, 60.0, reads_data=True),
        Task(f"{__name__}:every_attribute", sizes, 15.0, reads_data=True),
    ]


def _trace_rows(size: str, values: Sequence[Any]) -> list[Row]:
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


TRACES = Item("attack-traces", "advantage of two attacks by attack epochs and by attribute", _trace_tasks, _trace_rows)
