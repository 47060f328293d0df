"""Data sets bundled with scikit-learn, which are always there: digits, iris and breast cancer (diagnostic).

Digits are 8x8 pictures of handwritten digits, grey values 0..16 (UCI). Iris has four measures of 150 flowers (Fisher
1936). Breast cancer has 30 measures of 569 cell images (Street et al. 1993).

Stand-in for Purchase-100 of Jayaraman and Evans, "Evaluating DP Machine Learning in Practice" (2019).

That table is not published in a form that can be fetched. As there, the classes are 100 clusters of the rows, here of
the 48842 binary rows of a9a scaled to norm 1; as there, 10000 rows train and 10000 test, in equal parts of each class.
Nothing measured on it compares with a published number.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import a9a
from tacit.data.source import Source, array_source
from tacit.data.tabular import Columns, named, tabular

_ORIGIN = "bundled with scikit-learn"
_UCI = "CC BY 4.0 (UCI Machine Learning Repository; attribution: {})"
# Centimetres: no iris flower is larger, whatever these 150 measure.
IRIS_BOUNDS = {
    "sepal length": (0.0, 10.0),
    "sepal width": (0.0, 10.0),
    "petal length": (0.0, 10.0),
    "petal width": (0.0, 5.0),
}
# Ten measures of a nucleus: (largest mean or worst value, largest standard error). Public constants: the
# ranges published with the data, rounded up; larger values saturate.
_HIGHEST = {
    "radius": (50.0, 5.0),
    "texture": (50.0, 5.0),
    "perimeter": (300.0, 30.0),
    "area": (5000.0, 1000.0),
    "smoothness": (0.3, 0.05),
    "compactness": (1.5, 0.2),
    "concavity": (1.5, 0.5),
    "concave points": (0.3, 0.1),
    "symmetry": (1.0, 0.1),
    "fractal dimension": (0.3, 0.05),
}
BREAST_CANCER_BOUNDS = (
    {f"mean {measure}": (0.0, value) for measure, (value, _) in _HIGHEST.items()}
    | {f"{measure} error": (0.0, error) for measure, (_, error) in _HIGHEST.items()}
    | {f"worst {measure}": (0.0, value) for measure, (value, _) in _HIGHEST.items()}
)


def _bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(x), np.asarray(y)


def _digits(_: Path) -> dict[str, np.ndarray]:
    x, y = _bundled("digits")
    return {"x_train": x.reshape(-1, 1, 8, 8) / 16, "y_train": y}


def _columns(_: Path, *, name: str, bounds: dict[str, tuple[float, float]]) -> tuple[Columns, np.ndarray]:
    x, y = _bundled(name)
    return named(x, list(bounds)), y


def _table(name: str, bounds: dict[str, tuple[float, float]], *, by: str, **facts: Any) -> Source:
    read = partial(_columns, name=name, bounds=bounds)
    return tabular(name, read=read, bounds=bounds, licence=_UCI.format(by), origin=_ORIGIN, **facts)


DIGITS = array_source(
    "digits",
    _digits,
    summary="handwritten digits, 8x8 grey images",
    rows=(1438, 359),
    features=(1, 8, 8),
    classes=tuple(str(digit) for digit in range(10)),
    bounds=(0.0, 1.0),
    licence=_UCI.format("E. Alpaydin and C. Kaynak"),
    origin=_ORIGIN,
    preprocessing="grey values / 16",
)
IRIS = _table(
    "iris",
    IRIS_BOUNDS,
    summary="measures of flowers, scaled",
    rows=(120, 30),
    by="R. A. Fisher",
    classes=("setosa", "versicolor", "virginica"),
)
BREAST_CANCER = _table(
    "breast_cancer",
    BREAST_CANCER_BOUNDS,
    summary="measures of cell nuclei, scaled",
    rows=(455, 114),
    by="W. Wolberg, O. Mangasarian, N. Street",
    classes=("malignant", "benign"),
)


CLUSTERS = 100
PART = 10_000
# The seed that the paper's code uses elsewhere; its split has none.
_SEED = 21312


def labelled(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All rows, float32 (48842, 123) of norm 1, and the cluster of each; the rows not drawn are a pool."""
    from sklearn.cluster import KMeans

    x = np.concatenate([a9a.binary(file.content(folder, dataset="purchase_standin"))[0] for file in a9a.SOURCE.files])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    clusters = KMeans(CLUSTERS, random_state=0)
    return x, clusters.set_params(n_init=10).fit_predict(x).astype(np.int64)


def _read(folder: Path) -> dict[str, np.ndarray]:
    from sklearn.model_selection import train_test_split

    x, y = labelled(folder)
    train, test = train_test_split(np.arange(len(y)), train_size=PART, test_size=PART, stratify=y, random_state=_SEED)
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


SOURCE = array_source(
    "purchase_standin",
    _read,
    summary="100 clusters of census rows, in place of Purchase-100",
    rows=(PART, PART),
    features=a9a.SOURCE.features,
    classes=tuple(str(number) for number in range(CLUSTERS)),
    bounds=(0.0, 1.0),
    licence=a9a.SOURCE.licence,
    origin="the rows of a9a and a9a.t",
    preprocessing="rows scaled to norm 1; labels by KMeans(100) of scikit-learn, seed 0",
    split=f"{PART} rows each for training and testing, stratified, drawn with seed {_SEED}",
    files=a9a.SOURCE.files,
    leaks=(*a9a.SOURCE.leaks, "the labels, clusters of all rows", "the split, which is stratified by them"),
    leak_remedy="The paper does so; the guarantee starts after it.",
    family=a9a.SOURCE.family,
)
