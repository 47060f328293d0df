"""MNIST and its replacements: 28x28 grey images of ten classes in the idx format.

An idx file is a big-endian header, then one unsigned byte for each pixel. `mnist` has handwritten digits (LeCun,
Cortes, Burges 1998), `fashion_mnist` clothes (Xiao, Rasul, Vollgraf 2017), `kmnist` cursive Japanese characters
(Clanuwat et al. 2018).

With all four original files `kmnist` is the official split. With the test files alone, their first 8000 images train
and their last 2000 test, under the name `kmnist_test`: never compare that accuracy with a published one.

CIFAR-100 as 50 principal components of the pixels (Krizhevsky 2009; Jayaraman and Evans 2019).
"""

import gzip
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.files import File
from tacit.data.source import Source, array_source

# The names under which all of them are published: training images and labels, then test ones.
NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_TRAIN_OF_TEST = 8000


def idx(content: bytes) -> np.ndarray:
    """The uint8 array of a gzip-compressed idx file; its fourth byte is the number of dimensions."""
    raw = gzip.decompress(content)
    dimensions = raw[3]
    shape = np.frombuffer(raw, dtype=">u4", count=dimensions, offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _pair(files: Sequence[File], folder: Path, *, dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Images of `files[0]` as float32 (rows, 1, height, width) in [0, 1] and labels of `files[1]` as uint8."""
    images, labels = (idx(file.content(folder, dataset=dataset)) for file in files)
    return images[:, None].astype(np.float32) / np.float32(255), labels


def _read(folder: Path, *, name: str, files: Sequence[File]) -> dict[str, Any]:
    x, y = _pair(files[:2], folder, dataset=name)
    x_test, y_test = _pair(files[2:], folder, dataset=name)
    return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}


def _read_kmnist(folder: Path, *, name: str, files: Sequence[File]) -> dict[str, Any]:
    # One training file alone is a mistake that the reader reports.
    if any((folder / file.path).exists() for file in files[:2]):
        return _read(folder, name=name, files=files)
    x, y = _pair(files[2:], folder, dataset=name)
    return {
        "x_train": x[:_TRAIN_OF_TEST],
        "y_train": y[:_TRAIN_OF_TEST],
        "x_test": x[_TRAIN_OF_TEST:],
        "y_test": y[_TRAIN_OF_TEST:],
        "name": "kmnist_test",
        "split": "first 8000 test images train, last 2000 test; no training images found",
    }


def _published(folder: str, mirrors: Sequence[str], digests: Sequence[tuple[str, int]]) -> tuple[File, ...]:
    return tuple(
        File(f"{folder}/{name}", digest, size, tuple(mirror + name for mirror in mirrors))
        for name, (digest, size) in zip(NAMES, digests, strict=True)
    )


def _source(
    name: str, files: tuple[File, ...], *, read: Any = _read, origin: str = "original idx files", **facts: Any
) -> Source:
    return array_source(
        name,
        partial(read, name=name, files=files),
        rows=(60000, 10000),
        features=(1, 28, 28),
        bounds=(0.0, 1.0),
        origin=origin,
        preprocessing="pixels / 255",
        split="official",
        files=files,
        **facts,
    )


MNIST = _source(
    "mnist",
    _published(
        "mnist",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (
            ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
            ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
            ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
            ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
        ),
    ),
    summary="handwritten digits, 28x28 grey images",
    classes=tuple(str(digit) for digit in range(10)),
    licence="CC BY-SA 3.0 as commonly stated (Y. LeCun and C. Cortes hold the copyright)",
)
FASHION_MNIST = _source(
    "fashion_mnist",
    _published(
        "fashion_mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
            ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
            ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
            ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
        ),
    ),
    summary="pictures of clothes, 28x28 grey images",
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    licence="MIT (Zalando SE)",
)
# The numpy release of the same test images, packed as idx, is accepted as well; the training files can be missing.
_NUMPY_RELEASE = (
    None,
    None,
    "e7001bb4300a12bc2497ffd99d0ecf9e1698a0d676501b6d060c37fa0adddcbd",
    "f5ae24eab3dfc7488501157641d0254ea07131bdf4cb0ecc1951662ec1dc2e44",
)
_KMNIST_FILES = _published(
    "kmnist",
    (
        "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    ),
    (
        ("51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4", 18165135),
        ("e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17", 29497),
        ("edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5", 3041136),
        ("20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c", 5120),
    ),
)
KMNIST = _source(
    "kmnist",
    tuple(
        replace(file, other_releases=(other,)) if other else replace(file, required=False)
        for file, other in zip(_KMNIST_FILES, _NUMPY_RELEASE, strict=True)
    ),
    read=_read_kmnist,
    origin="idx files",
    summary="cursive Japanese characters, 28x28 grey images",
    classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
    licence="CC BY-SA 4.0 (Clanuwat et al., CODH / ROIS)",
    fewer_rows=(_TRAIN_OF_TEST, 10000 - _TRAIN_OF_TEST),
)


_WIDTH = 50
# A centred image with pixels in [0, 1] has norm at most sqrt(3 * 32 * 32), and so has each component.
BOUND = math.sqrt(3 * 32 * 32)
_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_CLASSES = tuple(_NAMES.split())
_FILE = File(
    "cifar100/cifar100_pca50.npz",
    "08ac0f43a479b1dbe8d54ae38a87eae5630a6672d3e813bcccfb66e266c6a7dc",
    11260589,
)


def _read_cifar(folder: Path) -> dict[str, np.ndarray]:
    content = _FILE.content(folder, dataset="cifar100_pca50")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {part: stored[part] for part in ("x_train", "y_train", "x_test", "y_test")}


SOURCE = array_source(
    "cifar100_pca50",
    _read_cifar,
    summary="pictures of 100 kinds of things, 50 principal components",
    rows=(50000, 10000),
    features=(_WIDTH,),
    classes=_CLASSES,
    bounds=(-BOUND, BOUND),
    licence="none stated (cite Krizhevsky 2009, technical report)",
    origin="CIFAR-100",
    preprocessing="pixels / 255, centred, 50 principal components of the training images, not whitened",
    split="official",
    files=(_FILE,),
    leaks=("the principal components, fitted on the training images",),
)
