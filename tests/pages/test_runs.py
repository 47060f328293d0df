"""The commands of docs/workbench.md and docs/audit.md run in their order, on runs of the digits."""

from pathlib import Path

import pytest

from tacit.cli import main
from tests.pages.commands import typed


@pytest.mark.slow
def test_the_commands_of_the_page_on_the_workbench(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    done = [main(command.split()[1:]) for command in typed("workbench")]
    assert len(done) == 8
    assert not any(done)
    assert Path("card.md").read_text().startswith("# ")
    text = capsys.readouterr().out
    assert "## Four facts" in text
    assert "Its numbers are those of a run" in text


@pytest.mark.slow
def test_the_commands_of_the_page_on_audits(tmp_path, monkeypatch, capsys):
    """Exit code 0: nothing of a correct run is refuted; the false alarm rate of an audit is 1e-3."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--epsilon", "2", "--epochs", "2", "--out", "RUN"]) == 0
    commands = typed("audit")
    assert len(commands) == 4
    for command in commands:
        assert main(command.split()[1:]) == 0, command
    assert Path("RUN/audit.html").exists()
