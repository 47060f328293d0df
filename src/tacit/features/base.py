"""`PublicFeatures`: features of one record by itself, as a torch module and as a transformer of scikit-learn.

The folder of this user's cache in which features are kept: whitening matrices, and features of large data.

Features of records are as private as the records: folder and files are this user's alone, and `clear` deletes them.
Every file has its digest beside it; one that was changed or is half there counts as missing.
"""

import hashlib
import json
import os
import shutil
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import platformdirs
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tacit import check, serialization
from tacit.accounting.facts import PUBLIC
from tacit.errors import PrivacyWarning
from tacit.locking import Lock

Shape = tuple[int, int, int]
Progress = Callable[[str, int, int], None]

_VERSION = 1  # of every formula of this room: raised by hand when what one computes changes
_ROWS_AT_ONCE = 256


class PublicFeatures(TransformerMixin, BaseEstimator, nn.Module):
    """Base of the features of this room: a map of one record that no other record enters, of public constants alone.

    Called with a tensor (n, ...) it gives a tensor (n, features); `transform` takes and gives arrays. Rows of a table,
    (n, channels height width), are taken as images of the declared shape.

    Attributes:
        width: number of features of a record.

    Example:
        >>> from tacit.features import Scattering2d
        >>> Scattering2d((1, 28, 28)).fit_transform(np.zeros((2, 784))).shape
        (2, 3969)
    """

    width: int

    def __sklearn_tags__(self) -> Tags:
        """Tags of scikit-learn: records are images, texts or tensors, and none needs a fit."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    @property
    def sentence(self) -> str:
        """What the ledger, the card and the statement say is taken as public, and its digest."""
        return f"{PUBLIC}{self._told()} (features, {self.key()[:12]}); each record's follow from it alone."

    @abstractmethod
    def _told(self) -> str:
        """What the features are made of, in words."""

    def spec(self) -> dict[str, Any]:
        """Class and parameters as plain values, from which `from_spec` makes the same features."""
        found = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        return {"kind": type(self).__name__, **found}

    def key(self) -> str:
        """SHA-256 of version and `spec`: equal for features that give equal numbers."""
        return hashlib.sha256(json.dumps([_VERSION, self.spec()], sort_keys=True).encode()).hexdigest()

    def prepare(self, on_progress: Progress | None = None) -> None:
        """Compute what takes longer than the features of a few records; calls do so where it was not done.

        Args:
            on_progress: called with (stage, done, total).
        """
        for part in self.modules():
            if isinstance(part, PublicFeatures) and part is not self:
                part.prepare(on_progress)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the shape of X; no value of it is read."""
        self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features of the rows of X, float32 (n, features)."""
        check_is_fitted(self, "n_features_in_")
        return self.of(X)

    def of(self, X: Any) -> np.ndarray:
        """`transform` without a fit, which has nothing to learn."""
        if not np.ndim(X):
            raise check.fail("X", "an array of images, or of rows of as many numbers", type(X).__name__)
        with torch.no_grad():
            parts = [self(self._tensor(X[start : start + _ROWS_AT_ONCE])) for start in range(0, len(X), _ROWS_AT_ONCE)]
        return torch.cat(parts).cpu().numpy() if parts else np.zeros((0, self.width), np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the form scattering2d0."""
        return np.array([f"{type(self).__name__.lower()}{each}" for each in range(self.width)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def set_params(self, **params: Any) -> Self:
        """The same features with other parameters; what follows from them is made anew."""
        self.__init__(**{**self.get_params(deep=False), **params})
        return self

    __repr__ = BaseEstimator.__repr__  # type: ignore[assignment] (torch lists parts)

    def _tensor(self, rows: Any) -> Tensor:
        with check.reading("X", "an array of finite numbers"):
            if np.iscomplexobj(rows):
                raise TypeError("complex numbers")
            array = np.asarray(rows, dtype=np.float32)
        return torch.from_numpy(array)


class ImageFeatures(PublicFeatures):
    """Base of features of images of one declared shape.

    Attributes:
        image: (channels, height, width).
    """

    image: Shape


def image_shape(shape: Sequence[int]) -> Shape:
    """A checked (channels, height, width).

    Args:
        shape: 1 or 3 channels; sides of at least 8.

    Raises:
        InvalidInput: it is another.

    Example:
        >>> image_shape([1, 28, 28])
        (1, 28, 28)
    """
    found = tuple(check.count("each of shape", size) for size in shape)
    if len(found) != 3 or found[0] not in (1, 3) or min(found[1:]) < 8:
        raise check.fail("shape", "(channels, height, width) with 1 or 3 channels and sides of at least 8", shape)
    return found


def images_of(rows: Tensor, shape: Shape) -> Tensor:
    """`rows` as images (n, *shape); raises `InvalidInput` for another number of values or values that are not finite.

    Args:
        rows: (n, *shape), or flat.
        shape: declared.
    """
    if rows.dim() < 2 or rows[:1].numel() != shape[0] * shape[1] * shape[2] * min(len(rows), 1):
        hint = "Declare the shape that your images have."
        raise check.fail("X", f"images of shape {shape}, or rows of as many values", tuple(rows.shape[1:]), hint)
    if not torch.isfinite(rows).all():
        raise check.fail("X", "finite", "NaN or inf among the pixels", "Fill them with a public constant.")
    return rows.reshape(-1, *shape)


def _plain(value: Any) -> Any:
    if isinstance(value, PublicFeatures):
        return value.spec()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


_KEPT_AT_ONCE = 512
_PATIENCE = 3600.0  # seconds that a second process waits for the first to compute the same features


def folder() -> Path:
    """The folder, made if needed, for this user alone.

    Example:
        >>> folder().name
        'features'
    """
    base = platformdirs.user_cache_path("tacit", appauthor=False) / "features"
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        base.chmod(0o700)
    except OSError as error:
        hint = f"{error.strerror}. Make room for it, or name another place by XDG_CACHE_HOME."
        raise check.fail("the cache of features", "a folder that can be made", str(base), hint) from None
    return base


def clear() -> int:
    """Delete all features that are kept, and tell how many bytes that were.

    Example:
        >>> clear() >= 0  # doctest: +SKIP
        True
    """
    size = sum(file.stat().st_size for file in folder().rglob("*") if file.is_file())
    shutil.rmtree(folder())
    return size


def computed(
    features: PublicFeatures, rows: np.ndarray, on_progress: Progress = lambda stage, done, total: None
) -> np.ndarray:
    """Features of all rows, float32 (n, width), read from a memory map in the cache and computed once.

    The key is a SHA-256 of the rows, of `features.key()` and of what the features were computed with. Where the disk
    has no room they stay in memory, with a warning.

    Args:
        features: what to compute.
        rows: (n, ...), any array of numbers.
        on_progress: called with (stage, done, total).

    Example:
        >>> from tacit.features import Scattering2d
        >>> computed(Scattering2d(), np.zeros((2, 1, 28, 28), np.float32)).shape  # doctest: +SKIP
        (2, 3969)
    """
    features.prepare(on_progress)
    key = hashlib.sha256(f"{features.key()} {rows.dtype} {rows.shape}".encode())
    for name, value in sorted(features.state_dict().items()):
        key.update(name.encode() + value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    key.update(np.ascontiguousarray(rows).data)
    path = folder() / f"{key.hexdigest()[:40]}.npy"
    return kept(path, (len(rows), features.width), lambda: _blocks(features, rows, on_progress))


def kept(path: Path, shape: tuple[int, ...], blocks: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
    """The float32 array in the file `path`, mapped into memory; computed where it is missing or was changed.

    A second process waits for the first one that computes it.

    Args:
        path: of the file.
        shape: of the array.
        blocks: computes the array, some rows at a time.
    """
    lock = Lock(path)
    with suppress(OSError):  # A full disk: the array stays in memory.
        lock.take(_PATIENCE)
    try:
        found = _read(path, shape)
        return _written(path, shape, blocks) if found is None else found
    finally:
        lock.give_back()


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        known = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        if array.shape != shape or array.dtype != np.float32 or known.get("sha256") != serialization.file_digest(path):
            return None
    except (OSError, ValueError, AttributeError, EOFError):
        return None
    return array


def _written(path: Path, shape: tuple[int, ...], blocks: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
    """Compute the array into a new file with its digest beside it; into memory where that cannot be written."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        if shutil.disk_usage(path.parent).free < 4 * np.prod(shape) + 2**20:
            raise OSError("no room")
        with part.open("xb") as file:
            os.chmod(part, 0o600)
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for block in blocks():
                file.write(block.tobytes())
        part.replace(path)
        serialization.write_text(path.with_suffix(".json"), json.dumps({"sha256": serialization.file_digest(path)}))
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError as error:
        told = f"features are not kept in the cache ({error}); they stay in memory and are computed again next time."
        warnings.warn(told, PrivacyWarning, stacklevel=4)
        return np.concatenate(list(blocks()))
    finally:
        part.unlink(missing_ok=True)


def _blocks(features: PublicFeatures, rows: np.ndarray, on_progress: Progress) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _KEPT_AT_ONCE):
        yield features.of(rows[start : start + _KEPT_AT_ONCE])
        on_progress("features", min(start + _KEPT_AT_ONCE, len(rows)), len(rows))
