"""The statement of a run: written whole, checked by others, numbered."""

import json

import pytest

from tacit.cli import main
from tacit.runs import read_config, train
from tacit.statement import check_statement, open_envelope
from tests.runs.test_one_gate import honest, run  # noqa: F401


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A configuration folder in which the author's key is made."""
    monkeypatch.setattr("tacit.statement.keys.configuration_folder", lambda: tmp_path / "home")


def test_a_run_states_itself_and_others_check_it(run, home, capsys):  # noqa: F811
    for sequence in (1, 2):
        assert main(["statement", str(run), "--owner", "Statistics office", "--delta", "1e-6"]) == 0
        payload, findings = check_statement((run / "statement.json").read_bytes(), model=run / "model.safetensors")
        assert {finding.verdict.words for finding in findings} == {"valid"}
        assert payload["subject"]["sequence"] == sequence
    assert next(row["delta"] for row in payload["guarantee"]["at"]) == 1e-6
    card = json.loads((run / "card.json").read_text())
    best = min(row["epsilon"] for row in card["guarantees"] if row["standing"] == payload["guarantee"]["standing"])
    assert payload["guarantee"]["at"][-1]["epsilon"] == pytest.approx(best, rel=1e-6)
    assert main(["check", str(run / "statement.json")]) == 0
    assert main(["card", str(run)]) == 0  # The run is still whole beside it.


def test_a_run_with_a_statement_section_is_stated_at_its_end(home, tmp_path, capsys):
    config = tmp_path / "clinic.toml"
    config.write_text(
        'dataset = "iris"\nmethod = "objective"\nmodel = "linear"\nepsilon = 2.0\ndelta = 1e-3\nbatch_size = 8\n'
        '[statement]\nowner = "Clinic"\nfacts = ["150 flowers"]\nversion = "1936"\n'
    )
    out = tmp_path / "run"
    assert main(["train", str(config), "--out", str(out), "--set", "statement.purpose=teaching"]) == 0
    assert f"statement: {out / 'statement.json'}" in " ".join(capsys.readouterr().out.split())
    payload = open_envelope((out / "statement.json").read_bytes()).payload
    stated = {name: payload["subject"][name] for name in ("dataset", "owner", "facts", "version", "purpose")}
    assert stated == {
        "dataset": "iris",
        "owner": "Clinic",
        "facts": ["150 flowers"],
        "version": "1936",
        "purpose": "teaching",
    }
    assert payload["evidence"]["audits"]
    assert "<dd>Clinic</dd>" in (out / "card.html").read_text()
    assert main(["check", str(out / "statement.json"), "--model", str(out / "model.safetensors")]) == 0
    assert main(["statement", str(out), "--owner", "Ward"]) == 0
    again = open_envelope((out / "statement.json").read_bytes()).payload["subject"]
    assert (again["sequence"], again["owner"], again["purpose"]) == (2, "Ward", "teaching")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("owner=a\u202eb", "control characters"),
        ("date=yesterday", "YYYY-MM-DD"),
        ("facts=true", "list"),
        ("ownr=A", "owner"),
    ],
)
def test_a_section_that_no_statement_can_hold_is_refused_before_training(given, said, home, tmp_path, capsys):
    assert main(["train", "digits", "--out", str(tmp_path / "run"), "--set", f"statement.{given}"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_a_run_is_finished_where_its_statement_cannot_be_written(home, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("a file where the folder of keys should be")
    config = read_config("digits", {"epochs": 0.5, "attacks": (), "statement": {"owner": "Clinic"}})
    with pytest.warns(RuntimeWarning, match="no statement was written"):
        run = train(config, out=tmp_path / "run")
    assert (run.folder / "card.html").is_file()
    assert not (run.folder / "statement.json").exists()


def test_a_run_of_somebody_else_gets_no_statement_of_mine(run, home, capsys):  # noqa: F811
    (run / "signature.json").unlink()
    assert main(["statement", str(run)]) == 2
    assert "Its author writes its statement" in " ".join(capsys.readouterr().err.split())
    assert not (run / "statement.json").exists()


def test_a_statement_of_somebody_else_gives_no_number(run, home, capsys):  # noqa: F811
    (run / "statement.json").write_text("{}")
    assert main(["statement", str(run)]) == 3
    assert "statement.json" in capsys.readouterr().err
    (run / "statement.json").unlink()
    assert main(["statement", str(run)]) == 0
    assert open_envelope((run / "statement.json").read_bytes()).payload["subject"]["sequence"] == 1
