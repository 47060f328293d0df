"""The ONNX file of a run answers as the run does, from the same columns, and refuses the same rows."""

import sys

import numpy as np
import pytest
import torch

import tacit
from tacit.cli import main
from tacit.data.schema import Column, Schema
from tacit.errors import InvalidInput, TacitError
from tacit.runs import config_from_table, train

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

CLASSES = ("no", "yes")
COLUMNS = (
    Column("age", "number", 0.0, 110.0, missing=("-9", "NA"), fill=40.0, indicator=True),
    Column("features", "number", -5.0, 5.0),
    Column("day", "date", 18000.0, 19000.0, fill=18500.0),
    Column("ward", "category", categories=("a", "b", ""), missing=("?", "b?")),
    Column("sex", "category", categories=("f", "m")),
)
CODES = (Column("user", "code", categories=("eve", "bob")), Column("item", "code", 3.0, 6.0))


class Softmax(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(1)
        self.scores = torch.nn.Linear(width, 2)

    def forward(self, features):
        return torch.softmax(self.scores(torch.relu(features)).double(), dim=1)


class Ratings(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.user, self.item = torch.nn.Embedding(2, 3), torch.nn.Embedding(4, 3)

    def forward(self, pairs):
        return torch.softmax((self.user(pairs[:, 0]) * self.item(pairs[:, 1])).double(), dim=1)


def session(content):
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def column(values):
    array = np.array(values)
    return array.astype(object if array.dtype.kind in "US" else np.float64)[:, None]


@pytest.fixture(scope="module")
def graph():
    from tacit.runs.onnx_model import onnx_model

    example = np.zeros((1, 9), np.float32)
    return session(onnx_model(Softmax(9), example, task="classification", classes=CLASSES, schema=Schema(COLUMNS)))


def test_every_kind_of_column_is_encoded_as_the_schema_does(graph):
    schema, module = Schema(COLUMNS), Softmax(9)
    good = {
        "age": [50.0, np.nan, -9.0, 200.0],
        "features": [0.0, -1.25, 9.0, -9.0],
        "day": [18250.0, np.nan, 1.0, 18999.5],
        "ward": ["a", "", "?", "b?"],
        "sex": ["f", "m", "m", "f"],
    }
    prediction, chances = graph.run(None, {name: column(values) for name, values in good.items()})
    dates = {"day": np.array(["2019-12-20", "", "1970-01-02", "2022-01-07T12:00"], dtype=object)}
    encoded = schema.encode({name: np.array(values, dtype=object) for name, values in good.items()} | dates)
    expected = module(torch.from_numpy(encoded)).detach().numpy()
    assert np.allclose(chances, expected, atol=1e-6)
    assert list(prediction) == [CLASSES[best] for best in expected.argmax(axis=1)]


@pytest.mark.parametrize(
    ("name", "cell"),
    [("features", np.nan), ("features", np.inf), ("age", -np.inf), ("ward", "c"), ("sex", ""), ("sex", " f")],
)
def test_a_row_that_the_schema_refuses_gets_no_answer_and_its_neighbour_does(name, cell, graph):
    cells = {"age": 50.0, "features": 1.0, "day": 18250.0, "ward": "a", "sex": "f"}
    rows = {each: column([value, cell if each == name else value]) for each, value in cells.items()}
    with pytest.raises(InvalidInput):
        Schema(COLUMNS).encode({name: np.array([cell], dtype=object)} | {
            each: np.array(["2020-01-01" if each == "day" else value], dtype=object)
            for each, value in cells.items() if each != name
        })  # fmt: skip
    prediction, chances = graph.run(None, rows)
    assert prediction[1] == ""
    assert np.isnan(chances[1]).all()
    assert prediction[0] in CLASSES
    assert np.isfinite(chances[0]).all()


@pytest.mark.slow
def test_ratings_take_users_by_name_and_items_by_number():
    from tacit.runs.onnx_model import onnx_model

    schema, module, stars = Schema(CODES), Ratings(), ("1", "3", "5")
    content = onnx_model(module, np.zeros((1, 2), np.int64), task="ratings", classes=stars, schema=schema)
    rows = {"user": ["bob", "eve", "mallory", "eve", "eve"], "item": [3.0, 6.0, 3.0, 7.0, 3.5]}
    prediction, _ = session(content).run(None, {name: column(values) for name, values in rows.items()})
    codes = torch.from_numpy(schema.encode({name: np.array(values[:2], dtype=object) for name, values in rows.items()}))
    assert np.allclose(prediction[:2], module(codes).detach().numpy() @ [1.0, 3.0, 5.0])
    assert np.isnan(prediction[2:]).all()


def test_a_column_named_like_an_output_is_refused():
    from tacit.runs.onnx_model import onnx_model

    schema = Schema((Column("prediction", "number"),))
    with pytest.raises(InvalidInput, match="columns must be other than the outputs prediction and probabilities"):
        onnx_model(Softmax(1), np.zeros((1, 1), np.float32), task="classification", classes=CLASSES, schema=schema)


SETTINGS = {
    "dataset": "table",
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "epochs": 1,
    "batch_size": 20,
    "engine": "eager",
    "attacks": [],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "table"),
    [
        ({}, {"classes": [0, 1]}),
        ({}, {"task": "regression", "target_range": [0, 1]}),
        ({"method": "objective", "epsilon": 1.0, "noise_multiplier": None, "delta": None}, {"classes": [0, 1]}),
    ],
    ids=["network", "regression", "perturbation"],
)
def test_the_file_of_a_run_answers_as_the_run_does(settings, table, tmp_path, capsys):
    rows = "".join(f"{row},{'ab'[row % 2]},{int(row > 50)}\n" for row in range(100))
    (tmp_path / "t.csv").write_text("age,ward,sick\n" + rows)
    declared = {"path": "t.csv", "folder": str(tmp_path), "target": "sick", "bounds": {"age": [0, 100]}}
    every = SETTINGS | settings | {"table": declared | {"categories": {"ward": ["a", "b"]}} | table}
    given = {name: value for name, value in every.items() if value is not None}
    run = train(config_from_table(given), out=tmp_path / "run").folder
    assert main(["runs", "export", str(run), "--out", str(tmp_path / "out"), "--onnx"]) == 0
    assert "model.onnx" in capsys.readouterr().out
    graph = session((tmp_path / "out" / "model.onnx").read_bytes())
    found = graph.run(None, {"age": column([10.0, 70.0]), "ward": column(["a", "b"])})
    (tmp_path / "new.csv").write_text("age,ward\n10,a\n70,b\n")
    model = tacit.load(run)
    assert np.allclose(found[0].astype(float), model.predict(tmp_path / "new.csv").astype(float), atol=1e-6)
    if model.task != "regression":
        assert np.allclose(found[1], model.predict_proba(tmp_path / "new.csv"), atol=1e-6)
    facts = graph.get_modelmeta().custom_metadata_map
    assert facts["ledger_hash"] == model.ledger.hash
    assert facts["standing"] == "proven"


def test_without_the_extra_one_sentence_names_it_and_nothing_is_written(tmp_path, monkeypatch):
    from tacit.runs.onnx_model import onnx_model

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(TacitError, match=r"pip install 'tacit\[onnx\]'"):
        onnx_model(Softmax(1), np.zeros((1, 1), np.float32), task="classification", classes=CLASSES)
