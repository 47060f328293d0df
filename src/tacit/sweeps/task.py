"""A task of a sweep: an importable function and its settings, with the key under which its result is stored."""

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tacit import check
from tacit.serialization import file_digest, plain_values
from tacit.signing import new_id, signing_key

_WORDS_ONLY = ("cli", "reports")


@dataclass(frozen=True)
class Task:
    """One run of a sweep.

    Attributes:
        function: "package.module:name" of a function that takes `settings` as keyword arguments and returns plain
            values (numbers, text, lists, dicts).
        settings: plain values; all that the result depends on besides the code and the data.
        seconds: expected cost, for the estimate of the time left.
        reads_data: whether the function also takes `data_dir`, the folder of the data files.
        files: whose content the result depends on besides; relative ones lie in `data_dir`, if one is given.
        label: what a message calls the task; its function and settings by default.
        secret: settings that are passed to the function and kept nowhere, such as the seed of the noise. What shows
            that they were given should stand under their names in `settings`.
        version: of what `function` computes, raised by hand; where it is given, results are kept by it and not by the
            source of the package, which then is information beside them.
    """

    function: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1.0
    reads_data: bool = False
    files: tuple[str, ...] = ()
    label: str = ""
    secret: Mapping[str, Any] = field(default_factory=dict, repr=False)
    version: str = ""

    def __post_init__(self) -> None:
        check.that(self.function.count(":") == 1, "function", "given as package.module:name", self.function)
        check.positive("seconds", self.seconds)
        try:
            json.dumps(plain_values(dict(self.settings)), allow_nan=False)
        except (TypeError, ValueError):
            raise check.fail("settings", "plain values that JSON can hold", self.settings) from None

    def __str__(self) -> str:
        return self.label or f"{self.function} with {dict(self.settings)}"

    def call(self, data_dir: str | os.PathLike[str] | None = None) -> Any:
        """Run the function, in this process."""
        module, name = self.function.split(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        data = {"data_dir": data_dir} if self.reads_data else {}
        return function(**{**self.settings, **self.secret}, **data)

    def key(self, data_dir: str | os.PathLike[str] | None = None) -> str:
        """SHA-256 of function, settings, version or else the package's code, the data, if read, and the files."""
        data = data_fingerprint(data_dir) if self.reads_data else ""
        files = [file_fingerprint(os.path.join(data_dir or "", each)) for each in self.files]
        parts = [self.function, plain_values(dict(self.settings)), self.version or code_fingerprint(), data, *files]
        if self.secret:
            parts.append(_keyed(plain_values(dict(self.secret))))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _keyed(secret: dict[str, Any]) -> str:
    """What stands for `secret` in a key: few seeds are possible, so a plain hash of one would tell it."""
    key = signing_key()
    return new_id() if key is None else key.mac("secret settings", json.dumps(secret, sort_keys=True).encode())


@cache
def code_fingerprint() -> str:
    """SHA-256 of the package's source and tables, without the rooms that only present results."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.toml")]):
        if path.relative_to(root).parts[0] not in _WORDS_ONLY:
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def data_fingerprint(folder: str | os.PathLike[str] | None) -> str:
    """SHA-256 of the names and sizes of the files in a data folder; loaders check the content of what they read."""
    if folder is None:
        return ""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    listed = [(str(path.relative_to(root)), path.stat().st_size) for path in files]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def file_fingerprint(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content; "" where there is no file, which is for the task to report."""
    file = Path(path)
    if not file.is_file():
        return ""
    found = file.stat()
    return _content_digest(file, found.st_size, found.st_mtime_ns)


@cache
def _content_digest(file: Path, size: int, changed: int) -> str:
    """Kept by size and time, since a large table is asked for by every task of a sweep."""
    return file_digest(file)
