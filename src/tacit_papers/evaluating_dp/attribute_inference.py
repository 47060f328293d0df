"""Attribute inference by two measures: TPR - FPR of the guess (the paper's code); the lead of members (Yeom et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tacit.attacks.base import joined
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.evaluating_dp import attributes
from tacit_papers.evaluating_dp.leakage import private_model
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
