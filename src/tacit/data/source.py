"""`Source`: what is known about a data set before it is read, and the sources that give arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Bounds, Dataset
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


def array_source(
    name: str,
    read: Callable[[Path], Mapping[str, Any]],
    *,
    summary: str,
    rows: tuple[int, int],
    features: tuple[int, ...],
    classes: tuple[str, ...],
    bounds: Bounds,
    licence: str,
    origin: str,
    preprocessing: str,
    split: str = "",
    **further: Any,
) -> Source:
    """The source of a data set whose files give arrays.

    Args:
        name: the name for `load`.
        read: data folder -> arguments of `from_arrays`: the arrays, and whatever differs from the other arguments.
        summary: as in `Source`.
        rows: as in `Source`.
        features: as in `Source`.
        classes: as in `Source`.
        bounds: lowest and highest value of the features, public constants.
        licence: as in `Source`.
        origin: for the note "source: ...".
        preprocessing: for the note "preprocessing: ...".
        split: for the note "split: ..."; empty where `from_arrays` draws the test rows and says so.
        further: other attributes of `Source`.
    """
    notes = (f"source: {origin}", f"licence: {licence}", f"preprocessing: {preprocessing}")

    def dataset(folder: Path) -> Dataset:
        given = {"name": name, "classes": classes, "bounds": bounds, "split": split} | dict(read(folder))
        how = given.pop("split")
        return from_arrays(given.pop("x_train"), notes=(*notes, f"split: {how}") if how else notes, **given)

    return Source(
        name=name,
        summary=summary,
        rows=rows,
        features=features,
        classes=classes,
        licence=licence,
        read=dataset,
        **further,
    )
