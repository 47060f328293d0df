"""Images in the idx format of MNIST: a big-endian header, then one unsigned byte for each pixel."""

import gzip
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.files import File
from tacit.data.source import Source

# The names under which MNIST and its replacements are published: training images and labels, then test ones.
NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def idx(content: bytes) -> np.ndarray:
    """The uint8 array of a gzip-compressed idx file; its fourth byte is the number of dimensions."""
    raw = gzip.decompress(content)
    dimensions = raw[3]
    shape = np.frombuffer(raw, dtype=">u4", count=dimensions, offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def pair(files: Sequence[File], folder: Path, *, dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Images of `files[0]` as float32 (rows, 1, height, width) in [0, 1] and labels of `files[1]` as uint8."""
    images, labels = (idx(file.content(folder, dataset=dataset)) for file in files)
    return images[:, None].astype(np.float32) / np.float32(255), labels


def mnist_like(name: str, *, summary: str, classes: Sequence[str], licence: str, published: Sequence[File]) -> Source:
    """The source of a data set published as the four files of MNIST: 60000 + 10000 images, 28x28, ten classes."""
    read = partial(_read, name=name, classes=classes, licence=licence, files=published)
    return Source(
        name=name,
        summary=summary,
        rows=(60000, 10000),
        features=(1, 28, 28),
        classes=tuple(classes),
        licence=licence,
        read=read,
        files=tuple(published),
    )


def _read(folder: Path, *, name: str, classes: Sequence[str], licence: str, files: Sequence[File]) -> Dataset:
    x, y = pair(files[:2], folder, dataset=name)
    x_test, y_test = pair(files[2:], folder, dataset=name)
    return from_arrays(
        x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        classes=classes,
        bounds=(0.0, 1.0),
        name=name,
        notes=("source: original idx files", f"licence: {licence}", "preprocessing: pixels / 255", "split: official"),
    )
