"""ISOLET: spoken letters of 150 speakers, 617 acoustic features in [-1, 1] (Fanty and Cole 1991).

One speaker gives many rows, so a guarantee for one row is weaker than a guarantee for one speaker.
"""

import lzma
from pathlib import Path
from string import ascii_uppercase

import numpy as np

from tacit.data.files import File
from tacit.data.source import array_source

_WIDTH = 617
_TRAIN = File(
    "isolet/isolet1+2+3+4.data.xz",
    "19185231fe0179e7f229b0b879284b932d96578774d5cdd4366545e2b6b665b6",
    6371480,
)
_TEST = File(
    "isolet/isolet5.data.xz",
    "cd8e26c8d95b841a0979f2c09565b24b058e085443bf45843c19cd99dda58bc9",
    1636996,
)


def _read(folder: Path) -> dict[str, np.ndarray]:
    train, test = (_rows(file.content(folder, dataset="isolet")) for file in (_TRAIN, _TEST))
    return {
        "x_train": train[:, :_WIDTH],
        "y_train": train[:, _WIDTH].astype(np.int64) - 1,
        "x_test": test[:, :_WIDTH],
        "y_test": test[:, _WIDTH].astype(np.int64) - 1,
    }


def _rows(content: bytes) -> np.ndarray:
    """Features and, last, the number of the letter counted from 1: (rows, 618)."""
    cells = lzma.decompress(content).replace(b",", b" ").split()
    return np.array(cells, dtype=np.float32).reshape(-1, _WIDTH + 1)


SOURCE = array_source(
    "isolet",
    _read,
    summary="spoken letters, 617 acoustic features",
    rows=(6238, 1559),
    features=(_WIDTH,),
    classes=tuple(ascii_uppercase),
    bounds=(-1.0, 1.0),
    licence="CC BY 4.0 (UCI Machine Learning Repository; attribution: R. Cole and M. Fanty)",
    origin="isolet1+2+3+4 and isolet5 of the UCI archive, training rows sorted within each group of speakers",
    preprocessing="none",
    split="official, speakers of isolet5 test",
    files=(_TRAIN, _TEST),
)
