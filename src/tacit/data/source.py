"""`Source`: what is known about a data set before it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.data.dataset import Dataset
from tacit.data.files import File


@dataclass(frozen=True)
class Source:
    """One registered data set.

    Attributes:
        name: the name for `load`.
        summary: one line.
        rows: training and test rows.
        features: shape of one example.
        classes: names of the classes; none for a regression.
        licence: and who asks to be cited.
        read: data folder -> Dataset.
        files: the original files; none for data bundled with a dependency.
        fewer_rows: training and test rows when the files that are not required are missing.
        leaks: what the preparation of these files read from the data.
        leak_remedy: what to do about them.
        task: as `Dataset.task`.
        family: of data sets that share records though their files differ; none by default.
    """

    name: str
    summary: str
    rows: tuple[int, int]
    features: tuple[int, ...]
    classes: tuple[str, ...]
    licence: str
    read: Callable[[Path], Dataset]
    files: tuple[File, ...] = ()
    fewer_rows: tuple[int, int] | None = None
    leaks: tuple[str, ...] = ()
    leak_remedy: str = "The published files came so; the guarantee starts after it."
    task: str = "classification"
    family: str = ""
