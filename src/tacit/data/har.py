"""Human activity recognition with smartphones (Anguita et al. 2013): six activities of 30 people.

The 265 time-domain features, the first 265 of the original 561; the frequency-domain ones are not read.
One person gives many rows, so a guarantee for one row is weaker than a guarantee for one person.
"""

import lzma
from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.source import array_source

_WIDTH = 265
_FILES = tuple(
    File(f"har/{name}", digest, size)
    for name, digest, size in (
        ("X_train_time265.txt.xz", "09d401539043afc20e196a1b4437d9f57cd074b9fe29c1d90673684984838f5e", 7462076),
        ("y_train.txt", "cdfe15659cd4434250c312dfede31dbad881920c7e860e02b72fc02a10dfd1d3", 14704),
        ("X_test_time265.txt.xz", "a323b491dd2b40120d047362808378a08baee017d109f3b5eacce2897991af64", 3010204),
        ("y_test.txt", "d8bb38626003a753b93b7c235bbd98d76bba39fa011921ef9f2c58a5b00e8622", 5894),
    )
)


def _read(folder: Path) -> dict[str, np.ndarray]:
    x, y, x_test, y_test = (file.content(folder, dataset="har") for file in _FILES)
    return {"x_train": _features(x), "y_train": _labels(y), "x_test": _features(x_test), "y_test": _labels(y_test)}


def _features(content: bytes) -> np.ndarray:
    return np.array(lzma.decompress(content).split(), dtype=np.float32).reshape(-1, _WIDTH)


def _labels(content: bytes) -> np.ndarray:
    # The files count activities from 1.
    return np.array(content.split(), dtype=np.int64) - 1


SOURCE = array_source(
    "har",
    _read,
    summary="activities from smartphone sensors, 265 time-domain features",
    rows=(7352, 2947),
    features=(_WIDTH,),
    classes=("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying"),
    bounds=(-1.0, 1.0),
    licence="as is, no commercial use (authors' README; cite Anguita et al., ESANN 2013)",
    origin="time-domain features 1-265 of the UCI archive, rows shuffled within each person",
    preprocessing="none",
    split="official, 21 people train and 9 test",
    files=_FILES,
)
