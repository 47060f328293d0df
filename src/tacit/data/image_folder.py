"""`image_folder`: a folder of images by class as a data set, every image brought to one size by a public rule."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data.dataset import Dataset, from_arrays

PARTS = {"train", "test"}


def image_folder(path: str | os.PathLike[str], *, size: int = 32, channels: int = 3) -> Dataset:
    """The images in the folders of `path`, one folder a class; or in those of its folders train and test.

    Every image becomes `size` x `size` pixels by means over areas, in colour or gray, with values in [0, 1]. Names of
    the folders are the classes and public; hidden files are left out. Without train and test a fifth is held out.

    Args:
        path: of the folder.
        size: in pixels, from 8 to 64; public.
        channels: 3 for colour or 1 for gray; public.

    Raises:
        InvalidInput: there are no two classes, a class has no image, train and test differ in classes, or a file is no
            image; the class and the place of the file in it are told, not its name.
    """
    root = Path(path)
    check.count("image_size", size, minimum=8, maximum=64)
    if channels not in (1, 3):
        raise check.fail("image_channels", "3 for colour or 1 for gray", channels)
    split = {each.name for each in _folders(root)} == PARTS
    roots = [root / "train", root / "test"] if split else [root]
    classes = [each.name for each in _folders(roots[0])]
    if len(classes) < 2:
        hint = "Name it so: DIR/CLASS/IMAGE.png, or DIR/train/CLASS/... beside DIR/test/CLASS/...."
        raise check.fail("DIR", "a folder with a folder of images for each of at least two classes", str(root), hint)
    if split and classes != [each.name for each in _folders(roots[1])]:
        raise check.fail("DIR/test", f"a folder of the same classes as DIR/train, {classes[:10]}", "others")
    parts = [_read(each, classes, size, channels) for each in roots]
    test = {"x_test": parts[1][0], "y_test": parts[1][1]} if split else {}
    notes = (f"preprocessing: {size} x {size} pixels by means over areas, {'colour' if channels == 3 else 'gray'}",)
    return from_arrays(
        parts[0][0], y_train=parts[0][1], classes=classes, bounds=(0, 1), name=root.resolve().name, notes=notes, **test
    )


def images_in(path: str | os.PathLike[str]) -> int:
    """Number of training files in such a folder, none of them opened.

    Args:
        path: of the folder.
    """
    root = Path(path)
    split = {each.name for each in _folders(root)} == PARTS
    count = sum(len(_files(each)) for each in _folders(root / "train" if split else root))
    return count if split else count - max(round(0.2 * count), 1)


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise check.fail("DIR", "a folder", str(root))
    return sorted(each for each in root.iterdir() if each.is_dir() and not each.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))


def _read(root: Path, classes: list[str], size: int, channels: int) -> tuple[np.ndarray, list[str]]:
    found, labels = [], []
    for name in classes:
        rows = list(_images(root / name, size, channels))
        if not rows:
            raise check.fail(f"class {name!r}", "a folder with images", "an empty one", "Remove it.")
        found += rows
        labels += [name] * len(rows)
    return np.stack(found), labels


def _images(folder: Path, size: int, channels: int) -> Iterator[np.ndarray]:
    from PIL import Image

    for place, file in enumerate(_files(folder), start=1):
        try:
            with Image.open(file) as opened:
                image = opened.convert("RGB" if channels == 3 else "L").resize((size, size), Image.Resampling.BOX)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            told = file.name if check.values_shown() else f"file {place} of class {folder.name!r} by name"
            raise check.fail("every file", "an image that can be read", told, "Remove or mend it.") from None
        array = np.asarray(image, dtype=np.float32) / np.float32(255)
        yield array.reshape(size, size, channels).transpose(2, 0, 1)
