"""Advisory locks: one process at a time works on a run, writes a checkpoint or does a task of a store."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from tacit import check

# Seconds that a writer waits for another to finish one file; a file takes less even on a slow disk.
_PATIENCE = 60.0


class Lock:
    """The lock of the file or folder `path`, in a hidden file beside it or inside of it.

    The operating system gives it back when the process ends, however it ends. The hidden file goes while the lock is
    still held: whoever waits for the removed file sees that it has no name any more and tries again.

    Args:
        path: a file, which need not exist, or a folder that does.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, second = Lock(folder), Lock(folder)
        ...     found = first.take(), second.take(), first.give_back(), second.take(), second.give_back()
        >>> found
        (True, False, None, True, None)
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        self._file = path / ".lock" if path.is_dir() else path.with_name(f".{path.name}.lock")
        self._lock = FileLock(self._file, thread_local=False)

    def take(self, patience: float = 0.0) -> bool:
        """Whether the lock is taken now, after waiting at most `patience` seconds."""
        try:
            self._lock.acquire(timeout=patience, poll_interval=0.01)
        except Timeout:
            return False
        return True

    def give_back(self) -> None:
        """Give the lock back; nothing happens if it is not held."""
        if self._lock.is_locked:
            with suppress(OSError):  # Windows removes no file that is open.
                self._file.unlink()
            self._lock.release()


def remove_lock(path: str | Path) -> None:
    """Remove the hidden file that a killed holder of the lock of `path` has left; one that is held stays.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     left = Path(folder, ".run.lock")
        ...     left.touch(); remove_lock(Path(folder, "run"))
        ...     left.exists()
        False
    """
    lock = Lock(path)
    if lock.take():
        lock.give_back()


@contextmanager
def locked(name: str, path: str | Path, patience: float = 0.0) -> Iterator[None]:
    """Context in which no other process holds the lock of `path`.

    Args:
        name: of the argument that gives the path, for the message.
        path: a file, or a folder that exists.
        patience: seconds to wait for another process.

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
    lock = Lock(path)
    if not lock.take(patience):
        hint = "Another process is at work on it: wait until it ends."
        raise check.fail(name, "free of other processes", str(path), hint)
    try:
        yield
    finally:
        lock.give_back()


def writing(name: str, path: str | Path) -> AbstractContextManager[None]:
    """Context in which this process alone compares and replaces the file `path`; others wait for it.

    Raises `InvalidInput` where another process holds the file for a minute.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, writing("checkpoint", f"{folder}/run.safetensors"):
        ...     pass
    """
    return locked(name, path, _PATIENCE)
