"""The data sets of the paper's figures, small ones first, and their titles above a panel."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

# The paper's Iris is binary, in a way that it does not say.
IRIS = {"iris_setosa": ("setosa", ()), "iris_virginica": ("virginica", ("setosa",))}
LARGE = ("bank_marketing", "adult_complete", "kddcup99")
SMALL = ("breast_cancer_wisconsin", "creditcard", *IRIS)
TITLES = {
    "breast_cancer_wisconsin": "Breast Cancer",
    "creditcard": "Credit Card Fraud",
    "iris_setosa": "Iris: setosa or not",
    "iris_virginica": "Iris: virginica or versicolor",
    "bank_marketing": "Bank",
    "adult_complete": "Adult",
    "kddcup99": "KDDCup99",
}


def load_table(name: str, data_dir: str | os.PathLike[str] | None) -> Any:
    """A data set of `tacit.data`, or one of the two binary readings of Iris.

    Args:
        name: a key of `TITLES`.
        data_dir: folder of the data files.
    """
    import numpy as np

    from tacit.data import load

    if name not in IRIS:
        return load(name, data_dir=data_dir)
    whole, (positive, left_out) = load("iris"), IRIS[name]
    kept = [index for index, label in enumerate(whole.classes) if label not in left_out]
    train, test = np.isin(whole.y_train, kept), np.isin(whole.y_test, kept)
    one = whole.classes.index(positive)
    return replace(
        whole,
        name=name,
        x_train=whole.x_train[train],
        y_train=(whole.y_train[train] == one).astype(np.int64),
        x_test=whole.x_test[test],
        y_test=(whole.y_test[test] == one).astype(np.int64),
        classes=("rest", positive),
    )
