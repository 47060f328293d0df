"""Iris: four measures of 150 flowers, bundled with scikit-learn (Fisher 1936)."""

from pathlib import Path

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.encoding import encode
from tacit.data.source import Source

# Centimetres: no iris flower is larger, whatever these 150 measure.
BOUNDS = {
    "sepal length": (0.0, 10.0),
    "sepal width": (0.0, 10.0),
    "petal length": (0.0, 10.0),
    "petal width": (0.0, 5.0),
}
_CLASSES = ("setosa", "versicolor", "virginica")
_LICENCE = "CC BY 4.0 (UCI Machine Learning Repository; attribution: R. A. Fisher)"


def _read(_: Path) -> Dataset:
    from sklearn.datasets import load_iris

    values, y = load_iris(return_X_y=True)
    x, names = encode(dict(zip(BOUNDS, np.asarray(values).T, strict=True)), bounds=BOUNDS, categories={})
    return from_arrays(
        x,
        y_train=y,
        classes=_CLASSES,
        bounds=(0.0, 1.0),
        feature_names=names,
        name="iris",
        notes=("source: bundled with scikit-learn", f"licence: {_LICENCE}", "preprocessing: scaled by declared bounds"),
    )


SOURCE = Source(
    name="iris",
    summary="measures of flowers, scaled",
    rows=(120, 30),
    features=(len(BOUNDS),),
    classes=_CLASSES,
    licence=_LICENCE,
    read=_read,
)
