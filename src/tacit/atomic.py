"""Writing a file so that a reader sees the old content or the new one, never a part."""

import os
import secrets
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 `text` to `path`, making its folder; an interruption leaves the previous file as it was."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`, making its folder; an interruption leaves the previous file as it was."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _settle_name(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _settle_name(folder: Path) -> None:
    """Make a new name in `folder` outlast a loss of power, as the content does."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
