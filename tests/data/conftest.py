"""Where the original files lie: TACIT_DATA, else `../shared/data` beside the checkout."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tacit import data


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the original files, whether or not it is there."""
    return Path(os.environ.get("TACIT_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(scope="session")
def original_files(data_dir: Path) -> Path:
    """The folder of the original files; without it the test is skipped."""
    if not data_dir.is_dir():
        pytest.skip(f"no original data files: {data_dir} does not exist; set TACIT_DATA to a folder that has them")
    return data_dir


@pytest.fixture(scope="session")
def obtain(data_dir: Path) -> Callable[[str], data.Dataset]:
    """`load(name)`, once a session; skips the test where the folder lacks the files of this data set."""

    @cache
    def load(name: str) -> data.Dataset:
        files = data.describe(name, data_dir=data_dir)["files"]
        lacking = [file["path"] for file in files if file["required"] and file["state"] == "missing"]
        if lacking:
            pytest.skip(f"{data_dir} lacks {', '.join(lacking)}; set TACIT_DATA to a folder that has them")
        return data.load(name, data_dir=data_dir)

    return load
