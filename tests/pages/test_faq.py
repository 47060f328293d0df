"""Every command of docs/explanation/faq.md runs, on the files that the page shows."""

import re
from pathlib import Path

import numpy as np
import pytest

from tacit.cli import main
from tests.pages.commands import blocks, page, typed

PAGE = page("explanation/faq").read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(command.removeprefix("tacit ") for command in typed("explanation/faq")))
REFUTED = "verify paper.json"
# Commands of more than a few seconds: a run, and the power function of groups.
LONG = ("train digits", "--records-per-user")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of the page, the trainer of the page on claims, and scores of an attack that finds nothing."""
    monkeypatch.chdir(tmp_path)
    for part in blocks("json", "python", pages=(page("explanation/faq"),)):
        if part.file:
            Path(part.file).write_text(part.text)
    (trainer,) = blocks("python", pages=(page("claims"),))
    Path("trainer.py").write_text(trainer.text)
    draw = np.random.default_rng(0)
    Path("scores.csv").write_text("member,score\n" + "".join(f"{i % 2},{draw.normal():.5f}\n" for i in range(400)))
    monkeypatch.syspath_prepend(tmp_path)


def test_the_page_has_25_questions_each_with_an_answer_that_runs():
    questions = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert len(questions) == 25
    for question in questions:
        assert "$ tacit " in question or "```python" in question, question.splitlines()[0]


def run(command):
    try:
        code = main(command.split())
    except SystemExit as end:
        code = end.code
    return code or 0


@pytest.mark.slow_cases
@pytest.mark.parametrize("command", [each for each in COMMANDS if not any(part in each for part in LONG)])
def test_a_command_of_the_page_ends_as_the_page_says(command, folder, capsys):
    assert run(command) == (3 if command == REFUTED else 0)
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("command", [each for each in COMMANDS if any(part in each for part in LONG)])
def test_a_longer_command_ends_as_the_page_says(command, folder, capsys):
    assert run(command) == 0
    assert ("claimed" in capsys.readouterr().out) == ("seed" in command)
