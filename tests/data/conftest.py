"""Data sets, each loaded once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tacit import data


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
