"""Messages never quote values of the data, unless whoever runs the command says that they may."""

import numpy as np
import pytest
import torch

from tacit import check, fit
from tacit.cli import main
from tacit.data import from_arrays, table
from tacit.erm import DPLogisticRegression

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
    assert "Smith" not in str(caught.value)
    assert "5.1" not in str(caught.value)


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
