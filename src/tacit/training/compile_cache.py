"""The folder in which torch keeps compiled graphs: one of the library's own for each version, left when damaged.

A process that is killed while it compiles leaves a truncated object. Every later compilation of the same graph loads
it and fails, until somebody deletes it by hand. Here such a folder is marked, and another one takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from pickle import UnpicklingError
from typing import TypeVar

import torch

import tacit

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_MARK = "damaged"
# What loading an object raises that is not whole; a compiler that fails raises others.
_LOADING = (ImportError, OSError, EOFError, UnpicklingError)

Result = TypeVar("Result")


def compiled_in_own_folder(compile_graph: Callable[[], Result]) -> Result:
    """What `compile_graph` returns, with torch's cache in a folder of this version; once more where that is damaged.

    Args:
        compile_graph: compiles by inductor.

    Example:
        >>> compiled_in_own_folder(lambda: 1)
        1
    """
    base = Path(_default())
    folder = _folder(base)
    try:
        return _compiled(folder, compile_graph)
    except Exception:
        if _folder(base) == folder:
            raise
    _forget()
    return _compiled(_folder(base), compile_graph)


def _compiled(folder: Path, compile_graph: Callable[[], Result]) -> Result:
    """What `compile_graph` returns with torch's cache in `folder`, which is marked where it is damaged."""
    with _in(folder):
        try:
            return compile_graph()
        except Exception as error:
            # Inductor wraps what a loader raises in classes of its own.
            if _damaged(error, folder):
                (folder / _MARK).touch()
            raise


def _forget() -> None:
    """Drop what torch knows of objects in a folder that is left, those that failed to load among them."""
    from torch._inductor.utils import clear_caches

    clear_caches()


def _default() -> str:
    """The folder that the user chose, or one in the user's own cache.

    Torch's own lies in the shared temporary folder under a name that others can take first; what is in it is executed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return os.environ.get(_VARIABLE) or str(cache / "tacit" / "compiled")


def _folder(base: Path) -> Path:
    """The first folder of this version that no damage was found in."""
    versions = base / f"tacit-{tacit.__version__}-torch-{torch.__version__}"
    return next(folder for number in count() if not ((folder := versions / str(number)) / _MARK).exists())


@contextmanager
def _in(folder: Path) -> Iterator[None]:
    """Torch's cache is in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE)
        if before is not None:
            os.environ[_VARIABLE] = before


def _damaged(error: BaseException | None, folder: Path) -> bool:
    """Whether `error`, or what it was raised from, is that an object in `folder` could not be loaded."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    named = any(str(folder) in str(each) for each in chain)
    return any(isinstance(each, EOFError | UnpicklingError) or (named and isinstance(each, _LOADING)) for each in chain)
