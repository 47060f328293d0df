"""Breast cancer (diagnostic): 30 measures of 569 cell images, bundled with scikit-learn (Street et al. 1993)."""

from pathlib import Path

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.encoding import encode
from tacit.data.source import Source

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
BOUNDS = (
    {f"mean {measure}": (0.0, value) for measure, (value, _) in _HIGHEST.items()}
    | {f"{measure} error": (0.0, error) for measure, (_, error) in _HIGHEST.items()}
    | {f"worst {measure}": (0.0, value) for measure, (value, _) in _HIGHEST.items()}
)
_CLASSES = ("malignant", "benign")
_LICENCE = "CC BY 4.0 (UCI Machine Learning Repository; attribution: W. Wolberg, O. Mangasarian, N. Street)"


def _read(_: Path) -> Dataset:
    from sklearn.datasets import load_breast_cancer

    values, y = load_breast_cancer(return_X_y=True)
    x, names = encode(dict(zip(BOUNDS, np.asarray(values).T, strict=True)), bounds=BOUNDS, categories={})
    return from_arrays(
        x,
        y_train=y,
        classes=_CLASSES,
        bounds=(0.0, 1.0),
        feature_names=names,
        name="breast_cancer",
        notes=("source: bundled with scikit-learn", f"licence: {_LICENCE}", "preprocessing: scaled by declared bounds"),
    )


SOURCE = Source(
    name="breast_cancer",
    summary="measures of cell nuclei, scaled",
    rows=(455, 114),
    features=(len(BOUNDS),),
    classes=_CLASSES,
    licence=_LICENCE,
    read=_read,
)
