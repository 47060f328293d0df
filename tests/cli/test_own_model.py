"""A user's own module by name, from Python and by `tacit train --model`."""

import json
import shutil
import sys

import pytest
import torch

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.models import code_of, module_at
from tacit.signing import code_digest
from tests.runs.reissued import reissue

CODE = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 12), nn.Linear(12, 10)
    def forward(self, x):
        return self.head(self.body(x.flatten(1)).relu())

made = Net()
wide = lambda width: Net()
number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_network", raising=False)
    return tmp_path


def test_a_class_a_module_and_a_file_are_found(here):
    for where in ("own_network:Net", "own_network:made", "own_network.py:Net"):
        assert module_at(where)(torch.zeros(2, 64)).shape == (2, 10)
    assert code_of("own_network:Net")[-1] == (here / "own_network.py").resolve()
    assert str(here) not in sys.path


def test_a_module_is_copied(here):
    assert module_at("own_network:made").head.weight is not module_at("own_network:made").head.weight


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("own_network", "MODULE:CLASS must be"),
        ("no_network:Net", "importable"),
        ("own_network:Nett", "Did you mean 'Net'"),
        ("own_network:wide", "callable without arguments"),
        ("own_network:number", "callable without arguments"),
    ],
)
def test_what_is_no_module_is_refused(here, where, said):
    with pytest.raises(InvalidInput, match=said):
        module_at(where)


METHODS = [
    ["gradient"],
    pytest.param(["ticket", "--set", "ticket.mode=T2", "--set", "ticket.search_epochs=1"], marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_it_trains_and_is_audited(here, capsys, method):
    given = ["--model", "own_network:Net", "--epsilon", "8", "--epochs", "1", "--json", "--out", "run"]
    assert main(["train", "digits", "--method", *method, *given]) == 0
    assert "own_network:Net" in json.loads(capsys.readouterr().out)["model"]
    assert main(["audit", "run", "--json"]) == 0


@pytest.mark.slow
def test_a_run_does_not_bring_its_own_code(here, capsys):
    given = ["--model", "own_network:Net", "--epsilon", "8", "--epochs", "0.1", "--json", "--out", "run"]
    assert main(["train", "digits", *given]) == 0
    (here / "own_network.py").rename(here / "run" / "own_network.py")
    settings = (here / "run" / "config.json").read_text()
    (here / "run" / "config.json").write_text(settings.replace("own_network:Net", "run.own_network:Net"))
    assert main(["audit", "run"]) == 2
    assert "outside of the run's folder" in capsys.readouterr().err


MARKER = "from pathlib import Path; Path('ran').write_text('x')"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "digits", "--epsilon", "8", "--epochs", "0.1", "--json", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def received(here, trained, monkeypatch):
    """A run whose settings name modules that leave a file `ran` behind when they are imported."""
    shutil.copytree(trained, here / "run")
    for name in ("beside", "run/inside", "pack/__init__", "pack/inner", "run/sub/__init__", "run/sub/deep"):
        (here / f"{name}.py").parent.mkdir(exist_ok=True, parents=True)
        (here / f"{name}.py").write_text(MARKER + CODE)
    monkeypatch.syspath_prepend(str(here))
    return here / "run"


def name_model(run, where):
    settings = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(settings | {"model": where}))


@pytest.mark.slow_cases
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    "where", ["beside:Net", "run.inside:Net", "pack.inner:Net", "run.sub.deep:Net", "nowhere:Net", "os:abort"]
)
def test_nothing_that_a_received_run_names_is_imported(received, capsys, monkeypatch, where, signed):
    name_model(received, where)
    assert main(["audit", "run"]) == 3
    reissue(received)
    if signed:
        monkeypatch.setenv("TACIT_KEY", "the key of somebody else, long enough")
        reissue(received, signed=True)
        monkeypatch.delenv("TACIT_KEY")
    assert main(["audit", "run"]) == 2
    assert not (received.parent / "ran").exists()
    (received / "card.json").unlink()
    (received / "signature.json").unlink(missing_ok=True)
    assert main(["train", "--resume", "run"]) == 2
    assert not (received.parent / "ran").exists()
    assert "model must be" in capsys.readouterr().err


def test_trusted_code_is_shown_with_its_hash_and_runs(received, capsys):
    name_model(received, "beside:Net")
    reissue(received)
    assert main(["audit", "run", "--json"]) == 2
    told = capsys.readouterr().err
    digest = code_digest([(received.parent / "beside.py").resolve()])
    assert digest in told
    main(["audit", "run", "--json", "--trust-code"])
    assert digest in capsys.readouterr().err
    assert (received.parent / "ran").exists()


@pytest.mark.slow
def test_own_code_that_changed_since_the_run_needs_trust(here, capsys):
    given = ["--model", "own_network:Net", "--epsilon", "8", "--epochs", "0.1", "--json", "--out", "run"]
    assert main(["train", "digits", *given]) == 0
    (here / "own_network.py").write_text(CODE + "# changed")
    assert main(["audit", "run", "--json"]) == 2
    assert "--trust-code" in capsys.readouterr().err
    assert main(["audit", "run", "--json", "--trust-code"]) == 0


def test_a_model_without_parameters_is_refused(tmp_path, capsys):
    assert main(["train", "digits", "--model", "torch.nn:Identity", "--out", str(tmp_path)]) == 2
    assert "the model has no trainable parameter" in capsys.readouterr().err


def test_a_file_is_no_model_of_a_run(capsys):
    assert main(["train", "digits", "--model", "own_network.py:Net"]) == 2
    assert "model must be one of" in capsys.readouterr().err
