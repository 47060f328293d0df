"""The folder of this user's cache in which features are kept: whitening matrices, and features of large data.

Features of records are as private as the records: folder and files are this user's alone, and `clear` deletes them.
Every file has its digest beside it; one that was changed or is half there counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tacit import serialization
from tacit.errors import PrivacyWarning
from tacit.features.base import PublicFeatures
from tacit.locking import Lock

Progress = Callable[[str, int, int], None]

_ROWS_AT_ONCE = 512
_PATIENCE = 3600.0  # seconds that a second process waits for the first to compute the same features


def folder() -> Path:
    """The folder, made if needed, for this user alone.

    Example:
        >>> folder().name
        'features'
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit" / "features"
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    base.chmod(0o700)
    return base


def clear() -> int:
    """Delete all features that are kept, and tell how many bytes that were.

    Example:
        >>> clear() >= 0  # doctest: +SKIP
        True
    """
    files = [file for file in folder().rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
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
    lock = Lock(path)
    held = lock.take(_PATIENCE)
    try:
        found = kept(path, (len(rows), features.width))
        if found is not None:
            return found
        return _written(path, features, rows, on_progress)
    finally:
        if held:
            lock.give_back()


def kept(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """The array in the file `path`, mapped into memory; None where it is missing, of another shape or changed.

    Args:
        path: of a file that `seal` was called on.
        shape: expected.
    """
    try:
        known = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        if array.shape != shape or array.dtype != np.float32 or known.get("sha256") != _digest(path):
            return None
    except (OSError, ValueError, AttributeError, EOFError):
        return None
    return array


def seal(path: Path) -> None:
    """Write the digest of the file beside it."""
    path.chmod(0o600)
    serialization.write_text(path.with_suffix(".json"), json.dumps({"sha256": _digest(path)}))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _written(path: Path, features: PublicFeatures, rows: np.ndarray, on_progress: Progress) -> np.ndarray:
    """Compute the features into a new file; into memory where that cannot be written."""
    part, shape = path.with_suffix(f".{os.getpid()}.part"), (len(rows), features.width)
    try:
        if shutil.disk_usage(path.parent).free < 4 * np.prod(shape) + 2**20:
            raise OSError("no room")
        with part.open("xb") as file:
            os.chmod(part, 0o600)
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for block in _blocks(features, rows, on_progress):
                file.write(block.tobytes())
        part.replace(path)
        seal(path)
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError as error:
        told = f"features are not kept in the cache ({error}); they stay in memory and are computed again next time."
        warnings.warn(told, PrivacyWarning, stacklevel=4)
        return np.concatenate(list(_blocks(features, rows, on_progress)))
    finally:
        part.unlink(missing_ok=True)


def _blocks(features: PublicFeatures, rows: np.ndarray, on_progress: Progress):
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield features.of(rows[start : start + _ROWS_AT_ONCE])
        on_progress("features", min(start + _ROWS_AT_ONCE, len(rows)), len(rows))
