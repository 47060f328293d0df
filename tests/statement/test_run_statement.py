"""The statement of a run: written whole, checked by others, numbered."""

import json

import pytest

from tacit.cli import main
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
