"""Where the original files lie: TACIT_DATA, else `../shared/data` beside the checkout, else the test is skipped."""

import os
from pathlib import Path

import pytest

from tacit import data

_BESIDE = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def original_files() -> Path:
    """The folder of the original files."""
    folder = Path(os.environ.get("TACIT_DATA") or _BESIDE)
    if not folder.is_dir():
        pytest.skip(f"no original data files: {folder} does not exist; set TACIT_DATA to a folder that has them")
    return folder


@pytest.fixture
def obtain(original_files):
    """`load(name)` from the original files, skipping where they lack this data set."""

    def load(name: str) -> data.Dataset:
        facts = data.describe(name, data_dir=original_files)
        if not facts["present"]:
            lacking = [file["path"] for file in facts["files"] if file["state"] == "missing"]
            pytest.skip(f"{original_files} lacks {', '.join(lacking)}")
        return data.load(name, data_dir=original_files)

    return load
