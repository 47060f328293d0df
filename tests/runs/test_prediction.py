"""`tacit.load` and `tacit predict`: the model of a run with its preprocessing, and nothing of the folder runs."""

import csv
import json
import shutil

import numpy as np
import pandas
import polars
import pytest

import tacit
from tacit.cli import main
from tacit.errors import Changed, InvalidInput
from tacit.runs import config_from_table, train
from tests.runs.reissued import reissue

ROWS = "age;ward;sick\n" + "".join(f"{row};{'ab'[row % 2]};{'yes' if row > 50 else 'no'}\n" for row in range(100))
TABLE = {
    "path": "t.csv",
    "separator": ";",
    "target": "sick",
    "classes": ["no", "yes"],
    "bounds": {"age": [0, 100]},
    "fill": {"age": 50},
    "categories": {"ward": ["a", "b"]},
}
SETTINGS = {
    "dataset": "table",
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "epochs": 2,
    "batch_size": 20,
    "engine": "eager",
    "attacks": [],
}
SECRET = "77777"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    (folder / "t.csv").write_text(ROWS)
    config = config_from_table(SETTINGS | {"table": TABLE | {"folder": str(folder)}})
    return train(config, out=folder / "run").folder


@pytest.fixture
def copy(run, tmp_path):
    """The run at its own place, put back afterwards: a copy elsewhere is another folder to the signature's counter."""
    kept = tmp_path / "kept"
    shutil.copytree(run, kept)
    yield run
    shutil.rmtree(run)
    shutil.copytree(kept, run)


def test_a_file_a_frame_and_encoded_rows_give_the_same_answers(run, tmp_path):
    model = tacit.load(run)
    frame = pandas.DataFrame({"ward": ["a", "b"], "age": [10.0, np.nan]})
    (tmp_path / "new.csv").write_text("ward;age\na;10\nb;\n")
    encoded = np.array([[0.1, 1, 0], [0.5, 0, 1]])
    chances = model.predict_proba(frame)
    assert np.allclose(chances, model.predict_proba(tmp_path / "new.csv"))
    assert np.array_equal(chances, model.predict_proba(polars.DataFrame({"ward": ["a", "b"], "age": [10.0, None]})))
    assert np.allclose(chances, model.predict_proba(encoded))
    assert np.allclose(chances.sum(axis=1), 1)
    assert set(model.predict(frame)) <= {"no", "yes"}
    assert model.n_features_in_ == 3
    assert list(model.feature_names_in_) == ["age", "ward=a", "ward=b"]
    assert model.ledger.steps == 8


def test_the_command_writes_a_row_for_each_row_in_order(run, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("age;ward\n" + "".join(f"{age};a\n" for age in range(0, 100, 7)))
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert [row["prediction"] for row in rows] == tacit.load(run).predict(tmp_path / "new.csv").tolist()
    assert list(rows[0]) == ["prediction", "probability no", "probability yes"]
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]) == 2
    assert "out must be a file that is not there yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        (f"age;wards\n{SECRET};a\n", "t.csv", "a table with the columns ward"),
        (f"age;ward\n{SECRET};c\n", "t.csv", "one of the declared categories"),
        (f"age;ward\n{SECRET}x;a\n", "t.csv", "finite numbers in every column with bounds"),
        (f"age;ward\n{SECRET};a;b\n", "t.csv", "as many fields in every row"),
        (f"age,ward\n{SECRET},a\n", "t.csv", "another separator"),
        ("age;ward\n", "t.csv", "at least one row"),
        (SECRET, "t.npy", "FILE must be a NumPy file of numbers"),
        (SECRET, "t.xlsx", "whose name ends in"),
    ],
)
def test_bad_files_get_a_sentence_without_a_cell(text, name, sentence, run, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    assert main(["predict", str(run), str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (np.zeros((2, 4)), r"numbers of shape \(rows, 3\); got \(2, 4\)"),
        (np.zeros((0, 3)), r"numbers of shape \(rows, 3\)"),
        (np.full((1, 3), np.nan), "rows must be finite numbers"),
        ([["a", "b", "c"]], "rows must be numbers"),
    ],
)
def test_bad_arrays(rows, sentence, run):
    with pytest.raises(InvalidInput, match=sentence):
        tacit.load(run).predict(rows)


@pytest.mark.parametrize("name", ["preprocessing.json", "model.safetensors", "config.json", "card.json"])
def test_a_file_that_was_changed_is_refused(name, copy):
    path = copy / name
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1) + b" ")
    with pytest.raises(InvalidInput):
        tacit.load(copy)


@pytest.mark.parametrize("name", ["preprocessing.json", "model.safetensors", "card.json"])
def test_an_unfinished_run_has_no_model(name, copy):
    (copy / name).unlink()
    with pytest.raises(Changed, match=f"{name} must be as this user's key signed it last; .* taken away"):
        tacit.load(copy)
    (copy / "signature.json").unlink()
    (copy / "card.json").unlink(missing_ok=True)
    with pytest.raises(InvalidInput, match=r"the folder of a finished `tacit train`, with .* in it"):
        tacit.load(copy)


@pytest.mark.parametrize("change", [{"table": 3}, {"shape": ["x"]}, {"classes": None}, {"task": "magic"}])
def test_a_received_run_is_read_as_data(change, copy):
    path = copy / "preprocessing.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidInput):
        tacit.load(reissue(copy))


@pytest.mark.slow
def test_a_regression_gives_values_and_no_probabilities(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{row / 50},{row}\n" for row in range(50)))
    section = {"path": "t.csv", "target": "y", "task": "regression", "target_range": [0, 50], "bounds": {"a": [0, 1]}}
    config = config_from_table(SETTINGS | {"table": section | {"folder": str(tmp_path)}})
    model = tacit.load(train(config, out=tmp_path / "run").folder)
    found = model.predict(tmp_path / "t.csv")
    assert found.shape == (50,)
    assert ((found >= 0) & (found <= 50)).all()
    with pytest.raises(InvalidInput, match="the run must be one with classes"):
        model.predict_proba(tmp_path / "t.csv")
