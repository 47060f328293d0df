"""Options of the command line itself, and settings by flag or by `--set`."""

import os
import re
import subprocess
import sys

import pytest
import typer

from tacit import __version__
from tacit.cli import app, main
from tacit.cli.train import settings_of, with_set
from tacit.runs.config import SECTIONS, Config
from tacit.runs.settings import GradientSettings


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


def test_the_help_of_train_fits_on_two_screens(capsys):
    main(["train", "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 80
    assert len(set(re.findall(r"^ +--([a-z-]+)", text, re.MULTILINE)) - {"help"}) <= 30


def test_settings_are_listed_with_section_default_and_sentence(capsys):
    assert main(["train", "--settings"]) == 0
    parts = re.split(r"\n\n\[(\w+)\]\n", "\n\n[top]\n" + capsys.readouterr().out + "\n")
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    for section, kind in [("top", Config), *SECTIONS.items()]:
        assert settings_of(kind) or kind is GradientSettings
        for each, text in settings_of(kind):
            default = each.default
            shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
            shown = {True: "yes", False: "no"}.get(shown, shown) if isinstance(default, bool) else shown
            stated = f"{each.name}" if default in (None, "") else f"{each.name} [default: {shown}]"
            assert f"{stated}\n    {text}\n" in told[section] + "\n", (section, each.name)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["clip"], "set must be KEY=VALUE, such as clip.type=adaptive"),
        (["clip.typ=flat"], "Did you mean 'type'"),
        (["clp.type=flat"], "Did you mean 'clip'"),
        (["clip=3"], "clip must be a [clip] section"),
        (["clip=3", "clip.type=flat"], "clip.type must be given once"),
        (["epochs=1", "epochs=2"], "epochs must be given once"),
        (["epochs=1", "epochs.end=2"], "epochs.end must be given once"),
        (["sampling=poisson", "sampling.type=shuffled"], "sampling.type must be given once"),
        (["epochs=fast"], "epochs must be"),
        (["=3"], "key of the overrides must be one of"),
        (["strict=1"], "strict must be true or false"),
        (["hidden=3"], "hidden must be a list"),
        (["a.b.c=3"], "key of the overrides must be one of"),
        (["epochs=1\nunsafe_seed=3"], "epochs must be"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_set_cannot_mean_is_refused(given, sentence, capsys, tmp_path):
    texts = [text for each in given for text in ("--set", each)]
    assert main(["train", "digits", "--out", str(tmp_path / "run"), *texts]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_flag_and_set_may_not_say_the_same(capsys):
    assert main(["train", "digits", "--epochs", "3", "--set", "epochs=4"]) == 2
    assert "epochs must be given once" in capsys.readouterr().err
    assert main(["train", "digits", "--noise", "tree", "--set", "noise.correlation=tree"]) == 2
    assert "noise.correlation must be given once" in capsys.readouterr().err


def test_the_text_of_a_setting_stays_text():
    texts = ["sampling.users=3", "vi.samples=3", 'dataset="a = b"', "ticket.densities=[0.5, 0.1]", "ticket.folder=a=b"]
    assert with_set({}, texts) == {
        "sampling": {"users": "3"},
        "vi": {"samples": 3},
        "dataset": "a = b",
        "ticket": {"densities": [0.5, 0.1], "folder": "a=b"},
    }
