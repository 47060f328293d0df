"""The commands of docs/claims.md run as printed, on the files that the page shows."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tacit.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "claims.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (spec,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    draw = np.random.default_rng(0)
    rows = "".join(f"{i % 2},{draw.normal(3 * (i % 2)):.5f}\n" for i in range(1000))
    for name, text in {
        "claim.json": spec,
        "own.py": code,
        "scores.csv": "member,score\n" + rows,
    }.items():
        Path(name).write_text(text)
    commands = [line.split()[1:] for line in re.findall(r"^tacit .*$", PAGE, re.MULTILINE)]
    assert len(commands) == 4
    found = {}
    for arguments in commands:
        if "--member" in arguments:
            Path("scores.csv").write_text("inside,loss\n" + rows)
        found[" ".join(arguments[:2])] = main(arguments)
    assert found == {"verify claim.json": 3, "audit --scores": 3, "verify --trainer": 0}
    assert "central limit theorem" in capsys.readouterr().out
    assert json.loads(spec)["claim"]["records"] == 25600


@pytest.mark.slow
def test_the_commands_of_the_page_on_the_workbench(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "workbench.md").read_text(encoding="utf-8")
    commands = [line.split()[1:] for line in re.findall(r"^tacit .*$", page, re.MULTILINE)]
    done = [main(arguments) for arguments in commands if arguments[0] != "serve"]
    assert len(done) == 8
    assert not any(done)
    assert Path("card.pdf").read_bytes().startswith(b"%PDF-")
    text = capsys.readouterr().out
    assert "## Four facts" in text
    assert "Its numbers are those of a run" in text
