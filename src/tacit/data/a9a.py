"""a9a: Adult as 123 binary features in LIBSVM text (Platt 1999; Chang and Lin).

`a9a` is the official split into a9a and a9a.t. `adult_a9a` is the split of Bu, Dong, Long, Su, "Deep
Learning with Gaussian Differential Privacy" (arXiv 1911.11607): the rows of a9a alone, in ten contiguous
folds, the last of which is the test set.
"""

from functools import partial
from pathlib import Path

import numpy as np

from tacit.data.adult import CLASSES, FAMILY, LICENCE
from tacit.data.files import File
from tacit.data.source import array_source

_WIDTH = 123
_FOLDS = 10
_MIRROR = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_TRAIN = File(
    "a9a/a9a",
    "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
    2329875,
    (_MIRROR + "a9a",),
)
_TEST = File(
    "a9a/a9a.t",
    "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
    1164628,
    (_MIRROR + "a9a.t",),
)


def binary(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Features, float32 (rows, 123) of 0 and 1, and labels, 0 for -1 and 1 for +1, of LIBSVM text.

    Every value in these files is 1 and indices start at 1.
    """
    lines = content.decode("ascii").splitlines()
    x = np.zeros((len(lines), _WIDTH), dtype=np.float32)
    for row, line in enumerate(lines):
        x[row, [int(entry.partition(":")[0]) - 1 for entry in line.split()[1:]]] = 1.0
    return x, np.array([int(line.startswith("+")) for line in lines])


def _official(folder: Path) -> dict[str, np.ndarray]:
    x, y = binary(_TRAIN.content(folder, dataset="a9a"))
    x_test, y_test = binary(_TEST.content(folder, dataset="a9a"))
    return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}


def _last_fold(folder: Path) -> dict[str, np.ndarray]:
    x, y = binary(_TRAIN.content(folder, dataset="adult_a9a"))
    cut = len(x) - len(x) // _FOLDS
    return {"x_train": x[:cut], "y_train": y[:cut], "x_test": x[cut:], "y_test": y[cut:]}


_source = partial(
    array_source,
    features=(_WIDTH,),
    classes=CLASSES,
    bounds=(0.0, 1.0),
    licence=LICENCE,
    origin="LIBSVM data sets, derived from Adult",
    preprocessing="none",
    leaks=("the quantiles by which the publishers cut the six numeric columns into bins",),
    family=FAMILY,
)
SOURCE = _source(
    "a9a",
    _official,
    summary="census income as 123 binary features",
    rows=(32561, 16281),
    split="official",
    files=(_TRAIN, _TEST),
)
ADULT = _source(
    "adult_a9a",
    _last_fold,
    summary="the rows of a9a, last of ten folds as test set (Bu et al.)",
    rows=(29305, 3256),
    split="the last of ten contiguous folds of a9a is the test set",
    files=(_TRAIN,),
)
