"""`image_folder`: a folder of images by class as a data set, every image brought to one size by a public rule.

`cifar_binary`: images and labels of the binary form in which CIFAR-10 and CIFAR-100 are published.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tacit import check
from tacit.data.dataset import Dataset, from_arrays

if TYPE_CHECKING:
    from PIL.Image import Image


def image_folder(path: str | os.PathLike[str], *, size: int = 32, channels: int = 3) -> Dataset:
    """The images in the folders of `path`, one folder a class; or in those of its folders train and test.

    Or the records of `path`'s data_batch_*.bin and test_batch.bin (CIFAR-10), train.bin and test.bin (CIFAR-100).

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
    check.that(channels in (1, 3), "image_channels", "3 for colour or 1 for gray", channels)
    notes = (f"preprocessing: {size} x {size} pixels by means over areas, {'colour' if channels == 3 else 'gray'}",)
    name = root.resolve().name
    if binary := _binary(root):
        (x, y), (x_test, y_test) = (binary.part(files, size, channels) for files in (binary.train, binary.test))
        test = {"x_test": x_test, "y_test": y_test, "classes": binary.classes()}
        return from_arrays(x, y_train=y, bounds=(0, 1), name=name, notes=notes, **test)
    roots = _parts(root)
    classes, split = [each.name for each in _folders(roots[0])], len(roots) == 2
    if len(classes) < 2:
        hint = "Name it so: DIR/CLASS/IMAGE.png, or DIR/train/CLASS/... beside DIR/test/CLASS/...."
        raise check.fail("DIR", "a folder with a folder of images for each of at least two classes", str(root), hint)
    if split and classes != [each.name for each in _folders(roots[1])]:
        raise check.fail("DIR/test", f"a folder of the same classes as DIR/train, {classes[:10]}", "others")
    parts = [_read(each, classes, size, channels) for each in roots]
    test = {"x_test": parts[1][0], "y_test": parts[1][1]} if split else {}
    return from_arrays(parts[0][0], y_train=parts[0][1], classes=classes, bounds=(0, 1), name=name, notes=notes, **test)


def images_in(path: str | os.PathLike[str]) -> int:
    """Number of training files in such a folder, none of them opened.

    Args:
        path: of the folder.
    """
    root = Path(path)
    if binary := _binary(root):
        return sum(file.stat().st_size // binary.bytes for file in binary.train)
    roots = _parts(root)
    count = sum(len(_files(each)) for each in _folders(roots[0]))
    return count if len(roots) == 2 else count - max(round(0.2 * count), 1)


def _parts(root: Path) -> list[Path]:
    """The folders train and test, where there are these two alone; `root` itself elsewhere."""
    names = ["test", "train"]
    return [root / "train", root / "test"] if [each.name for each in _folders(root)] == names else [root]


def _folders(root: Path) -> list[Path]:
    check.that(root.is_dir(), "DIR", "a folder", str(root))
    return sorted(each for each in root.iterdir() if each.is_dir() and not each.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))


def _read(root: Path, classes: list[str], size: int, channels: int) -> tuple[np.ndarray, list[str]]:
    from PIL import Image

    found, labels = [], []
    for name in classes:
        files = _files(root / name)
        check.that(files, f"class {name!r}", "a folder with images", "an empty one", "Remove it.")
        for place, file in enumerate(files, start=1):
            try:
                with Image.open(file) as opened:
                    found.append(_pixels(opened, size, channels))
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
                told = file.name if check.values_shown() else f"file {place} of class {name!r} by name"
                raise check.fail("every file", "an image that can be read", told, "Remove or mend it.") from None
        labels += [name] * len(files)
    return np.stack(found), labels


def _pixels(opened: Image, size: int, channels: int) -> np.ndarray:
    """(channels, size, size) in [0, 1]."""
    from PIL.Image import Resampling

    image = opened.convert("RGB" if channels == 3 else "L").resize((size, size), Resampling.BOX)
    return (np.asarray(image, dtype=np.float32) / np.float32(255)).reshape(size, size, channels).transpose(2, 0, 1)


CIFAR_SIDE = 32
_FORMS = (
    ("data_batch_*.bin", "test_batch.bin", 1, 10, "batches.meta.txt"),
    ("train.bin", "test.bin", 2, 100, "fine_label_names.txt"),
)


@dataclass(frozen=True)
class _Binary:
    """CIFAR in its binary form: files of the parts, bytes of labels, number of classes, file of their names."""

    train: list[Path]
    test: list[Path]
    labels: int
    count: int
    names: Path

    @property
    def bytes(self) -> int:
        """Of one record."""
        return self.labels + 3 * CIFAR_SIDE**2

    def part(self, files: list[Path], size: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
        """Images (n, channels, size, size) in [0, 1] and labels of the files of a part."""
        from PIL import Image

        read = [cifar_binary(file.read_bytes(), self.labels, self.count) for file in files]
        rows = np.concatenate([images for images, _ in read]).transpose(0, 2, 3, 1)
        x = np.stack([_pixels(Image.fromarray(row), size, channels) for row in rows])
        return x, np.concatenate([labels for _, labels in read])

    def classes(self) -> list[str]:
        """As the file of names has them; numbers where there is none or it has others than so many."""
        text = self.names.read_bytes()[:10_000].decode("ascii", "replace") if self.names.is_file() else ""
        found = text.split()
        return found if len(set(found)) == len(found) == self.count else [str(each) for each in range(self.count)]


def _binary(root: Path) -> _Binary | None:
    for *patterns, labels, count, names in _FORMS:
        train, test = (sorted(file for file in root.glob(pattern) if file.is_file()) for pattern in patterns)
        if train and test:
            return _Binary(train, test, labels, count, root / names)
    return None


def cifar_binary(content: bytes, labels: int = 1, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Images, uint8 (n, 3, 32, 32), and labels, int64 (n,): records of the label and 3,072 pixels, red, green, blue.

    Args:
        content: of a file.
        labels: bytes of labels before the pixels, the last of which counts; 2 in CIFAR-100.
        classes: number of labels.

    Raises:
        InvalidInput: it ends within a record, is empty, or has other labels.
    """
    width = labels + 3 * CIFAR_SIDE**2
    if not content or len(content) % width:
        raise check.fail("every .bin file", f"records of {width} bytes", f"{len(content)} bytes")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    y = rows[:, labels - 1].astype(np.int64)
    check.that(y.max() < classes, "every .bin file", f"labels below {classes}", "others among them")
    return rows[:, labels:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE), y
