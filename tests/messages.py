"""Mistakes of three callers, and the message that each of them reads: `python -m tests.messages` prints them."""

import contextlib
import io
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas

from tacit import train_table
from tacit.cli import main
from tacit.data import table
from tacit.data.draft import draft
from tacit.erm import (
    DPBoostedTrees,
    DPLinearRegression,
    DPLogisticRegression,
    PublicImputer,
    PublicOneHot,
    PublicTable,
)
from tacit.errors import TacitError
from tacit.workbench.calculator import faults

ROWS = 40
FRAME = pandas.DataFrame(
    {
        "age": np.arange(ROWS) + 20.0,
        "ward": ["north", "south"] * (ROWS // 2),
        "seen": ["03.01.2020", "17.02.2020"] * (ROWS // 2),
        "member": [True, False] * (ROWS // 2),
        "ill": ["no", "yes"] * (ROWS // 2),
    }
)
BOUNDED = {"classes": ["no", "yes"], "data_bounds": (0, 100)}


def _ages(change=lambda column: column):
    return FRAME[["age"]].apply(change)


PYTHON = {
    "a text column": lambda: DPLogisticRegression(**BOUNDED).fit(FRAME[["age", "ward"]], FRAME["ill"]),
    "a missing cell": lambda: DPLogisticRegression(**BOUNDED).fit(_ages(lambda c: c.where(c > 25)), FRAME["ill"]),
    "labels outside the classes": lambda: DPBoostedTrees(classes=["a", "b"], data_bounds=(0, 99)).fit(
        _ages(), FRAME["ill"]
    ),
    "answers that are texts": lambda: DPLinearRegression(data_bounds=(0, 100), target_bounds=(0, 1)).fit(
        _ages(), FRAME["ill"]
    ),
    "a bool declared as a text": lambda: PublicOneHot(categories=[["TRUE", "FALSE"]]).fit_transform(FRAME[["member"]]),
    "a category that is not declared": lambda: PublicOneHot(categories=[["north", "east"]]).fit_transform(
        FRAME[["ward"]]
    ),
    "a column that is not declared": lambda: PublicTable(bounds={"age": (0, 99)}).fit_transform(FRAME[["age", "ward"]]),
    "dates of another form": lambda: PublicTable(dates={"seen": ["2020-01-01", "2020-12-31"]}).fit_transform(
        FRAME[["seen"]]
    ),
    "a missing number without fill": lambda: PublicTable(bounds={"age": (0, 99)}).fit_transform(
        _ages(lambda c: c.where(c > 25))
    ),
    "texts in an imputer": lambda: PublicImputer(fill=1.0).fit(FRAME[["age", "ward"]]),
    "a frame without its target": lambda: table(FRAME, target="il", classes=["no", "yes"]),
    "a date column as numbers": lambda: table(
        FRAME[["seen", "ill"]], target="ill", classes=["no", "yes"], bounds={"seen": (0, 1)}
    ),
    "an array for a frame": lambda: train_table(np.zeros((4, 2)), target="ill", epsilon=1.0),
    "a missing answer": lambda: table(
        FRAME[["age", "ill"]].assign(ill=["no", None] * (ROWS // 2)),
        target="ill",
        classes=["no", "yes"],
        bounds={"age": (0, 100)},
    ),
}

CSV = "id;born;age;ward;ill\n" + "".join(
    f"{n};{n % 28 + 1:02d}.03.1960;{n % 90},5;{'north' if n % 2 else 'south'};{'yes' if n % 3 else 'no'}\n"
    for n in range(60)
)
TOML = """dataset = "table"
epsilon = 1.0
delta = 1e-4
strict = true
attacks = []
[table]
path = "t.csv"
separator = ";"
decimal = ","
target = "ill"
classes = ["no", "yes"]
drop = ["id"{drop}]
[table.bounds]
age = [0, 100]
{more}
"""
DATED = '[table.dates]\nborn = ["1950-01-01", "1970-12-31", "%d.%m.%Y"]\n'
WARDS = '[table.categories]\nward = ["north", "south"]\n'


def _train(text, csv=CSV):
    def run():
        Path("t.csv").write_text(csv, encoding="utf-8")
        Path("t.toml").write_text(text, encoding="utf-8")
        return main(["train", "t.toml", "--out", "runs/t"])

    return run


def _full(**settings):
    return TOML.replace("{drop}", settings.get("drop", "")).replace("{more}", settings.get("more", DATED + WARDS))


TERMINAL = {
    "no file": lambda: main(["table", "init", "absent.csv"]),
    "a wrong target": lambda: (Path("t.csv").write_text(CSV), main(["table", "init", "t.csv", "--target", "il"]))[1],
    "dates without their form": _train(_full(more='[table.dates]\nborn = ["1950-01-01", "1970-12-31"]\n' + WARDS)),
    "a column that is not declared": _train(_full(more=DATED)),
    "a category that is not declared": _train(_full(more=DATED + WARDS.replace("south", "east"))),
    "a missing number": _train(_full(), CSV.replace("7,5", "", 1)),
    "a number that is a text": _train(_full(), CSV.replace("7,5", "seven", 1)),
    "a class that is not declared": _train(_full().replace('"yes"]', '"maybe"]')),
    "a separator that is not declared": _train(_full().replace('separator = ";"\n', "").replace('decimal = ","\n', "")),
    "a pattern without a column": _train(_full(more=DATED + WARDS.replace("ward", '"lab_*"'))),
}


def _answered(field, typed, **more):
    """The fault beside a field of the form of a table."""

    def run():
        Path("t.csv").write_text(CSV, encoding="utf-8")
        usual = {"low:age": "0", "high:age": "100", "source:age": "the law"}
        found = draft(Path("t.csv")).answered({**usual, **more, field: typed})
        raise TacitError(found.faults()[field])

    return run


def _calculated(**given):
    def run():
        raise TacitError(next(iter(faults(given).values())))

    return run


BROWSER = {
    "no lowest value": _answered("low:age", ""),
    "a bound that is no number": _answered("low:age", "x"),
    "a highest value below the lowest": _answered("high:age", "-5"),
    "a day in another form": _answered("low:born", "1.1.x"),
    "one category": _answered("values:ward", "north"),
    "a category that is a code": _answered("values:ward", "north\nNA", missing="NA"),
    "no source": _answered("source:age", ""),
    "an epsilon of 0": _answered("epsilon", "0"),
    "a delta above 1/n": _answered("delta", "0.5"),
    "a delta of the calculator": _calculated(delta="0.5"),
    "an empty field of the calculator": _calculated(noise_multiplier=""),
}


def message(mistake):
    """What the caller of `mistake` reads."""
    told = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            mistake()
        except (TacitError, TypeError, ValueError) as error:
            return " ".join(str(error).split())
    return " ".join(told.getvalue().split())


def messages():
    """Message by caller and mistake, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        callers = {"Python": PYTHON, "terminal": TERMINAL, "browser": BROWSER}
        return {caller: {what: message(each) for what, each in known.items()} for caller, known in callers.items()}


if __name__ == "__main__":
    for caller, known in messages().items():
        for what, told in known.items():
            print(f"{caller} | {what} | {told}", file=sys.stdout)
