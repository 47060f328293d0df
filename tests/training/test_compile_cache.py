"""A compilation that was killed does not stop later ones, and its folder is the library's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tacit.training.compile import compiled_in_own_folder

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def compiler(broken, error):
    """Compiles in every folder but those in `broken`, and lists the folders."""
    folders = []

    def compile_graph():
        folders.append(os.environ[VARIABLE])
        if any(folders[-1].endswith(name) for name in broken):
            raise error(f"{folders[-1]}/c.so")
        return len(folders)

    return compile_graph, folders


def too_short(path):
    return ImportError(f"{path}: file too short")


def wrapped(path):
    error = RuntimeError(f"InductorError: OSError: {path}: cannot read file data")
    error.__context__ = OSError(f"{path}: cannot read file data")
    return error


def other(path):
    return ValueError("no such operation")


def other_library(path):
    return ImportError("libgomp.so: cannot open shared object file")


@pytest.mark.parametrize("error", [too_short, wrapped])
def test_a_damaged_folder_is_left_for_a_new_one_also_by_later_runs(base, error):
    compile_graph, folders = compiler(["/0"], error)
    assert compiled_in_own_folder(compile_graph) == 2
    assert folders[0].endswith("/0")
    assert folders[1].endswith("/1")
    assert compiled_in_own_folder(compile_graph) == 3
    assert folders[2] == folders[1]
    assert os.environ[VARIABLE] == str(base)


def test_the_folder_belongs_to_the_version(base):
    compile_graph, folders = compiler([], None)
    compiled_in_own_folder(compile_graph)
    assert folders[0].startswith(str(base))
    assert tacit.__version__ in folders[0]


@pytest.mark.parametrize("error", [other, other_library])
def test_other_errors_are_raised_at_once(base, error):
    compile_graph, folders = compiler(["/0", "/1"], error)
    with pytest.raises((ValueError, ImportError), match=r"no such operation|libgomp"):
        compiled_in_own_folder(compile_graph)
    assert len(folders) == 1
    assert os.environ[VARIABLE] == str(base)


def test_a_second_damaged_folder_is_not_tried_for_ever(base):
    compile_graph, folders = compiler(["/0", "/1"], too_short)
    with pytest.raises(ImportError, match="file too short"):
        compiled_in_own_folder(compile_graph)
    assert len(folders) == 2
    assert compiled_in_own_folder(lambda: os.environ[VARIABLE]).endswith("/2")


def test_compiled_graphs_lie_in_a_folder_of_the_user_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = Path(compiled_in_own_folder(lambda: os.environ["TORCHINDUCTOR_CACHE_DIR"]))
    assert tmp_path in folder.parents
    assert folder.stat().st_mode & 0o077 == 0


# Without vectors, for which torch builds ten libraries to ask the processor.
_STEP = """
import torch
import torch._inductor.config
torch._inductor.config.cpp.vec_isa_ok = False
from torch.nn.functional import cross_entropy
from tacit.training import private_step
model = torch.nn.Linear(3, 2)
loss = lambda outputs, targets: cross_entropy(outputs, targets, reduction="none")
step = private_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, clip_norm=1.0, noise_multiplier=1.0,
                    expected_batch_size=8, engine="compiled")
step(torch.randn(8, 3), torch.zeros(8, dtype=torch.long))
"""


def test_nothing_that_is_executed_lies_in_the_shared_temporary_folder(tmp_path):
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    given = {"TMPDIR": str(shared), "XDG_CACHE_HOME": str(own), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    subprocess.run([sys.executable, "-c", _STEP], env=kept | given, check=True)
    assert [
        file for file in shared.rglob("*") if file.is_file() and file.suffix in (".so", ".h", ".pch", ".gch", ".py")
    ] == []
    assert list(own.rglob("*.so"))
