"""Breast cancer (diagnostic): 30 measures of 569 cell images, bundled with scikit-learn (Street et al. 1993)."""

from pathlib import Path

import numpy as np

from tacit.data.tabular import Columns, named, tabular

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


def _read(_: Path) -> tuple[Columns, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    values, y = load_breast_cancer(return_X_y=True)
    return named(np.asarray(values), list(BOUNDS)), np.asarray(y)


SOURCE = tabular(
    "breast_cancer",
    summary="measures of cell nuclei, scaled",
    rows=(455, 114),
    licence="CC BY 4.0 (UCI Machine Learning Repository; attribution: W. Wolberg, O. Mangasarian, N. Street)",
    origin="bundled with scikit-learn",
    read=_read,
    bounds=BOUNDS,
    classes=("malignant", "benign"),
)
