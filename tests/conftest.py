"""One thread for each worker: two workers that both spread over all cores would only wait for each other.

Where the original files lie: TACIT_DATA, else `../shared/data` beside the checkout. The signing key of the tests is one
of their own, away from the user's, and so is the cache of compiled graphs.
"""

import ctypes
import gc
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CellType

import pytest

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
_CONFIGURATION = tempfile.TemporaryDirectory(prefix="tacit-tests-")
os.environ["XDG_CONFIG_HOME"] = _CONFIGURATION.name
# Workers inherit the folder, so that each graph is compiled once.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{_CONFIGURATION.name}/inductor")
# What imports and collection make lives on: scans for garbage would take seconds and find none.
_THRESHOLDS = gc.get_threshold()
gc.set_threshold(100_000, 50, 100)


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: while a test waits for a process or a server, another one runs."""
    return (os.cpu_count() or 1) + 1


def pytest_collection(session: pytest.Session) -> None:
    """Import the test files last to first in every second worker: one compiles what the other one will read."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if int(worker.removeprefix("gw")) % 2 and session.config.args == session.config.getini("testpaths"):
        for path in sorted(Path(__file__).parent.rglob("test_*.py"), reverse=True):
            # What fails or is skipped here does so again where it is told.
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases slow (those that `slow_cases` names, without names all but the first), and tests of original files."""
    seen = set()
    for item in items:
        if "original_files" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.original_data)
        if marker := item.get_closest_marker("slow_cases"):
            function, _, case = item.nodeid.partition("[")
            if case[:-1] in marker.args if marker.args else function in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(function)


def pytest_collection_finish() -> None:
    """Take 850,000 objects of imports and cases out of the library's scans of the heap, each of which takes .1 s.

    Tensors, networks and what holds a tensor, for which the library scans, stay in sight.
    """
    gc.set_threshold(*_THRESHOLDS)
    if "torch" not in sys.modules:
        return
    import torch

    gc.collect()
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor | torch.nn.Module)]
    holders = gc.get_referrers(*(each for each in found if isinstance(each, torch.Tensor)))
    found += [each for each in holders if isinstance(each, CellType | dict | list | tuple | set) and each is not found]
    gc.freeze()
    for change in (ctypes.pythonapi.PyObject_GC_UnTrack, ctypes.pythonapi.PyObject_GC_Track):
        change.argtypes, change.restype = [ctypes.py_object], None
    for each in {id(each): each for each in found}.values():
        ctypes.pythonapi.PyObject_GC_UnTrack(each)
        ctypes.pythonapi.PyObject_GC_Track(each)


@pytest.fixture(autouse=True, scope="session")
def short_runs():
    """Runs without what slow runs leave out, canaries and a broken copy, and without a verdict of ball arithmetic.

    Patches of features are learned from a tenth of the drawings.

    `test_default_evidence.py` has all three as they come.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.runs.default_evidence._CANARIES", 200)
        patch.setattr("tacit.runs.default_evidence._SECONDS", 0.0)
        patch.setattr("tacit.runs.default_evidence._COPY_SECONDS", 0.0)
        patch.setattr("tacit.audit.evidence.SIMULATED", 2)
        patch.setattr("tacit.runs.run.find_spec", lambda name: None)
        patch.setattr("tacit.features.patches._DRAWINGS", 400)
        patch.setattr("tacit.features.patches._SAMPLED", 20_000)
        yield


@pytest.fixture(autouse=True, scope="module")
def rough_profiles(request: pytest.FixtureRequest):
    """Curves drawn from two questions instead of eight where runs and pages are tested and no accountant is.

    All bounds still hold, and what is asked at one point is as exact as ever.
    """
    room = request.path.relative_to(Path(__file__).parent).parts[0]
    if room not in ("reports", "runs"):
        yield
        return
    from tacit.accounting.pld.accountant import curves_of

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.accounting.pld.dispatch._PROFILE_DELTAS", (1e-3, 1e-8))
        yield
    curves_of.cache_clear()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the original files, whether or not it is there."""
    return Path(os.environ.get("TACIT_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(scope="session")
def original_files(data_dir: Path) -> Path:
    """The folder of the original files; without it the test is skipped, or fails where TACIT_DATA names it."""
    if not data_dir.is_dir():
        assert "TACIT_DATA" not in os.environ, f"TACIT_DATA must name a folder of the original files; got {data_dir}"
        pytest.skip(f"no original data files: {data_dir} does not exist; set TACIT_DATA to a folder that has them")
    return data_dir


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window; the test is skipped without playwright or Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()
