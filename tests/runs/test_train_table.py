"""A frame in, a private model with card and statement out; the frame is written nowhere."""

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.statement import Verdict, check_statement

SCHEMA = {
    "classes": ["no", "yes"],
    "bounds": {"age": (0, 100)},
    "categories": {"ward": ["north", "south", ""]},
    "fill": {"age": 50},
    "drop": ["name"],
}


def people(rows=1200):
    rng = np.random.default_rng(0)
    age = rng.integers(0, 90, rows).astype(float)
    ill = np.where(age + rng.normal(0, 5, rows) > 45, "yes", "no")
    age[::50] = np.nan
    ward = rng.choice(["north", "south", None], rows)
    return pd.DataFrame({"name": "John Smith", "age": age, "ward": ward, "ill": ill})


def test_a_frame_becomes_model_card_and_statement(tmp_path):
    found = tacit.train_table(people(), target="ill", epsilon=4.0, schema=SCHEMA, out=tmp_path / "run", epochs=10)
    assert found.card.ledger.standing.value == "proven"
    assert found.card.held_out["records"] == "private"
    assert np.mean(found.model.predict(people()) == people()["ill"]) > 0.85
    findings = check_statement(found.statement.read_bytes(), model=found.folder / "model.safetensors")[1]
    assert Verdict.CONTRADICTED not in {finding.verdict for finding in findings}
    for file in found.folder.rglob("*"):
        assert not file.is_file() or b"John" not in file.read_bytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "sick"}, "sick"),
        ({"schema": {"clases": ["no", "yes"]}}, "classes"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"schema": {**SCHEMA, "bounds": {"weight": (0, 1)}}}, "weight"),
    ],
)
def test_faults_are_sentences_and_nothing_is_written(tmp_path, given, said):
    settings = {"target": "ill", "epsilon": 1.0, "schema": SCHEMA} | given
    with pytest.raises(InvalidInput, match=said):
        tacit.train_table(people(100), out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_regression_settles(tmp_path):
    """With the steps of a classification it ended at an error of 1.7 standard deviations of the answers."""
    draw = np.random.default_rng(0)
    area = draw.uniform(10, 300, 800)
    price = np.clip(2 * area + draw.normal(0, 40, 800), 0, 1000)
    schema = {"task": "regression", "target_range": (0, 1000), "bounds": {"area": (10, 300)}}
    exact = {"unsafe_test_metrics": True, "attacks": (), "engine": "eager", "epochs": 15}
    houses = {"area": area, "price": price}
    found = tacit.train_table(houses, target="price", epsilon=8.0, schema=schema, out=tmp_path / "run", **exact)
    assert found.card.metrics["test"] < 0.4 * price.std()


def test_a_path_is_told_the_command():
    with pytest.raises(InvalidInput, match="tacit train takes files"):
        tacit.train_table("people.csv", target="ill", epsilon=1.0)
