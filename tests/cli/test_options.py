"""Options of the command line itself, and old names that are accepted for one version."""

import json
import os
import subprocess
import sys

import pytest

from tacit import __version__
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.runs import read_config


def test_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tacit {__version__}\n"


def test_completion_is_a_shell_script():
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "tacit", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "complete" in done.stdout


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
