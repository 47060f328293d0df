"""Every command on every page names what exists; it is run here or by the test of its page, or not for a reason."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from tacit.cli import app, main
from tests.pages.commands import FAMILIES, PAGES, PROGRAMS, ROOT, blocks, commands, page, parts, typed

COMMANDS = commands()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
# Pages whose commands stand on each other or on files: the test that runs all of their blocks, by `typed(page)`.
OWNED = {
    "audit": "test_runs.py",
    "budget": "test_budget.py",
    "claims": "test_claims.py",
    "explanation/faq": "test_faq.py",
    "tables": "test_tables.py",
    "workbench": "test_runs.py",
}
# The other commands, each run by itself, in seconds.
QUICK = (
    "tacit account --noise-multiplier 1.3 --sample-rate 0.0042667 --steps 3516",
    "tacit account --noise-multiplier 1.3 --sample-rate 0.0042667 --steps 3516 --check --json",
    "tacit account --noise-multiplier 1 --records 60000 --batch-size 600 --epochs 2 --bands 8",
    "tacit doctor package.module:Model --input-shape 3,32,32",
    "tacit doctor models.py:text_model --input-shape 256 --vocabulary 10000 --fix",
    "tacit reproduce improved-accounting/table-1 --quick",
    "tacit reproduce input-perturbation/counter-examples",
    "tacit reproduce lottery-ticket/choice",
    "tacit plan --parameters 26010 --records 60000 --epsilon 3 --delta 1e-5",
    "tacit reproduce",
    "tacit train --help",
    "python -m benchmarks.compare show",
    "python -m benchmarks.mutants --table",
    "python benchmarks/tuning.py show",
)
LONGER = (
    "tacit account docs/pictures/mnist.json --plot account.svg",
    "tacit train digits --epsilon 2",
    "tacit train digits --noise banded:4 --sampling cyclic_poisson",
    "tacit sweep noise.toml",
    "torchrun --nproc-per-node 2 examples/distributed_loop.py",
    "python docs/pictures/explain_accountant.py",
)
# On the original data files.
ON_DATA = (
    "tacit reproduce gaussian-dp/table-1 --data-dir DATA",
    "tacit train adult --data-dir ../shared/data --method vi --epsilon 1 --epochs 10 --batch-size 163 --clip-norm 1",
)
MODELS = """
from torch import nn

def text_model():
    return nn.Sequential(nn.Embedding(10000, 4), nn.Flatten(), nn.Linear(4 * 256, 2))

def Model():
    return nn.Sequential(nn.Conv2d(3, 2, 5, stride=5), nn.Flatten(), nn.Linear(2 * 36, 2))
"""


def is_run(command):
    on_its_page = {text for name in OWNED for text in typed(name)}
    return command.text in on_its_page | {*QUICK, *LONGER, *ON_DATA}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the commands of the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(ROOT / "docs" / "pictures", "docs/pictures")
    Path("package").mkdir()
    for name in ("models.py", "package/module.py"):
        Path(name).write_text(MODELS)
    (grid,) = blocks("toml", pages=(page("reproduce"),))
    Path("noise.toml").write_text(grid.text)
    return tmp_path


def executed(text):
    """The exit code of a command; its scripts are those of the checkout, where the folder has none."""
    program, *given = shlex.split(text)
    if program == "tacit":
        return main(given)
    if program == "torchrun":
        given[-1] = str(ROOT / given[-1])
        return subprocess.run([sys.executable, "-m", "torch.distributed.run", *given]).returncode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", given[1:] if given[0] == "-m" else given)
        patch.syspath_prepend(str(ROOT))
        try:
            if given[0] == "-m":
                runpy.run_module(given[1], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(given[0] if Path(given[0]).exists() else str(ROOT / given[0]), run_name="__main__")
        except SystemExit as end:
            return end.code or 0
    return 0


@pytest.mark.parametrize("text", QUICK)
def test_a_command_runs(text, folder, capsys):
    assert executed(text) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("text", LONGER)
def test_a_longer_command_runs(text, folder):
    assert executed(text) == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", ON_DATA)
def test_a_command_on_the_original_data_runs(text, folder, original_files):
    assert executed(re.sub(r"DATA\b|\.\./shared/data", str(original_files.resolve()), text)) == 0


def test_every_command_is_run_or_is_a_form_or_says_why_not():
    left = [
        (command.page, command.text)
        for command in COMMANDS
        if not (command.is_form or command.reason or is_run(command))
    ]
    assert not left


def test_the_test_of_a_page_takes_its_commands_from_the_page():
    for name, test in OWNED.items():
        assert f'typed("{name}")' in (Path(__file__).parent / test).read_text(encoding="utf-8"), name


def test_no_command_listed_here_has_left_the_pages():
    shown = {command.text for command in COMMANDS}
    assert not {*QUICK, *LONGER, *ON_DATA} - shown
    assert all(any(re.match(family, text) for text in shown) for family in FAMILIES)


def test_a_reason_stands_before_what_could_be_run():
    marked = [part for each in PAGES for part in parts(each) if part.reason]
    assert marked
    for part in marked:
        assert part.language in ("sh", "console", "python"), part


def test_no_command_stands_in_a_block_without_a_fence():
    for part in (part for each in PAGES for part in parts(each) if part.language is None):
        assert not re.search(rf"^ {{4,}}(\$ )?({'|'.join(PROGRAMS)}) ", part.text, re.MULTILINE), part


def test_every_fence_names_its_language():
    known = {None, "python", "sh", "console", "json", "toml", "csv", "text"}
    assert {part.language for each in PAGES for part in parts(each)} <= known


def test_every_configuration_and_every_spec_on_a_page_is_read(tmp_path):
    from tacit.mechanisms.spec import read_spec
    from tacit.runs import read_config
    from tacit.sweeps.grid import read_grid

    for number, part in enumerate(blocks("json", "toml")):
        file = tmp_path / f"{number}.{part.language}"
        file.write_text(part.text)
        if part.language == "json":
            assert read_spec(file)["mechanisms"]
        elif "[grid]" in part.text:
            assert len(read_grid(file).tasks) == 6
        else:
            config = read_config(str(file), {})
            assert (config.table is not None) == ("[table]" in part.text)


def named(words):
    """The command of the program that the words name, and the words behind it."""
    found = typer.main.get_command(app)
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        found, words = found.get_command(typer.Context(found), words[0]), words[1:]
    return found, words


@pytest.mark.parametrize("line", dict.fromkeys(line for each in COMMANDS for line in each.text.split(" && ")))
def test_a_command_names_what_exists(line):
    program, *words = line.split()
    if program == "tacit":
        found, left = named(words)
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.strip("[]").split("=")[0] for word in left if word.strip("[").startswith("--")}
        assert given <= options | {"--help"}
    for script in re.findall(r"(?<![-\w/])(?:benchmarks|docs|examples|tests)/[\w/.]*", line):
        assert (ROOT / script).exists()
    for module in re.findall(r"-m ((?:benchmarks|tacit)[\w.]*)", line):
        path = re.sub("^tacit", "src/tacit", module.replace(".", "/"))
        assert (ROOT / f"{path}.py").exists() or (ROOT / path / "__main__.py").exists()
    for extras in re.findall(r"pip install .*\[(.*?)\]", line):
        assert set(extras.split(",")) <= set(EXTRAS)
