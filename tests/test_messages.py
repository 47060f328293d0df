"""Messages speak the language of who reads them: Python, the command line or the browser, and name the column."""

import re

import pytest

from tests.messages import BROWSER, PYTHON, TERMINAL, messages

IN_PYTHON = (
    r"=\[|=\(|=\.\.\.|=\{|unknown=|dates, such as|classes\.|DataFrame|to bounds, categories or dates|The nearest"
)
IN_FILES = r"\[table[.\]]|declare separator|third entry of dates|Check the spelling|The nearest|Leave it out"
ABOUT_A_COLUMN = ("column", "categor", "cell", "dates", "number is a text", "answer", "target", "class that")


@pytest.fixture(scope="module")
def told():
    return messages()


def test_there_are_thirty_of_them():
    assert len(PYTHON) + len(TERMINAL) + len(BROWSER) >= 30


@pytest.mark.parametrize("mistake", PYTHON)
def test_python_gets_a_remedy_in_python(told, mistake):
    message = told["Python"][mistake]
    assert re.search(IN_PYTHON, message)
    assert not re.search(r"--[a-z]|\[table|header = |first line", message)


@pytest.mark.parametrize("mistake", TERMINAL)
def test_the_command_line_gets_a_key_or_a_flag(told, mistake):
    message = told["terminal"][mistake]
    assert re.search(IN_FILES, message)
    assert "tacit.check" not in message
    assert "={" not in message


@pytest.mark.parametrize("mistake", BROWSER)
def test_a_field_of_the_browser_gets_a_rule_without_names_of_code(told, mistake):
    message = told["browser"][mistake]
    assert re.search(r" needs | must be ", message)
    assert not re.search(r"--[a-z]|\[table|=\[|_", message)


@pytest.mark.parametrize("caller", ["Python", "terminal", "browser"])
def test_the_column_is_named_and_no_cell_is_quoted(told, caller):
    for mistake, message in told[caller].items():
        if any(word in mistake for word in ABOUT_A_COLUMN) and mistake != "a column of persons":
            assert re.search(r"\b(age|ward|seen|born|member|ill|categories)\b", message), mistake
        assert not re.search(r"03\.01\.2020|seven|12\.03\.1960", message), mistake
        assert "'one column'" not in message
