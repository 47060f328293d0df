"""Original data files: where they lie, their checksums, and how they are downloaded.

A download tries the mirrors in order and puts a file in place once its checksum is verified. `optional` imports the
packages that only some data sets need.

Errors about cells of a table: bounded lists of rows and columns, so that a message stays one sentence.
"""

import hashlib
import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import platformdirs

from tacit import check
from tacit.errors import InvalidInput, MissingData, TacitError


def listed(names: Iterable[object], most: int = 5) -> str:
    """At most `most` of `names`, with the count of those left out."""
    every = [str(name) for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def bad_cells(
    name: str, rule: str, rows: np.ndarray, columns: Iterable[object], hint: str = "Remove or fill these cells."
) -> InvalidInput:
    """The error that names the rows and columns, at most five of each, whose cells break `rule`.

    Args:
        name: of the argument that holds the table.
        rule: what every cell must be, as a noun.
        rows: numbers of the rows, counted from 0.
        columns: names or numbers of the columns.
        hint: what to do, a sentence.
    """
    got = f"cells in rows {listed(np.unique(rows))}, columns {listed(columns)}, that are not"
    return InvalidInput(f"{name} must be {rule}; got {got}. {hint.rstrip('.')}; rows count from 0.")


@dataclass(frozen=True)
class File:
    """One file of a data set.

    Attributes:
        path: under the data folder, with forward slashes, e.g. "mnist/train-images-idx3-ubyte.gz".
        sha256: digest of the published file.
        size: its bytes.
        urls: mirrors, tried in order; empty where no public server has this very file.
        other_releases: digests of further published releases that are accepted as well.
        required: False where the data set can do with less.
    """

    path: str
    sha256: str
    size: int
    urls: tuple[str, ...] = ()
    other_releases: tuple[str, ...] = ()
    required: bool = True

    def content(self, folder: Path, *, dataset: str) -> bytes:
        """The verified bytes of this file; what is returned is what was hashed.

        Raises:
            MissingData: missing, unreadable, truncated or altered; names the file and the place, and tells
                how `dataset` can be obtained.
        """
        try:
            content = (folder / self.path).read_bytes()
        except OSError as error:
            got = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
            raise self.error(folder, got, dataset=dataset) from None
        fault = self.fault(content)
        if fault:
            raise self.error(folder, fault, dataset=dataset)
        return content

    def fault(self, content: bytes) -> str | None:
        """What is wrong with `content`, or None for a published release."""
        digest = hashlib.sha256(content).hexdigest()
        if digest in (self.sha256, *self.other_releases):
            return None
        cut = len(content) < self.size
        return f"a truncated file of {len(content)} bytes" if cut else f"{len(content)} bytes with sha256 {digest}"

    def state(self, folder: Path) -> str:
        """State of the file in `folder`: "present" where it is verified, else "missing" or "altered"."""
        try:
            content = (folder / self.path).read_bytes()
        except OSError:
            return "missing"
        return "altered" if self.fault(content) else "present"

    def error(self, folder: Path, got: str, *, dataset: str) -> MissingData:
        """The sentence for a file that cannot be used."""
        elsewhere = "point --data-dir or TACIT_DATA at a folder that has it"
        way = f"Run `tacit data {dataset} --download`, or {elsewhere}." if self.urls else f"Please {elsewhere}."
        rule = f"{self.size} bytes with sha256 {self.sha256}"
        return MissingData(f"data file {self.path} in {folder} must be {rule}; got {got}. {way}")


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """`data_dir`, else the environment variable TACIT_DATA, else this user's cache folder."""
    if data_dir is None:
        data_dir = os.environ.get("TACIT_DATA") or platformdirs.user_cache_dir("tacit", appauthor=False)
    check.that(isinstance(data_dir, str | os.PathLike) and os.fspath(data_dir), "data_dir", "a folder", data_dir)
    return Path(data_dir).expanduser()


def fetch(file: File, folder: Path, *, dataset: str) -> Path:
    """The path of `file` under `folder`, downloaded unless a verified copy is there already.

    The bytes go to a temporary file beside the target, which replaces the target only after its checksum
    agrees; an interrupted download leaves the last complete state.

    Raises:
        MissingData: no mirror gave the published bytes; the message says what each mirror answered.
        TacitError: pooch is not installed.
    """
    target = folder / file.path
    if file.state(folder) == "present":
        return target
    if not file.urls:
        raise file.error(folder, "no public mirror of it", dataset=dataset)
    pooch = optional("pooch", "to download data", extra="data")
    target.parent.mkdir(parents=True, exist_ok=True)
    answers = []
    for url in file.urls:
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            pooch.HTTPDownloader()(url, str(part), None)
            fault = file.fault(part.read_bytes())
            if not fault:
                os.replace(part, target)
                return target
        except (OSError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        finally:
            part.unlink(missing_ok=True)
        answers.append(f"{url} gave {fault}")
    hint = "Try again later, or point --data-dir or TACIT_DATA at a folder that has it."
    rule = f"data file {file.path} must be downloadable from one of its mirrors"
    raise MissingData(f"{rule}; got {'; '.join(answers)}. {hint}")


def optional(module: str, purpose: str, *, extra: str = "train") -> ModuleType:
    """The imported `module` of an `extra`; raises `TacitError` with the install command when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError:
        sentence = f"{module} must be installed {purpose}; got no such module."
        raise TacitError(f"{sentence} Run `pip install 'tacit[{extra}]'`.") from None
