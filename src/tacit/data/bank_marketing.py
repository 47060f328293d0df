"""Bank marketing: 41188 telephone calls of a Portuguese bank and whether the client subscribed (Moro et al. 2014)."""

from pathlib import Path

import numpy as np

from tacit.data.files import File
from tacit.data.tabular import Columns, cells, named, tabular

_COLUMNS = (
    *("age", "job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week"),
    *("duration", "campaign", "pdays", "previous", "poutcome"),
    *("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"),
)
# Round numbers around what a call, a client and the published national indicators can be; larger values saturate.
BOUNDS = {
    "age": (16.0, 100.0),
    "duration": (0.0, 7200.0),
    "campaign": (0.0, 100.0),
    "pdays": (0.0, 999.0),
    "previous": (0.0, 10.0),
    "emp.var.rate": (-5.0, 5.0),
    "cons.price.idx": (90.0, 100.0),
    "cons.conf.idx": (-60.0, 0.0),
    "euribor3m": (0.0, 6.0),
    "nr.employed": (4900.0, 5300.0),
}
_YES_OR_NO = ("no", "unknown", "yes")
# As listed in bank-additional-names.txt.
CATEGORIES = {
    "job": (
        *("admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired", "self-employed", "services"),
        *("student", "technician", "unemployed", "unknown"),
    ),
    "marital": ("divorced", "married", "single", "unknown"),
    "education": (
        *("basic.4y", "basic.6y", "basic.9y", "high.school", "illiterate", "professional.course"),
        *("university.degree", "unknown"),
    ),
    "default": _YES_OR_NO,
    "housing": _YES_OR_NO,
    "loan": _YES_OR_NO,
    "contact": ("cellular", "telephone"),
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "day_of_week": ("mon", "tue", "wed", "thu", "fri"),
    "poutcome": ("failure", "nonexistent", "success"),
}
_FILE = File(
    "bank_marketing/bank-additional-full.csv",
    "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
    5834924,
)


def _read(folder: Path) -> tuple[Columns, np.ndarray]:
    table = cells(_FILE.content(folder, dataset="bank_marketing"), separator=";", header=True)
    return named(table, _COLUMNS), table[:, -1]


SOURCE = tabular(
    "bank_marketing",
    summary="calls of a bank, subscribed or not",
    rows=(32950, 8238),
    licence="CC BY 4.0 (UCI Machine Learning Repository; cite Moro, Cortez and Rita 2014)",
    origin="bank-additional-full.csv of the UCI repository",
    read=_read,
    bounds=BOUNDS,
    categories=CATEGORIES,
    logarithmic=("duration", "campaign"),
    classes=("no", "yes"),
    files=(_FILE,),
)
