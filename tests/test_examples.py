"""Every example runs, prints a result, stays short, and is listed in examples/README.md."""

import re
import runpy
import warnings
from pathlib import Path

import pytest

from tests.architectures.zoo import define_torchvision_operators

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
# Libraries of examples; the extra of the tests installs all but Ray, whose example takes a minute to start its cluster.
OPTIONAL = ("accelerate", "lightning", "ray", "transformers")
SLOW = ("ray_train",)


def marked(script):
    return pytest.param(script, id=script.stem, marks=[pytest.mark.slow] if script.stem in SLOW else [])


@pytest.mark.slow_cases
@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_example_runs_and_prints_a_result(script, tmp_path, monkeypatch, capsys):
    for library in OPTIONAL:
        if f"import {library}" in script.read_text(encoding="utf-8"):
            define_torchvision_operators()
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
        runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_is_short_and_says_what_it_shows(script):
    text = script.read_text(encoding="utf-8")
    assert 15 <= len(text.splitlines()) <= 60
    assert text.startswith('"""')


def test_the_list_of_examples_is_complete():
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.name for path in SCRIPTS]
    assert len(SCRIPTS) >= 10
