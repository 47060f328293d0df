"""Stored results: an item comes back exactly, and the rows in `results/` are what the runs stored there give."""

import json
from pathlib import Path

import pytest

from tacit.errors import InvalidInput
from tacit.serialization import plain_values
from tacit.standing import Standing
from tacit_papers import PAPERS
from tacit_papers.stored import read_item, values_of, write_item

RESULTS = Path(__file__).parents[2] / "results"
STORED = sorted(RESULTS.glob("*/*.json"))
ROW = {
    "paper": "paper",
    "item": "item",
    "quantity": "epsilon, exact",
    "published": None,
    "ours": "inf",
    "difference": None,
    "tolerance": None,
    "pass": None,
    "standing": "proven",
    "repeats": 3,
}
RUNS = [
    {
        "task": "cost",
        "settings": {"sigma": 1.1, "delta": 1e-5},
        "seconds": 0.1,
        "value": [{"a": None}, {"a": 0.1 + 0.2}],
    },
    {"task": "cost", "settings": {"sigma": 1.3, "delta": 1e-5}, "seconds": 2.0, "value": {"test": [0.5, "nan"]}},
]


def item(name="item", runs=RUNS):
    return {
        "paper": "paper",
        "item": name,
        "title": "Title",
        "size": "full",
        "version": 1,
        "figures": [],
        "command": "c",
        "versions": {"python": "3"},
        "machine": "m",
        "finished": "2026-01-01",
        "tasks": 2,
        "task_seconds": 2.1,
        "rows": [ROW | {"item": name}, ROW | {"item": name, "published": 1.0, "pass": True}],
        "runs": runs,
    }


def test_an_item_comes_back_exactly(tmp_path):
    write_item(tmp_path / "item.json", item())
    assert read_item(tmp_path / "item.json") == item()
    assert json.loads((tmp_path / "item.json").read_text())["common_settings"] == {"delta": 1e-5}
    assert (tmp_path / "item.csv").read_text().splitlines()[1] == '"epsilon, exact",,inf,,,,proven,3'


def test_writing_what_was_read_changes_nothing(tmp_path):
    for path in STORED[:2]:
        copy = tmp_path / path.name
        write_item(copy, read_item(path))
        for suffix in (".json", ".csv", ".runs.csv"):
            assert copy.with_suffix(suffix).read_text() == path.with_suffix(suffix).read_text()


def test_items_with_the_same_runs_share_one_table_until_they_differ(tmp_path):
    for name in ("first", "second"):
        write_item(tmp_path / f"{name}.json", item(name))
    assert [path.name for path in tmp_path.glob("*.runs.csv")] == ["first.runs.csv"]
    write_item(tmp_path / "first.json", item("first", RUNS[:1]))
    assert read_item(tmp_path / "first.json") == item("first", RUNS[:1])
    assert read_item(tmp_path / "second.json") == item("second")


@pytest.mark.parametrize("text", ["a,b\n1\n", 'task,seconds\n"', "task,seconds\ncost,1.0\n"])
def test_a_damaged_table_is_named(text, tmp_path):
    write_item(tmp_path / "item.json", item())
    (tmp_path / "item.runs.csv").write_text(text)
    with pytest.raises(InvalidInput, match=r"item\.runs\.csv must be a"):
        read_item(tmp_path / "item.json")


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_stored_rows_are_what_the_stored_runs_give(path):
    (planned,) = (each for each in PAPERS[path.parent.name].items if each.name == path.stem)
    found = read_item(path)
    assert found["item"] == path.stem
    assert len(found["runs"]) <= found["tasks"]
    assert {row["standing"] for row in found["rows"]} <= {standing.value for standing in Standing}
    values = values_of(planned, found)
    if values is None:
        assert found["size"] == "quick"  # run before its plan grew
        return
    rows = plain_values([row.plain() for row in planned.rows(found["size"], values)])
    assert len(rows) == len(found["rows"])
    for ours, stored in zip(rows, found["rows"], strict=True):
        assert ours == {name: nearly(value) for name, value in stored.items()}


def nearly(value):
    """Another version of scipy may round the last digit of a bound the other way."""
    return pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value


def test_the_results_stay_small():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 3_000_000
    assert sum(path.read_bytes().count(b"\n") for path in files) <= 30_000
