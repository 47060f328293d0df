"""Grids of training runs from TOML."""

import json

import pytest

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.sweeps.grid import read_grid

GRID = """
name = "noise"
preset = "digits"
[fixed]
epochs = 1
[grid]
noise_multiplier = [1.0, 2.0]
init_seed = [0, 1]
"""


def written(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


def test_every_combination_is_one_task(tmp_path):
    grid = read_grid(written(tmp_path, GRID))
    assert grid.name == "noise"
    assert [(t.settings["noise_multiplier"], t.settings["init_seed"]) for t in grid.tasks] == [
        (1.0, 0),
        (1.0, 1),
        (2.0, 0),
        (2.0, 1),
    ]
    assert {task.settings["epochs"] for task in grid.tasks} == {1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('presett = "digits"', "Did you mean 'preset'"),
        ("[grid]\nnoise_multiplierr = [1.0]", "Did you mean 'noise_multiplier'"),
        ("[grid]\nepochs = []", "grid.epochs must be a list with at least one value"),
        ("[grid]\nepochs = [1, -1]", "epochs must be in"),
        ('preset = "digit"', "Did you mean 'digits'"),
        ("not toml at all", "sweep must be a TOML file"),
    ],
)
def test_bad_grids(tmp_path, text, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        read_grid(written(tmp_path, text))


def test_a_sweep_from_the_command_line_runs_once_and_is_listed(tmp_path, capsys):
    grid = written(tmp_path, GRID.replace("init_seed = [0, 1]", "init_seed = [0]"))
    store = tmp_path / "results.sqlite"
    arguments = ["sweep", str(grid), "--store", str(store), "--workers", "1", "--json"]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["noise_multiplier"] for row in first] == [1.0, 2.0]
    assert first[0]["epsilon.pld"] > first[1]["epsilon.pld"] > 0
    assert 0 <= first[0]["metrics.test"] <= 1
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["results", str(store), "--json", "--export", str(tmp_path / "r.csv")]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert (tmp_path / "r.csv").read_text().count("\n") == 3
    assert main(["results", str(tmp_path / "none.sqlite")]) == 2
    assert "store must be a file that exists" in capsys.readouterr().err
