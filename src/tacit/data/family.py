"""Which data sets are known to hold the same records under different names."""

import os
from pathlib import Path

from tacit.data.registry import source


def same_records(name: str, other: str) -> bool:
    """Whether two registered data sets share records: they are of one family, or made of the same file."""
    one, two = source(name), source(other)
    shared = {file.sha256 for file in one.files} & {file.sha256 for file in two.files}
    return name == other or bool(shared) or (bool(one.family) and one.family == two.family)


def made_of(name: str, path: str | os.PathLike[str]) -> bool:
    """Whether the file at `path` is one of those that the registered data set is made of."""
    content = Path(path).read_bytes()
    return any(file.fault(content) is None for file in source(name).files)
