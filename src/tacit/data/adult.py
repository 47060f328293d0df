"""Adult (census income): the raw UCI files, encoded by what `adult.names` declares (Becker and Kohavi 1996).

Numbers are scaled by `BOUNDS`, words become one 0/1 column for each value of `CATEGORIES`; neither is
learned from the rows. `adult` keeps a missing value ("?") as a category of its own, `adult_complete`
leaves out the rows that have one.
"""

from functools import partial
from pathlib import Path

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.files import File
from tacit.data.source import Source
from tacit.data.tabular import encode

COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
)
# Round numbers that hold for any census of this design, top codes included; larger values saturate.
BOUNDS = {
    "age": (16.0, 100.0),
    "fnlwgt": (0.0, 1_500_000.0),
    "education-num": (1.0, 16.0),
    "capital-gain": (0.0, 99_999.0),
    "capital-loss": (0.0, 5_000.0),
    "hours-per-week": (0.0, 100.0),
}
# Word for word from adult.names, misspellings included.
_DECLARED = """
workclass: Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, Never-worked
education: Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, \
Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool
marital-status: Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, \
Married-AF-spouse
occupation: Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, \
Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, \
Protective-serv, Armed-Forces
relationship: Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried
race: White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black
sex: Female, Male
native-country: United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), \
India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, \
Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, \
Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands
"""
CATEGORIES = {
    column: tuple(known.split(", "))
    for column, _, known in (line.partition(": ") for line in _DECLARED.strip().splitlines())
}
CLASSES = ("<=50K", ">50K")
FAMILY = "census of 1994"
LICENCE = "CC BY 4.0 (UCI Machine Learning Repository; attribution: B. Becker and R. Kohavi)"
_MISSING = "?"
_CAN_BE_MISSING = ("workclass", "occupation", "native-country")
_MIRRORS = (
    "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
    "http://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
)
_FILES = tuple(
    File(f"adult/{name}", digest, size, tuple(mirror + name for mirror in _MIRRORS))
    for name, digest, size in (
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3974305),
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2003153),
    )
)


def rows(content: bytes) -> np.ndarray:
    """The cells of adult.data or adult.test as texts, (rows, 15); the last column is the label.

    adult.test starts with a line that is no row and ends every label with a dot.
    """
    lines = content.decode("ascii").splitlines()
    return np.array([line.rstrip(".").split(", ") for line in lines if line.count(", ") == len(COLUMNS)])


def _read(folder: Path, *, name: str, missing: bool) -> Dataset:
    parts = []
    for file in _FILES:
        cells = rows(file.content(folder, dataset=name))
        if not missing:
            cells = cells[(cells != _MISSING).all(axis=1)]
        columns = {column: cells[:, place] for place, column in enumerate(COLUMNS)}
        x, feature_names = encode(columns, bounds=BOUNDS, categories=_categories(missing))
        parts.append((x, cells[:, -1], feature_names))
    (x, y, feature_names), (x_test, y_test, _) = parts
    unknown = '"?" is a category' if missing else 'rows with "?" left out'
    return from_arrays(
        x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        classes=CLASSES,
        bounds=(0.0, 1.0),
        feature_names=feature_names,
        name=name,
        notes=(
            "source: adult.data and adult.test of the UCI repository",
            f"licence: {LICENCE}",
            f"preprocessing: scaled by declared bounds, one-hot by declared categories, {unknown}",
            "split: official",
        ),
    )


def _categories(missing: bool) -> dict[str, tuple[str, ...]]:
    extra = _CAN_BE_MISSING if missing else ()
    return {column: (*known, _MISSING) if column in extra else known for column, known in CATEGORIES.items()}


def _source(name: str, summary: str, counts: tuple[int, int], *, missing: bool) -> Source:
    words = sum(len(known) for known in _categories(missing).values())
    return Source(
        name=name,
        summary=summary,
        rows=counts,
        features=(len(BOUNDS) + words,),
        classes=CLASSES,
        licence=LICENCE,
        read=partial(_read, name=name, missing=missing),
        files=_FILES,
        family=FAMILY,
    )


SOURCE = _source("adult", "census income, one-hot and scaled", (32561, 16281), missing=True)
COMPLETE = _source("adult_complete", "census income, rows without missing values", (30162, 15060), missing=False)
