"""Every example runs, prints a result, stays short, and is listed in examples/README.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs_and_prints_a_result(script, tmp_path):
    paths = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"PYTHONPATH": paths, "MPLBACKEND": "Agg"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_is_short_and_says_what_it_shows(script):
    text = script.read_text(encoding="utf-8")
    assert 15 <= len(text.splitlines()) <= 60
    assert text.startswith('"""')


def test_the_list_of_examples_is_complete():
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.name for path in SCRIPTS]
    assert len(SCRIPTS) >= 10
