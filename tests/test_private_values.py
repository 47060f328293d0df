"""Messages never quote values of the data, unless whoever runs the command says that they may."""

import traceback

import numpy as np
import pandas as pd
import pytest
import torch

from tacit import check, fit
from tacit.accounting import Ledger
from tacit.cli import main
from tacit.data import from_arrays, table
from tacit.erm import DPLogisticRegression, DPRidge, PublicOneHot
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation, randomised_labels

SECRET = "John Smith HIV+"
SETTINGS = 'dataset = "table"\nepsilon = 1.0\n[table]\npath = "t.csv"\ntarget = "y"\nclasses = ["a", "b"]\n'
GOOD = [["1.0", "a"], ["2.0", "b"]] * 20


def write(folder, rows, header=("x", "y")):
    (folder / "t.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")


def read(folder, rows, header=("x", "y"), **changes):
    write(folder, rows, header)
    return table(folder / "t.csv", **{"target": "y", "classes": ["a", "b"], "bounds": {"x": (0, 3)}, **changes})


def number_of_text():
    return np.array([[SECRET], ["1"]] * 10, dtype=object), [0, 1] * 10


CASES = {
    "label": lambda folder: read(folder, [*GOOD, ["1.0", SECRET]]),
    "only label": lambda folder: read(folder, [["1.0", SECRET]] * 9, classes=None),
    "only declared label": lambda folder: read(folder, [["1.0", SECRET]] * 9, classes=[SECRET, "b"]),
    "number": lambda folder: read(folder, [*GOOD, [SECRET, "a"]]),
    "category": lambda folder: read(folder, [*GOOD, [SECRET, "a"]], bounds={}, categories={"x": ["1", "2"]}),
    "quotation mark": lambda folder: read(folder, [*GOOD, [f'"{SECRET}"{SECRET}', "a"]]),
    "width": lambda folder: read(folder, [*GOOD, ["1.0", "a", SECRET]]),
    "no header": lambda folder: read(folder, GOOD, header=("5.1", SECRET)),
    "ratings": lambda folder: from_arrays([[1.0]] * 9, y_train=[SECRET, "b", "c"] * 3, task="ratings"),
    "features": lambda folder: from_arrays([[SECRET]] * 9, y_train=[0, 1, 1] * 3),
    "answers": lambda folder: from_arrays([[1.0]] * 9, y_train=[SECRET] * 9, task="regression"),
    "array of texts": lambda folder: fit_on(np.array([[SECRET]] * 10, dtype=object)),
    "estimator's features": lambda folder: estimate(*number_of_text()),
    "estimator's labels": lambda folder: estimate(np.ones((4, 1)), [0, 1, 0, SECRET]),
    "estimator's only label": lambda folder: estimate(np.ones((4, 1)), [SECRET] * 4, classes=None),
}


class Cell:
    """An object whose every conversion fails with what it holds, as parsers of dates and numbers do."""

    def refuse(self, *args, **kwargs):
        raise ValueError(f"could not parse {SECRET}")

    __repr__ = __float__ = __array__ = __eq__ = __lt__ = __len__ = refuse
    __hash__ = None


def cells():
    """A column of such objects, which numpy does not look into."""
    found = np.empty((10, 1), dtype=object)
    for place in range(10):
        found[place, 0] = Cell()
    return found


# What readers of arrays may be given: numpy, pandas and lists quote cells in their own messages.
HOSTILE = {
    "objects": cells,
    "list of objects": lambda: [[Cell()]] * 10,
    "texts": lambda: np.array([[SECRET]] * 10),
    "bytes": lambda: np.array([[SECRET.encode()]] * 10),
    "records": lambda: np.array([(SECRET,)] * 10, dtype=[("x", "U20")]),
    "frame": lambda: pd.DataFrame({"x": [SECRET] * 10}),
    "categories": lambda: pd.DataFrame({"x": pd.Categorical([SECRET] * 10)}),
    "series": lambda: pd.Series([SECRET] * 10),
    "tables": lambda: [{"x": SECRET}] * 10,
    "sets": lambda: [{SECRET}] * 10,
    "ragged": lambda: [[1.0], [1.0, SECRET]] * 5,
    "complex numbers": lambda: np.full((10, 1), 5.1 + 1j),
    "one axis": lambda: np.full(10, 5.1),
    "no number": lambda: np.array([[5.1]] * 9 + [[np.nan]]),
}
ONES = np.ones((10, 1))
READERS = {
    "fit": lambda given: fit_on(given),
    "classifier": lambda given: estimate(given, [0, 1] * 5),
    "labels": lambda given: estimate(ONES, given),
    "regression": lambda given: DPRidge(epsilon=1.0, delta=1e-5, target_bounds=(0, 1)).fit(ONES, given),
    "perturbation": lambda given: InputPerturbation(epsilon=1.0, delta=1e-5).fit_transform(given),
    "one hot": lambda given: PublicOneHot(categories=[["a", "b"]]).fit_transform(given),
    "randomised response": lambda given: randomised_labels(given, classes=[0, 1], epsilon=1.0, ledger=Ledger()),
    "arrays": lambda given: from_arrays(given, y_train=[0, 1] * 5),
    "arrays of answers": lambda given: from_arrays(ONES, y_train=given, task="regression"),
}


