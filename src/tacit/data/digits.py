"""Digits: 8x8 pictures of handwritten digits, grey values 0..16, bundled with scikit-learn (UCI)."""

from pathlib import Path

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.source import Source

_CLASSES = tuple(str(digit) for digit in range(10))
_LICENCE = "CC BY 4.0 (UCI Machine Learning Repository; attribution: E. Alpaydin and C. Kaynak)"


def _read(_: Path) -> Dataset:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return from_arrays(
        x.reshape(-1, 1, 8, 8) / 16,
        y_train=y,
        classes=_CLASSES,
        bounds=(0.0, 1.0),
        name="digits",
        notes=("source: bundled with scikit-learn", f"licence: {_LICENCE}", "preprocessing: grey values / 16"),
    )


SOURCE = Source(
    name="digits",
    summary="handwritten digits, 8x8 grey images",
    rows=(1438, 359),
    features=(1, 8, 8),
    classes=_CLASSES,
    licence=_LICENCE,
    read=_read,
)
