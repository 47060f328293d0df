"""The console of docs/budget.md: the commands in their order, the lines on the budget as printed."""

import re

import pytest

from tacit.cli import main
from tests.pages.commands import blocks, page, typed


@pytest.mark.slow
def test_the_console_of_the_page_says_what_the_program_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_BUDGET", raising=False)
    (console,) = blocks("console", pages=(page("budget"),))
    printed = dict(re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console.text, re.MULTILINE))
    assert list(printed) == typed("budget")
    for command, lines in printed.items():
        code = main(command.split()[1:])
        assert code == (2 if command.endswith("ben2") else 0), command
        shown = capsys.readouterr()
        said = " ".join((shown.out + shown.err).split())
        for line in lines.splitlines():
            if line.startswith(("Budget survey:", "budget of", "Gaussian release", "  Left", "  Assumed", "Card:")):
                assert " ".join(line.split()) in said, (command, line)
