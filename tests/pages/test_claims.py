"""The commands of docs/claims.md run as printed, on the files that the page shows."""

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.cli import main
from tests.pages.commands import blocks, page, typed


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec, code = (part.text for part in blocks("json", "python", pages=(page("claims"),)))
    draw = np.random.default_rng(0)
    rows = "".join(f"{i % 2},{draw.normal(3 * (i % 2)):.5f}\n" for i in range(1000))
    for name, text in {
        "claim.json": spec,
        "own.py": code,
        "scores.csv": "member,score\n" + rows,
    }.items():
        Path(name).write_text(text)
    commands = [command.split()[1:] for command in typed("claims")]
    assert len(commands) == 4
    found = {}
    for arguments in commands:
        if "--member" in arguments:
            Path("scores.csv").write_text("inside,loss\n" + rows)
        found[" ".join(arguments[:2])] = main(arguments)
    assert found == {"verify claim.json": 3, "audit --scores": 3, "verify --trainer": 0}
    assert "central limit theorem" in capsys.readouterr().out
    assert json.loads(spec)["claim"]["records"] == 25600
