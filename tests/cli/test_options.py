"""Options of the command line itself, and old names that are accepted for one version."""

import json
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
from tacit.errors import InvalidInput
from tacit.runs import read_config
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


@pytest.mark.slow
def test_an_old_flag_works_with_one_sentence_on_stderr(tmp_path):
    given = ["--max-physical-batch", "1000", "--epochs", "0.1", "--json", "--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "tacit", "train", "digits", *given], capture_output=True, text=True)
    assert done.returncode == 0
    sentence = "max_physical_batch is now called max_physical_batch_size; the old name goes with the next version."
    assert done.stderr == f"warning: {sentence}\n"
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["max_physical_batch_size"] == 1000


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [("max_physical_batch", "max_physical_batch_size", 64), ("twin_learning_rate", "nonprivate_learning_rate", 0.25)],
)
def test_an_old_key_of_a_configuration_works_with_a_warning(old, new, value, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f'dataset = "digits"\nepsilon = 1.0\n{old} = {value}\n')
    with pytest.warns(DeprecationWarning, match=f"{old} is now called {new}"):
        config = read_config(str(path), {})
    assert getattr(config, new) == value
    path.write_text(f"epsilon = 1.0\n{old} = {value}\n{new} = {value}\n")
    with pytest.raises(InvalidInput, match=f"{new} must be given once"):
        read_config(str(path), {})
