"""What is trained and attacked: data, splits, models, and the five runs of a setting at every size."""

from __future__ import annotations

import os
import warnings
from functools import cache

import numpy as np

from tacit.attacks import Examples
from tacit_papers.evaluating_dp.privacy import PROTOCOL

SEED = 21312
WIDTHS: dict[str, tuple[int, ...]] = {"lr": (), "nn": (256, 256)}
CLASSES = 100
EPSILONS = {"quick": (10.0, 1000.0), "full": tuple(PROTOCOL["epsilons"])}
Folder = str | os.PathLike[str] | None


def protocol(size: str) -> dict[str, int]:
    """Records of the target, batch, epochs, runs of a setting and shadow models."""
    if size == "full":
        names = {"records": "records", "batch_size": "batch_size", "epochs": "epochs", "runs": "repeats"}
        return {name: PROTOCOL[key] for name, key in names.items()} | {"shadows": 5}
    return {"records": 1000, "batch_size": 200, "epochs": 20, "runs": 1, "shadows": 0}


@cache
def split(dataset: str, records: int, data_dir: Folder) -> dict[str, Examples]:
    """The target's training ("members") and test ("others") records, stratified, and the rest ("pool"); rows of norm 1.

    The paper's code draws its split without a fixed seed.
    """
    from sklearn.model_selection import train_test_split

    x, y = _rows(dataset, data_dir)
    members, rest = train_test_split(np.arange(len(y)), train_size=records, stratify=y, random_state=SEED)
    others, pool = train_test_split(rest, train_size=records, stratify=y[rest], random_state=SEED)
    return {name: (x[part], y[part]) for name, part in (("members", members), ("others", others), ("pool", pool))}


def _rows(dataset: str, data_dir: Folder) -> Examples:
    from tacit.data import data_folder, load
    from tacit.data.bundled import labelled

    if dataset == "purchase_standin":
        return labelled(data_folder(data_dir))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load("cifar100_pca50", data_dir=data_dir)
    x = np.concatenate([data.x_train, data.x_test]).astype(np.float32)
    y = np.concatenate([data.y_train, data.y_test]).astype(np.int64)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y
