"""The console of docs/budget.md: the commands in their order, the lines on the budget as printed."""

import html
import re

import pytest

from tacit.cli import main
from tests.pages.commands import ROOT, blocks, page, typed

SAID = ("Budget survey:", "budget of", "Gaussian release", "  Left", "  Assumed", "Card:")


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
            if line.startswith(SAID):
                assert " ".join(line.split()) in said, (command, line)


def test_the_page_shows_a_picture_of_each_command_with_what_the_console_says():
    text = page("budget").read_text(encoding="utf-8")
    (console,) = blocks("console", pages=(page("budget"),))
    printed = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console.text, re.MULTILINE)
    shown = re.findall(r"!\[.+\]\((pictures/budget/\d+\.svg)\)", text)
    assert len(shown) == len(printed) == 6
    for path, (command, lines) in zip(shown, printed, strict=True):
        svg = (ROOT / "docs" / path).read_text(encoding="utf-8")
        assert "url(http" not in svg
        drawn = words(html.unescape(" ".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg))))
        assert words(command) in drawn
        for line in lines.splitlines():
            if line.startswith(SAID):
                assert words(line) in drawn, (command, line)


def words(text):
    """The text with single spaces, whatever kind they are."""
    return " ".join(text.split())
