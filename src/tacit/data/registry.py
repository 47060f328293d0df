"""Every published data set by name, and which of them share records. A new one is a table of `published.toml`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.data.dataset import Dataset, report
from tacit.data.files import data_folder, fetch
from tacit.data.published import Source, sources

_SOURCES: dict[str, Source] = {source.name: source for source in sources()}


def names() -> tuple[str, ...]:
    """The data sets that `load` knows; those bundled with a dependency come first."""
    return tuple(_SOURCES)


def source(name: str) -> Source:
    """What is known about the data set `name` before it is read; raises `InvalidInput` with the nearest name."""
    return _SOURCES[check.choice("data set", name, _SOURCES)]


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None, strict: bool = False) -> Dataset:
    """The data set `name`, its files verified by checksum.

    Args:
        name: one of `names()`.
        data_dir: folder of the original files; by default the environment variable TACIT_DATA, else this
            user's cache folder.
        strict: a data set whose published preparation read the data is an error instead of a `LeakWarning`.

    Raises:
        InvalidInput: unknown name.
        MissingData: a file is missing, truncated or altered.
    """
    known = source(name)
    for what in known.leaks:
        report(what, known.leak_remedy, strict=strict)
    return replace(known.read(data_folder(data_dir)), leaks=known.leaks)


def describe(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Facts about the data set `name` without reading it, ready for JSON.

    Keys: name, summary, rows (train, test; what `load` would give with the files now there), features
    (shape of one example), task, classes, licence, leaks, folder (where the files are looked for; None for
    bundled data), files (path, bytes, sha256, required, state: "present", "missing" or "altered") and
    present (whether `load` would find all it requires).
    """
    known, folder = source(name), data_folder(data_dir)
    states = [file.state(folder) for file in known.files]
    files = [
        {"path": file.path, "bytes": file.size, "sha256": file.sha256, "required": file.required, "state": state}
        for file, state in zip(known.files, states, strict=True)
    ]
    train, test = known.fewer_rows if known.fewer_rows and "missing" in states else known.rows
    return {
        **{name: getattr(known, name) for name in ("name", "summary", "task", "licence")},
        **{name: list(getattr(known, name)) for name in ("features", "classes", "leaks")},
        "rows": {"train": train, "test": test},
        "folder": str(folder) if known.files else None,
        "files": files,
        "present": all(file["state"] in ("present", *(() if file["required"] else ("missing",))) for file in files),
    }


def download(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """The verified files of the data set `name`, fetched from public mirrors where they are missing or altered.

    Bundled data sets have none. Raises `MissingData` when no mirror delivers a file with its published
    checksum, `TacitError` without pooch.
    """
    known, folder = source(name), data_folder(data_dir)
    return tuple(fetch(file, folder, dataset=name) for file in known.files)


def same_records(name: str, other: str) -> bool:
    """Whether two registered data sets share records: they are of one family, or made of the same file."""
    one, two = source(name), source(other)
    shared = {file.sha256 for file in one.files} & {file.sha256 for file in two.files}
    return name == other or bool(shared) or (bool(one.family) and one.family == two.family)


def made_of(name: str, path: str | os.PathLike[str]) -> bool:
    """Whether the file at `path` is one of those that the registered data set is made of."""
    content = Path(path).read_bytes()
    return any(file.fault(content) is None for file in source(name).files)