def write_parquet(folder, **columns):
    pd.DataFrame(columns).to_parquet(folder / "t.parquet")
    return table(folder / "t.parquet", target="y", classes=["a", "b"], bounds={"x": (0, 3)})


def of_bytes(folder, name, content):
    (folder / name).write_bytes(content)
    return table(folder / name, target="y", classes=["a", "b"], bounds={"x": (0, 3)})


CASES |= {
    "not UTF-8": lambda folder: of_bytes(folder, "t.csv", b"x,y\n1,a\n" + SECRET.encode() + b"\xff,a\n"),
    "no end of a quotation": lambda folder: of_bytes(folder, "t.csv", b'x,y\n1,a\n"' + SECRET.encode() + b",a\n"),
    "field too long": lambda folder: of_bytes(folder, "t.csv", b"x,y\n1,a\n" + SECRET.encode() * 20_000 + b",a\n"),
    "no archive": lambda folder: of_bytes(folder, "t.csv.gz", SECRET.encode()),
    "broken Parquet": lambda folder: of_bytes(folder, "t.parquet", b"PAR1" + SECRET.encode() * 9 + b"PAR1"),
    "Parquet of texts": lambda folder: write_parquet(folder, x=[SECRET] * 10, y=["a", "b"] * 5),
    "Parquet of tables": lambda folder: write_parquet(folder, x=[{"k": SECRET}] * 10, y=["a", "b"] * 5),
    "Parquet of lists": lambda folder: write_parquet(folder, x=[1.0] * 10, y=[[SECRET]] * 10),
    "Parquet of bytes": lambda folder: write_parquet(folder, x=[SECRET.encode()] * 10, y=["a", "b"] * 5),
}


def fit_on(inputs):
    model = torch.nn.Linear(1, 1)
    fit(
        *(model, inputs, np.ones(len(inputs))),
        loss=lambda outputs, targets: (outputs.squeeze(1) - targets) ** 2,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        clip_norm=1.0,
        noise_multiplier=1.0,
        batch_size=4,
        steps=1,
    )


def estimate(x, y, classes=(0, 1)):
    DPLogisticRegression(epsilon=1.0, delta=1e-5, classes=classes, data_bounds=(0, 1)).fit(x, y)


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning", "ignore::tacit.errors.PrivacyWarning")
@pytest.mark.parametrize("case", CASES)
def test_no_message_quotes_a_value_of_the_data(case, tmp_path):
    with pytest.raises(Exception, match=r"\w") as caught:
        CASES[case](tmp_path)
    assert_says_nothing(caught.value)


def assert_says_nothing(error):
    """Neither the message nor what a traceback prints, chained errors included, but for the lines of source."""
    printed = "\n".join(line for line in "".join(traceback.format_exception(error)).split("\n") if line[:2] != "  ")
    assert "Smith" not in printed
    assert "5.1" not in printed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_reader_of_arrays_passes_on_what_another_package_quotes(hostile, reader, caplog, capsys):
    try:
        READERS[reader](HOSTILE[hostile]())
    except Exception as error:
        assert_says_nothing(error)
    captured = capsys.readouterr()
    assert "Smith" not in captured.out + captured.err + caplog.text


def test_the_command_shows_values_only_where_it_is_told_to(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [*GOOD, ["1.0", SECRET]])
    (tmp_path / "run.toml").write_text(SETTINGS)
    assert main(["train", "run.toml"]) == 2
    assert "Smith" not in capsys.readouterr().err
    assert main(["train", "run.toml", "--show-values"]) == 2
    assert SECRET in capsys.readouterr().err
    assert main(["train", "run.toml"]) == 2
    assert "Smith" not in capsys.readouterr().err


def test_an_unforeseen_error_does_not_quote_the_data(monkeypatch, capsys):
    def broken(*args, **kwargs):
        raise RuntimeError(f"could not convert {SECRET}")

    monkeypatch.setattr("tacit.data.names", broken)
    assert main(["data"]) == 1
    assert "Smith" not in capsys.readouterr().err
    with check.show_values():
        assert main(["data"]) == 1
    assert SECRET in capsys.readouterr().err
