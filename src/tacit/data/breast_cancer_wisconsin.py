"""Breast cancer (original): nine marks from 1 to 10 of 699 samples (Wolberg and Mangasarian 1990)."""

from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.tabular import Columns, cells, named, tabular

_MARKS = (
    *("clump thickness", "uniformity of cell size", "uniformity of cell shape", "marginal adhesion"),
    *("single epithelial cell size", "bare nuclei", "bland chromatin", "normal nucleoli", "mitoses"),
)
_BENIGN = "2"
# A public constant, the lowest mark: a mean over the rows would have to be paid for.
MISSING = "1"
_FILE = File(
    "breast_cancer_wisconsin/breast-cancer-wisconsin.data",
    "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
    19889,
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/breast-cancer-wisconsin/breast-cancer-wisconsin.data",),
)


def _read(folder: Path) -> tuple[Columns, np.ndarray]:
    table = cells(_FILE.content(folder, dataset="breast_cancer_wisconsin"))
    # The first cell is a sample number, the last the class.
    marks = np.where(table[:, 1:-1] == "?", MISSING, table[:, 1:-1])
    return named(marks, _MARKS), (table[:, -1] != _BENIGN).astype(np.int64)


SOURCE = tabular(
    "breast_cancer_wisconsin",
    summary="nine marks of tissue samples (original)",
    rows=(559, 140),
    licence="CC BY 4.0 (UCI Machine Learning Repository; attribution: O. Mangasarian and W. Wolberg)",
    origin="breast-cancer-wisconsin.data of the UCI repository",
    read=_read,
    bounds=dict.fromkeys(_MARKS, (1.0, 10.0)),
    classes=("benign", "malignant"),
    remark=f'a missing mark ("?") becomes {MISSING}',
    files=(_FILE,),
)
