"""Credit card fraud: the 492 frauds and 492 normal payments of the full data of 284807 (Dal Pozzolo et al. 2015)."""

from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.tabular import Columns, cells, named, tabular

_COMPONENTS = tuple(f"V{number}" for number in range(1, 29))
# Two days of seconds; principal components whose deviations over all payments are 0.3 to 2; no card pays more.
BOUNDS = {"Time": (0.0, 172800.0)} | dict.fromkeys(_COMPONENTS, (-10.0, 10.0)) | {"Amount": (0.0, 30000.0)}
_FILE = File(
    "creditcard/creditcard_balanced_984.csv",
    "53c70fe413b0f518f541eb3c8f8c1fc6f01141d661c47a55d76f04afb7d2522f",
    515615,
)


def _read(folder: Path) -> tuple[Columns, np.ndarray]:
    table = cells(_FILE.content(folder, dataset="creditcard"), header=True)
    return named(table, list(BOUNDS)), table[:, -1].astype(np.float64).astype(np.int64)


SOURCE = tabular(
    "creditcard",
    summary="card payments, half of them frauds",
    rows=(787, 197),
    licence="Database Contents License 1.0 (Machine Learning Group of ULB and Worldline)",
    origin="a balanced sample of creditcard.csv",
    read=_read,
    bounds=BOUNDS,
    logarithmic=("Amount",),
    classes=("normal", "fraud"),
    files=(_FILE,),
)
