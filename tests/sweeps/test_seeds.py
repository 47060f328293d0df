"""The seed of the noise reaches neither stores, exports nor messages."""

import json

import pytest

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.sweeps import Store, Task, export, stored, sweep, table
from tacit.sweeps.grid import read_grid

SEED = 918273645
GRID = f"""
preset = "digits"
[fixed]
epochs = 0.1
epsilon = 8.0
[grid]
unsafe_seed = [{SEED}, {SEED + 1}]
"""


@pytest.fixture
def grid(tmp_path):
    (tmp_path / "g.toml").write_text(GRID)
    return tmp_path / "g.toml"


@pytest.mark.slow
def test_a_sweep_of_seeded_runs_keeps_no_seed(grid, tmp_path, capsys):
    assert main(["sweep", str(grid), "--store", str(tmp_path / "s.sqlite"), "--workers", "1", "--json"]) == 0
    printed = capsys.readouterr()
    found = Store(tmp_path / "s.sqlite").results()
    export(found, tmp_path / "s.csv")
    assert len(found) == 2
    for text in (printed.out, printed.err, (tmp_path / "s.csv").read_text(), json.dumps(table(found))):
        assert str(SEED)[:-1] not in text
    for file in tmp_path.glob("s.sqlite*"):
        assert str(SEED)[:-1].encode() not in file.read_bytes()


def test_seeds_tell_tasks_apart_and_stay_out_of_their_words(grid):
    first, second = read_grid(grid).tasks
    assert first.key() != second.key()
    assert first.key() == read_grid(grid).tasks[0].key()
    assert str(SEED) not in f"{first} {first!r}"


def test_the_key_of_a_seeded_task_needs_the_users_key(grid, monkeypatch):
    before = read_grid(grid).tasks[0].key()
    monkeypatch.setenv("TACIT_KEY", "another key that is long enough to be one")
    assert read_grid(grid).tasks[0].key() != before


def test_a_stored_result_of_one_seed_is_none_of_another(tmp_path):
    tasks = [
        Task("tests.sweeps.chores:square", {"x": 1, "folder": str(tmp_path)}, secret={"x": secret}) for secret in (2, 3)
    ]
    store = Store(tmp_path / "s.sqlite")
    assert [result.value["square"] for result in sweep("s", tasks, store, workers=1)] == [4, 9]
    assert stored([Task(tasks[0].function, tasks[0].settings, secret={"x": 5})], store) == [None]


@pytest.mark.parametrize("name", ["../../..", "a/b", "..", ".", "a\\b", "/tmp/x", "a\nb", ""])
def test_a_name_cannot_leave_the_folder_of_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(f"name = {json.dumps(name)}\nepsilon = 8.0\nepochs = 0.1\n")
    assert main(["train", "c.toml"]) == 2
    assert "name must be" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.toml"]


def test_the_grid_refuses_such_a_name_too(tmp_path):
    (tmp_path / "g.toml").write_text('preset = "digits"\n[fixed]\nname = "../up"\n')
    with pytest.raises(InvalidInput, match="name must be"):
        read_grid(tmp_path / "g.toml")
