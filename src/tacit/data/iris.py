"""Iris: four measures of 150 flowers, bundled with scikit-learn (Fisher 1936)."""

from pathlib import Path

import numpy as np

from tacit.data.tabular import Columns, named, tabular

# Centimetres: no iris flower is larger, whatever these 150 measure.
BOUNDS = {
    "sepal length": (0.0, 10.0),
    "sepal width": (0.0, 10.0),
    "petal length": (0.0, 10.0),
    "petal width": (0.0, 5.0),
}


def _read(_: Path) -> tuple[Columns, np.ndarray]:
    from sklearn.datasets import load_iris

    values, y = load_iris(return_X_y=True)
    return named(np.asarray(values), list(BOUNDS)), np.asarray(y)


SOURCE = tabular(
    "iris",
    summary="measures of flowers, scaled",
    rows=(120, 30),
    licence="CC BY 4.0 (UCI Machine Learning Repository; attribution: R. A. Fisher)",
    origin="bundled with scikit-learn",
    read=_read,
    bounds=BOUNDS,
    classes=("setosa", "versicolor", "virginica"),
)
