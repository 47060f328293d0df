"""The base alone: the accountant and its commands where no package of an extra is installed."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tacit
from tacit.errors import _EXTRAS
from tacit.statement import AuthorKey, Subject, sealed, statement
from tacit.statement.keys import fingerprint

ROOT = Path(__file__).parents[1]
BLOCK = """
import importlib.abc, json, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
SPEC = {"type": "gaussian", "sample_rate": 0.01, "steps": 1000}


def base(code: str, *blocked: str) -> str:
    """What `code` prints in a process in which the packages of all extras, or `blocked`, cannot be imported."""
    packages = set(blocked) or {name for names in _EXTRAS.values() for name in names}
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", BLOCK % packages + code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(*arguments: str) -> str:
    return f"from tacit.cli import main\nprint('exit code', main({list(arguments)!r}))"


@pytest.fixture
def spec(tmp_path):
    def written(noise_multiplier):
        path = tmp_path / "spec.json"
        mechanism = SPEC | {"noise_multiplier": noise_multiplier}
        path.write_text(json.dumps({"relation": "add_remove", "mechanisms": [mechanism]}))
        return str(path)

    return written


def test_the_extras_of_the_error_sentence_are_those_of_the_project_file():
    names = {"sklearn": "scikit-learn", "flint": "python-flint"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, packages in _EXTRAS.items():
        declared = {requirement.partition(">=")[0] for requirement in extras[extra]}
        assert {names.get(package, package) for package in packages} == declared


def test_accounting_answers_two_hundred_rows_without_any_extra():
    rows = base(
        """
import tacit
pld = tacit.accountant("pld")
for k in range(1, 201):
    answer = pld(tacit.Gaussian(k / 20)).epsilon(1e-5)
    print(answer.lower, answer.upper, answer.standing.value)
"""
    ).splitlines()
    assert len(rows) == 200
    for row in rows:
        lower, upper, standing = row.split()
        assert 0 <= float(lower) <= float(upper) <= float(lower) * (1 + 1e-6)
        assert standing == "proven"


def test_a_statement_is_checked_without_any_extra_and_without_torch(tmp_path):
    key, path = AuthorKey.new(), tmp_path / "statement.json"
    ledger = tacit.Ledger.of(tacit.Gaussian(1.3).poisson(0.0042667) * 3516)
    path.write_bytes(sealed(statement(Subject("people"), ledger), key))
    told = base(
        command("check", str(path), "--key", fingerprint(key.public))
        + "\nimport time\nprint('torch' in sys.modules, time.process_time() < 3)"
    )
    assert "exit code 0\nFalse True" in told


def test_the_readme_s_five_lines_run_without_any_extra():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = page.partition("## Five lines")[2].partition("```python\n")[2].partition("```")[0]
    assert "proven" in base(lines)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["account", "SPEC", "--delta", "1e-5"], "proven"),
        (["account", "SPEC", "--claim", "1e3", "--delta", "1e-5"], "exit code 0"),
        (["account", "--records", "1000", "--batch-size", "100", "--epochs", "1", "--noise-multiplier", "1"], "banded"),
        (["verify", "SPEC", "--epsilon", "0.1", "--delta", "1e-5"], "exit code 3"),
    ],
)
def test_commands_of_the_accountant_run_without_any_extra(spec, arguments, expected):
    path = spec(1.0)
    assert expected in base(command(*[path if word == "SPEC" else word for word in arguments]))


def test_calibration_runs_without_any_extra(spec):
    assert "noise_multiplier" in base(command("calibrate", spec(None), "--epsilon", "2", "--delta", "1e-5"))


def test_filters_and_ledgers_run_without_any_extra(tmp_path):
    code = """
import tacit
ledger = tacit.Ledger()
ledger.add(tacit.Gaussian(2.0), 3)
ledger.save(%r)
print(tacit.accountant("pld")(tacit.Ledger.load(%r).mechanism).standing.value)
print(tacit.Filter("renyi", tacit.Epsilon(1.0, delta=1e-5), plan=tacit.Gaussian(20.0) * 10).admits(tacit.Gaussian(1.0)))
""" % ((str(tmp_path / "ledger.json"),) * 2)
    assert base(code).splitlines() == ["proven", "False"]


@pytest.mark.parametrize("arguments", [["train", "digits"], ["serve"], ["doctor", "torch.nn:Linear"]])
def test_a_command_that_lacks_an_extra_names_it_and_exits_with_2(arguments):
    code = f"""
import contextlib, io
errors = io.StringIO()
with contextlib.redirect_stderr(errors):
    {command(*arguments).replace(chr(10), chr(10) + "    ")}
print(errors.getvalue())
"""
    text = base(code)
    assert "exit code 2" in text
    assert "must be installed for this; it is not. Run pip install 'tacit[train]'." in text


def test_a_public_name_that_lacks_an_extra_names_it():
    code = """
import tacit
try:
    tacit.fit
except ImportError as error:
    print(type(error).__name__, error)
"""
    assert (
        base(code).strip()
        == "MissingExtra torch must be installed for this; it is not. Run pip install 'tacit[train]'."
    )


def test_the_help_needs_no_numpy():
    assert "Train privately" in base(command("--help"), "numpy", "scipy")


def loaded(code: str, *names: str) -> list[str]:
    """Which of the modules `names` a process holds after `code`."""
    report = f"\nimport sys\nprint('loaded', *[name for name in {names!r} if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


HEAVY = ("pandas", "scipy.stats", "scipy.signal", "sklearn", "matplotlib", "sqlalchemy", "jinja2", "pyarrow")


def test_an_account_loads_nothing_that_only_training_or_statistics_need():
    code = command("account", "--noise-multiplier", "1.3", "--sample-rate", "0.0042667", "--steps", "3516")
    assert loaded(code, "torch", "tacit.runs", "tacit.training", "scipy.optimize", *HEAVY) == []


def test_importing_the_package_loads_no_numbers():
    assert loaded("import tacit", "numpy", "scipy", "torch") == []


def test_a_gradient_run_loads_neither_tables_nor_statistics_nor_estimators():
    code = """
import torch
import tacit
torch.manual_seed(0)
x = torch.randn(64, 4)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
done = tacit.fit(
    model, x, (x[:, 0] > 0).long(), loss=loss, optimizer=optimizer, clip_norm=1.0, noise_multiplier=1.0,
    sample_rate=0.25, steps=3,
)
assert done.ledger.entries
"""
    assert loaded(code, "tacit.erm", "tacit.tickets", *HEAVY) == []


def processor_time(code: str) -> float:
    """Least seconds of three processes that run `code`."""
    timed = f"import time\nbegun = time.process_time()\n{code}\nprint(time.process_time() - begun)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, env=environment, check=True)
        for _ in range(3)
    ]
    return min(float(done.stdout.splitlines()[-1]) for done in runs)


def test_commands_keep_their_budget_of_processor_time():
    """In units of importing numpy and scipy.optimize, against busy machines: .03, .3 and 2.7 to 3.5 were measured."""
    unit = processor_time("import numpy, scipy.optimize")
    assert processor_time("import tacit") <= 0.15 * unit
    assert processor_time(command("--help")) <= 1.5 * unit
    account = command("account", "--noise-multiplier", "1.3", "--sample-rate", "0.0042667", "--steps", "3516")
    assert processor_time(account) <= 5 * unit
