"""`tacit runs`: list, show, compare, export and clean; what was spent is never removed."""

import json

import pytest

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.runs import config_from_table, train
from tacit.runs.folders import compared, export_run
from tacit.runs.open_run import open_run

SETTINGS = {
    "dataset": "iris",
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "epochs": 1,
    "batch_size": 40,
    "engine": "eager",
    "attacks": [],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train(config_from_table(SETTINGS), out=folder / "one")
    train(config_from_table(SETTINGS | {"noise_multiplier": 4.0}), out=folder / "two")
    for name, files in {"begun": (), "stopped": ("ledger.json",), "odd": ("card.json",)}.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text("{}")
        for file in files:
            (folder / name / file).write_text("[]")
    (folder / "other").mkdir()
    (folder / "link").symlink_to(folder / "one")
    return folder


def test_the_list_has_every_run_with_its_state_and_best_guarantee(home, capsys):
    assert main(["runs", "list", str(home), "--json"]) == 0
    rows = {row["run"]: row for row in json.loads(capsys.readouterr().out)["runs"]}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {"begun": "begun", "odd": "unreadable", "one": "finished", "stopped": "stopped", "two": "finished"}
    assert rows["two"]["epsilon"] < rows["one"]["epsilon"]
    assert rows["one"]["standing"] == "proven"


@pytest.mark.slow_cases
@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_no_cell_is_cut_on_any_screen(width, home, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    for command in (
        ["list", str(home)],
        ["show", str(home / "one")],
        ["compare", str(home / "one"), str(home / "two")],
    ):
        assert main(["runs", *command]) == 0
    assert main(["account", "--noise-multiplier", "1", "--steps", "3", "--sample-rate", "0.1"]) == 0
    assert "…" not in capsys.readouterr().out


def test_a_comparison_has_the_settings_that_differ(home, capsys):
    assert main(["runs", "compare", str(home / "one"), str(home / "two"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["settings"] for row in rows] == [{"noise_multiplier": 1.0}, {"noise_multiplier": 4.0}]
    with pytest.raises(InvalidInput, match="RUN must be a finished run"):
        compared([open_run(home / "one"), open_run(home / "stopped")])
    with pytest.raises(InvalidInput, match="RUNS must be two at least"):
        compared([open_run(home / "one")])


def test_an_export_keeps_the_signature_and_the_preprocessing(home, tmp_path, capsys):
    assert main(["runs", "export", str(home / "one"), "--out", str(tmp_path / "x")]) == 0
    assert (tmp_path / "x" / "preprocessing.json").read_bytes() == (home / "one" / "preprocessing.json").read_bytes()
    assert (tmp_path / "x" / "signature.json").exists()
    assert main(["runs", "export", str(home / "one"), "--out", str(tmp_path / "x")]) == 2
    assert "out must be a folder that is not there yet" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="RUN must be a finished run"):
        export_run(open_run(home / "stopped"), tmp_path / "y")


def test_only_a_run_that_released_nothing_is_cleaned(home, capsys):
    assert main(["runs", "clean", str(home)]) == 0
    assert (home / "begun").exists()
    assert main(["runs", "clean", str(home), "--yes"]) == 0
    assert not (home / "begun").exists()
    assert all((home / name).exists() for name in ("one", "two", "stopped", "odd", "other"))
    assert main(["runs", "clean", str(home), "--yes"]) == 0
    assert "Nothing to remove" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["list"], ["show"], ["export", "--out", "x"]])
def test_a_folder_without_a_run_gets_a_sentence(command, tmp_path, capsys):
    assert main(["runs", command[0], str(tmp_path / "absent"), *command[1:]]) == 2
    assert "must be" in capsys.readouterr().err


def test_a_plot_of_another_ending_is_refused_before_the_computation(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tacit.accounting.account", lambda *args, **settings: pytest.fail("computed"))
    out = tmp_path / "a.svgg"
    assert main(["account", "--noise-multiplier", "1", "--steps", "3", "--sample-rate", ".1", "--plot", str(out)]) == 2
    assert "Did you mean '.svg'?" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(capsys, monkeypatch):
    def stopped(*args, **settings):
        raise KeyboardInterrupt("Go on with: tacit train --resume runs/a")

    monkeypatch.setattr("tacit.runs.train", stopped, raising=False)
    assert main(["train", "digits"]) == 1
    assert capsys.readouterr().err == "interrupted. Go on with: tacit train --resume runs/a\n"


def test_help_states_the_defaults_of_settings(capsys):
    assert main(["train", "--help"]) == 0
    assert "[default: 0.5]" in capsys.readouterr().out
