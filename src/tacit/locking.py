"""Advisory locks: one process at a time works on a run, a checkpoint or a task of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tacit import check


def lock_of(path: str | Path) -> FileLock:
    """The lock of the file or folder `path`, not yet taken, in a hidden file beside it or inside of it.

    The operating system gives it back when the process ends, however it ends. The hidden file stays: removing it would
    let two processes hold locks of two files by the same name.
    """
    path = Path(path)
    place = path / ".lock" if path.is_dir() else path.with_name(f".{path.name}.lock")
    return FileLock(place, thread_local=False)


@contextmanager
def locked(name: str, path: str | Path) -> Iterator[None]:
    """Context in which no other process holds the lock of `path`, which argument `name` gives.

    Args:
        name: for the message.
        path: a file, or a folder that exists.

    Raises:
        InvalidInput: another process, or thread, is at work on it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, locked("RUN", folder):
        ...     with locked("RUN", folder):
        ...         pass
        Traceback (most recent call last):
        ...
        tacit.errors.InvalidInput: RUN must be free of other processes; got '...'. ...
    """
    lock = lock_of(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        hint = "Another process is at work on it: wait until it ends."
        raise check.fail(name, "free of other processes", str(path), hint) from None
    try:
        yield
    finally:
        lock.release()
