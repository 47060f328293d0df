"""Kuzushiji-MNIST: cursive Japanese characters, 28x28 grey values (Clanuwat et al. 2018).

With all four original files this is the official split. With the test files alone, their first 8000
images train and their last 2000 test, under the name `kmnist_test`: never compare that accuracy with a
published one.
"""

from pathlib import Path

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.files import File
from tacit.data.images import NAMES, pair
from tacit.data.source import Source

_MIRRORS = (
    "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
)
# Digests and sizes of the original release; the numpy release of the same test images, packed as idx, is
# accepted as well.
_PUBLISHED = (
    ("51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4", 18165135, ()),
    ("e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17", 29497, ()),
    (
        "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
        3041136,
        ("e7001bb4300a12bc2497ffd99d0ecf9e1698a0d676501b6d060c37fa0adddcbd",),
    ),
    (
        "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
        5120,
        ("f5ae24eab3dfc7488501157641d0254ea07131bdf4cb0ecc1951662ec1dc2e44",),
    ),
)
_FILES = tuple(
    File(f"kmnist/{name}", digest, size, tuple(mirror + name for mirror in _MIRRORS), others, required=bool(others))
    for name, (digest, size, others) in zip(NAMES, _PUBLISHED, strict=True)
)
_CLASSES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_LICENCE = "CC BY-SA 4.0 (Clanuwat et al., CODH / ROIS)"
_TRAIN_OF_TEST = 8000


def _read(folder: Path) -> Dataset:
    x_test, y_test = pair(_FILES[2:], folder, dataset="kmnist")
    # One training file alone is a mistake that the reader below reports.
    if any((folder / file.path).exists() for file in _FILES[:2]):
        name, how = "kmnist", "split: official"
        x, y = pair(_FILES[:2], folder, dataset="kmnist")
    else:
        name, how = "kmnist_test", "split: first 8000 test images train, last 2000 test; no training images found"
        x, x_test = x_test[:_TRAIN_OF_TEST], x_test[_TRAIN_OF_TEST:]
        y, y_test = y_test[:_TRAIN_OF_TEST], y_test[_TRAIN_OF_TEST:]
    return from_arrays(
        x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        classes=_CLASSES,
        bounds=(0.0, 1.0),
        name=name,
        notes=("source: idx files", f"licence: {_LICENCE}", "preprocessing: pixels / 255", how),
    )


SOURCE = Source(
    name="kmnist",
    summary="cursive Japanese characters, 28x28 grey images",
    rows=(60000, 10000),
    features=(1, 28, 28),
    classes=_CLASSES,
    licence=_LICENCE,
    read=_read,
    files=_FILES,
    fewer_rows=(_TRAIN_OF_TEST, 10000 - _TRAIN_OF_TEST),
)
