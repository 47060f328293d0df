"""Options of the command line itself, and old names that are accepted for one version."""

import os
import re
import subprocess
import sys
from dataclasses import fields

import pytest
import typer

from tacit import __version__
from tacit.cli import app, main
from tacit.cli.flags import GROUPS
from tacit.runs.config import SECTIONS, Config


def test_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tacit {__version__}\n"


def test_completion_is_a_shell_script():
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "tacit", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "complete" in done.stdout


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tacit tr", ["train"]),
        ("tacit train dig", ["digits"]),
        ("tacit train digits --noise-mu", ["--noise-multiplier"]),
        ("tacit account --accountant pl", ["pld"]),
        ("tacit budget his", ["history"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(words, expected):
    given = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    script = "from tacit.cli import app; app(prog_name='tacit')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | given)
    assert done.stdout.split() == expected


def commands(group=None, path=()):
    """Every command with the words that call it."""
    found = typer.main.get_command(app) if group is None else group
    for name in found.commands:
        command = found.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_the_help_lists_each_command_under_one_group(capsys):
    main(["--help"])
    text = capsys.readouterr().out
    for group in ("Train:", "Account:", "Use a run:", "Data and papers:"):
        assert group in text
    names = {path[0] for path, _ in commands()}
    assert all(len(re.findall(rf"^  {name}  ", text, re.MULTILINE)) == 1 for name in names)


@pytest.mark.slow
def test_every_option_of_every_command_has_a_sentence_and_its_default(capsys):
    for path, command in commands():
        assert main([*path, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        for option in command.params:
            if option.param_type_name != "option" or option.hidden or option.name == "help":
                continue
            assert option.help, (path, option.name)
            assert option.opts[0] in text
            if option.default not in (None, "", False) and not option.is_flag:
                assert f"[default: {option.default}]" in text, (path, option.name)


def test_the_help_of_train_states_the_default_of_each_setting_under_its_group(capsys):
    main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for section, kind in [(None, Config), *SECTIONS.items()]:
        for each in (each for each in fields(kind) if "help" in each.metadata):
            group = GROUPS[section] if section else each.metadata["group"]
            told = text[text.index(f" {group}: ") :]
            told = told[told.index(each.metadata["help"].rstrip(".")) :].split(" --")[0]
            default = each.default
            shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
            shown = {True: "yes", False: "no"}.get(shown, shown) if isinstance(default, bool) else shown
            assert default in (None, "") or f"[default: {shown}]" in told, each.name
