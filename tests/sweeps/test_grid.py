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
        ("preset = 5", "preset must be a text; got 5"),
        ('preset = ["digits"]', "preset must be a text"),
        ("name = 5", "name must be a text"),
        ("fixed = 5", r"fixed must be a \[fixed\] section"),
        ("grid = 5", r"grid must be a \[grid\] section"),
        ("[fixed]\nsections = 5", "key of the overrides must be one of"),
        ("[fixed]\nclip = 5", r"clip must be a \[clip\] section"),
        ('[fixed]\ndataset = "table"\ntable = {path = "t.csv"}', r"target must be given in \[table\]"),
        ('[fixed]\ndataset = "table"\ntable = {path = 5, target = "y"}', r"path of \[table\] must be a text"),
        ('[fixed]\ndataset = "table"\ntable = 5', r"table must be a \[table\] section"),
    ],
)
def test_bad_grids(tmp_path, text, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        read_grid(written(tmp_path, text))


def test_an_edited_configuration_table_or_model_is_another_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text(
        'dataset = "table"\nmodel = "own_net:Net"\nnoise_multiplier = 20.0\ntable = {path = "t.csv", target = "y"}'
    )
    (tmp_path / "t.csv").write_text("x,y\n0,a\n1,b\n")
    (tmp_path / "own_net.py").write_text("WIDTH = 3\n")
    grid = written(tmp_path, 'preset = "p.toml"')
    keys = [read_grid(grid).tasks[0].key()]
    for name, old, new in [("p.toml", "20.0", "1.0"), ("t.csv", "0,a", "1,a"), ("own_net.py", "3", "4")]:
        (tmp_path / name).write_text((tmp_path / name).read_text().replace(old, new))
        keys.append(read_grid(grid).tasks[0].key())
    assert len(set(keys)) == 4
    assert read_grid(grid).tasks[0].key() == keys[-1]
    assert read_grid(grid).tasks[0].key(tmp_path / "elsewhere") != keys[-1]


@pytest.mark.slow
def test_a_sweep_from_the_command_line_runs_once_and_is_listed(tmp_path, capsys):
    grid = written(tmp_path, GRID.replace("init_seed = [0, 1]", "init_seed = [0]"))
    store = tmp_path / "results.sqlite"
    arguments = ["sweep", str(grid), "--store", str(store), "--workers", "1", "--json"]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["noise_multiplier"] for row in first] == [1.0, 2.0]
    assert first[0]["epsilon.pld"] > first[1]["epsilon.pld"] > 0
    assert 0 <= first[0]["metrics.test"] <= 1
    accountants = [key.removeprefix("epsilon.") for key in first[0] if key.startswith("epsilon.")]
    assert {"pld", "clt"} <= set(accountants)
    assert all(first[0][f"standing.{name}"] for name in accountants)
    best = {name: first[0][f"guarantee.{name}"] for name in ("accountant", "standing", "relation", "delta", "epsilon")}
    assert list(best.values()) == ["pld", "proven", "zero_out", 1e-4, first[0]["epsilon.pld"]]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["results", str(store), "--json", "--export", str(tmp_path / "r.csv")]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert (tmp_path / "r.csv").read_text().count("\n") == 3
    assert main(["results", str(tmp_path / "none.sqlite")]) == 2
    assert "store must be a file that exists" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_the_table_has_the_standing_beside_epsilon_and_whole_headings(tmp_path, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    grid = written(
        tmp_path,
        'name = "[/x] {y} [red]"\n[fixed]\ndataset = "iris"\nbatch_size = 20\nepochs = 0.2\ndelta = 1e-3\n'
        "unsafe_seed = 1\nattacks = []\n[grid]\nnoise_multiplier = [1.0, 2.0]\ninit_seed = [0]\n",
    )
    assert main(["sweep", str(grid), "--store", str(tmp_path / "s.sqlite"), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "[/x] {y} [red]" in shown
    assert "…" not in shown
    heading, first = shown.splitlines()[1:3]
    names = ["test", "epsilon", "standing", "accountant", "relation", "delta"]
    assert heading.split() == ["noise_multiplier", *names]
    assert "claimed" in first
    assert "pld" in first
    assert "unsafe: unsafe_seeded_stream" in shown
