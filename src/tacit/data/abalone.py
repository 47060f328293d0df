"""Abalone: eight measures of 4177 shells and the rings that tell their age (Nash et al. 1994).

`abalone` is the regression of the rings; `abalone_over9` the two classes of Triastcyn and Faltings, "Improved
Accounting for Differentially Private Learning" (arXiv 1901.09697): more than nine rings or not.
"""

from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.tabular import Columns, cells, named, tabular

# Millimetres and grams, both divided by 200 by the publishers: no abalone is larger; larger values saturate.
BOUNDS = {
    "length": (0.0, 1.0),
    "diameter": (0.0, 1.0),
    "height": (0.0, 0.5),
    "whole weight": (0.0, 3.0),
    "shucked weight": (0.0, 1.5),
    "viscera weight": (0.0, 1.0),
    "shell weight": (0.0, 1.0),
}
_MEDIAN_RINGS = 9
_LICENCE = "CC BY 4.0 (UCI Machine Learning Repository; attribution: W. Nash et al.)"
_FILE = File(
    "abalone/abalone.data",
    "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
    191873,
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/abalone/abalone.data",),
)
_ORIGIN = "abalone.data of the UCI repository"
_SEX = {"sex": ("M", "F", "I")}


def _rings(folder: Path, *, dataset: str = "abalone") -> tuple[Columns, np.ndarray]:
    table = cells(_FILE.content(folder, dataset=dataset))
    return named(table, ["sex", *BOUNDS]), table[:, -1].astype(np.float32)


def _over_nine(folder: Path) -> tuple[Columns, np.ndarray]:
    columns, rings = _rings(folder, dataset="abalone_over9")
    return columns, (rings > _MEDIAN_RINGS).astype(np.int64)


SOURCE = tabular(
    "abalone",
    summary="rings of shells, a regression",
    rows=(3342, 835),
    licence=_LICENCE,
    origin=_ORIGIN,
    read=_rings,
    bounds=BOUNDS,
    categories=_SEX,
    target_range=(0.0, 30.0),
    files=(_FILE,),
)
OVER_NINE = tabular(
    "abalone_over9",
    summary="shells with more than nine rings or not",
    rows=(3342, 835),
    licence=_LICENCE,
    origin=_ORIGIN,
    read=_over_nine,
    bounds=BOUNDS,
    categories=_SEX,
    classes=("nine rings or fewer", "more"),
    files=(_FILE,),
)
