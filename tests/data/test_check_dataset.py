"""What every registered data set must satisfy; a new one is covered by being registered."""

import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

from tacit import data
from tacit.data.published import source
from tacit.errors import InvalidInput, LeakWarning, MissingData

WITH_FILES = [name for name in data.names() if source(name).files]
CODES = {"imdb", "imdb_words", "movielens", "movielens_1m"}
# Texts and clusters take more than five seconds.
SLOW = {"imdb", "imdb_words", "purchase_standin"}
EVERY = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in data.names()]
BUNDLED = [name for name in data.names() if not source(name).files]


def check_dataset(dataset: data.Dataset, facts: dict) -> None:
    """Shapes, types and declared facts of `dataset` against `describe`."""
    assert {"train": len(dataset.x_train), "test": len(dataset.x_test)} == facts["rows"]
    assert list(dataset.classes) == facts["classes"]
    assert list(dataset.leaks) == facts["leaks"]
    low, high = dataset.bounds
    for x, y in ((dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test)):
        assert x.dtype == (np.int64 if dataset.name in CODES else np.float32)
        assert list(x.shape[1:]) == facts["features"]
        assert x.flags.c_contiguous
        assert np.isfinite(x).all()
        assert (x >= low).all()
        assert (x <= high).all()
        assert y.shape == (len(x),)
        check_answers(dataset, y)
    if dataset.feature_names is not None:
        assert len(set(dataset.feature_names)) == dataset.x_train.shape[1]
    for kind in ("source: ", "licence: ", "preprocessing: ", "split: "):
        assert sum(note.startswith(kind) for note in dataset.notes) == 1, kind
    assert dataset.public_facts[0] == (
        f"number of rows: {facts['rows']['train']} for training, {facts['rows']['test']} for testing"
    )
    answers = "target_range" if facts["task"] == "regression" else "classes"
    assert {answers, "bounds"} <= set(dataset.public_facts)
    assert dataset.task == facts["task"]


def check_answers(dataset: data.Dataset, y: np.ndarray) -> None:
    """Every declared class occurs, or every value lies in the declared range."""
    if dataset.task == "regression":
        low, high = dataset.target_range
        assert y.dtype == np.float32
        assert ((y >= low) & (y <= high)).all()
        assert dataset.classes == ()
    else:
        assert y.dtype == np.int64
        assert set(np.unique(y)) == set(range(len(dataset.classes)))


def digest(dataset: data.Dataset) -> tuple:
    return tuple(array.tobytes() for array in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test))


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_data_set(name, obtain, data_dir):
    dataset = obtain(name)
    facts = data.describe(name, data_dir=data_dir)
    check_dataset(dataset, facts)
    assert dataset.name in (name, f"{name}_test")


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_data_need_no_folder(name, tmp_path):
    assert digest(data.load(name, data_dir=tmp_path / "nowhere")) == digest(data.load(name))
    assert data.describe(name)["files"] == []
    assert data.download(name) == ()


@pytest.mark.parametrize("name", WITH_FILES)
def test_missing_files_are_named(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        with pytest.raises(MissingData) as caught:
            data.load(name, data_dir=tmp_path)
    message = str(caught.value)
    assert any(file.path in message for file in source(name).files)
    assert str(tmp_path) in message
    assert "--data-dir" in message
    assert (f"`tacit data {name} --download`" in message) == bool(source(name).files[0].urls)


@pytest.mark.parametrize("name", data.names())
def test_description(name, tmp_path):
    facts = data.describe(name, data_dir=tmp_path)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["name"] == name
    assert facts["summary"]
    assert facts["licence"]
    assert facts["present"] == (not facts["files"])
    for file in facts["files"]:
        assert re.fullmatch(r"[0-9a-f]{64}", file["sha256"])
        assert file["bytes"] > 0
        assert file["state"] == "missing"
        assert not file["path"].startswith("/")


@pytest.mark.parametrize("name", [name for name in data.names() if source(name).leaks])
def test_leaky_preparation_is_reported(name, tmp_path):
    with pytest.warns(LeakWarning, match="came from private data"), pytest.raises(MissingData):
        data.load(name, data_dir=tmp_path)
    with pytest.raises(InvalidInput, match="declared as public in strict mode"):
        data.load(name, data_dir=tmp_path, strict=True)


@pytest.mark.parametrize("name", BUNDLED)
def test_strict_mode_accepts_declared_data(name):
    assert data.load(name, strict=True).leaks == ()


def test_import_is_light():
    heavy = ("torch", "sklearn", "scipy", "pandas", "pyarrow", "pooch", "matplotlib")
    program = f"import sys, tacit.data; print([name for name in {heavy} if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (finished.stdout.strip(), finished.stderr) == ("[]", "")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("adult", "adult_complete", True),
        ("adult", "a9a", True),
        ("purchase_standin", "adult_complete", True),
        ("abalone", "abalone_over9", True),
        ("imdb_words", "imdb", True),
        ("iris", "iris", True),
        ("iris", "digits", False),
        ("mnist", "kmnist", False),
    ],
)
def test_the_same_records_are_known_under_another_name(one, other, shared):
    assert data.same_records(one, other) is data.same_records(other, one) is shared
