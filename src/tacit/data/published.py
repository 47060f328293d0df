"""The published data sets: a reader for each form of their files; their facts stand in `published.toml`.

Every constant there is public: bounds, categories and classes are declared by the publishers or round numbers around
what can occur, and values outside saturate. One person gives many rows of `har`, `isolet` and `movielens`, so that a
guarantee for one row is weaker than a guarantee for one person.

Every published data set by name, and which of them share records. A new one is a table of `published.toml`.
"""

import gzip
import io
import lzma
import os
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.data.dataset import Dataset, from_arrays, report
from tacit.data.files import File, data_folder, fetch
from tacit.data.image_folder import cifar_binary
from tacit.data.labels import numbers
from tacit.data.schema import CATEGORY, NUMBER, Column, Schema
from tacit.data.words import read_reviews
from tacit.serialization import tuples

Facts = Mapping[str, Any]
Contents = Sequence[bytes]
_TABLE = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
_UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
_MISSING = "?"
_PARTS = ("x_train", "y_train", "x_test", "y_test")


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


def facts_of(name: str) -> dict[str, Any]:
    """What `published.toml` says of the data set `name`, with the facts of the one that it is like."""
    own = _TABLE["sets"][name]
    return {"name": name} | (facts_of(own["like"]) if "like" in own else {}) | own | {"name": name}


def _source(name: str) -> Source:
    facts = facts_of(name)
    if _is_table(facts):
        facts["features"] = [len(_schema(facts).features)]
    files = tuple(File(path, **tuples(_TABLE["files"][path])) for path in facts.pop("files", ()))
    given: dict[str, Any] = {"classes": ()} | tuples(facts)
    given = {key: value for key, value in given.items() if key in Source.__dataclass_fields__}
    return Source(**given, read=partial(_read, facts, files), files=files)


def _read(facts: dict[str, Any], files: Sequence[File], folder: Path) -> Dataset:
    # Without any of the files that can be missing the others do; one of them alone is a mistake that is told.
    some = any((folder / file.path).exists() for file in files if not file.required)
    needed = [file for file in files if file.required or some]
    contents = [
        _UNPACK.get(Path(file.path).suffix, bytes)(file.content(folder, dataset=facts["name"])) for file in needed
    ]
    found = facts | _READERS[facts["reader"]](facts, contents)
    titles = {"origin": "source", "licence": "licence", "preprocessing": "preprocessing", "split": "split"}
    notes = [f"{title}: {found[name]}" for name, title in titles.items() if name in found]
    taken = ("y_train", "x_test", "y_test", "classes", "task", "target_range", "feature_names", "name", "codes", "seed")
    given = {name: found[name] for name in taken if name in found}
    bounds = (0.0, 1.0) if _is_table(facts) else found["bounds"]
    return from_arrays(found["x_train"], bounds=bounds, notes=notes, **given)


def _is_table(facts: Facts) -> bool:
    return isinstance(facts["bounds"], dict)


def _columns(facts: Facts) -> list[str]:
    return facts.get("columns") or list(facts["bounds"])


def _schema(facts: Facts) -> Schema:
    """The columns of a table; a `complete` one has no missing cells."""
    log = facts.get("logarithmic", ())
    columns = []
    for name in _columns(facts):
        if name in facts["bounds"]:
            low, high = (np.log1p(end) if name in log else end for end in facts["bounds"][name])
            columns.append(Column(name, NUMBER, low, high))
        else:
            known = facts["categories"][name]
            dropped = _MISSING if facts.get("complete") else None
            columns.append(Column(name, CATEGORY, categories=tuple(each for each in known if each != dropped)))
    return Schema(tuple(columns))


def _encoded(facts: Facts, cells: np.ndarray) -> np.ndarray:
    """Features of the columns of `cells`, log(1 + value) of the logarithmic ones."""
    table = {name: cells[:, place] for place, name in enumerate(_columns(facts))}
    table |= {name: np.log1p(np.maximum(numbers(table[name]), 0)) for name in facts.get("logarithmic", ())}
    return _schema(facts).encode(table)


def _bundled(facts: Facts, _: Contents) -> dict[str, Any]:
    """Data sets of scikit-learn."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{facts['name']}")(return_X_y=True)
    if _is_table(facts):
        return {"x_train": _encoded(facts, x), "y_train": y, "feature_names": _schema(facts).features}
    return {"x_train": x.reshape(-1, *facts["features"]) / 16, "y_train": y}


def _delimited(facts: Facts, contents: Contents) -> dict[str, Any]:
    """Delimited text, the answers in the last column; training and test rows where there are two files."""
    found: dict[str, Any] = {"feature_names": _schema(facts).features}
    for part, content in zip(("train", "test"), contents, strict=False):
        cells = cells_of(facts, content)
        found |= {f"x_{part}": _encoded(facts, cells[:, :-1]), f"y_{part}": _answers(facts, cells[:, -1])}
    return found


def cells_of(facts: Facts, content: bytes) -> np.ndarray:
    """The cells as texts, (rows, columns + 1): of lines with as many as are declared, without quotes and final dots.

    Args:
        facts: of the data set.
        content: of a file.
    """
    lines = content.decode("ascii").replace('"', "").splitlines()[facts.get("header", 0) :]
    if "sample" in facts:
        drawn = np.sort(np.random.RandomState(0).permutation(len(lines))[: facts["sample"]])
        lines = [lines[place] for place in drawn]
    skip, separator = facts.get("skip", 0), facts.get("separator", ",")
    width = skip + len(_columns(facts))
    rows = [line.rstrip(".").split(separator) for line in lines if line.count(separator) == width]
    cells = np.array(rows)[:, skip:]
    if facts.get("complete"):
        return cells[(cells != _MISSING).all(axis=1)]
    return np.where(cells == _MISSING, facts.get("missing_as", _MISSING), cells)


def _answers(facts: Facts, cells: np.ndarray) -> np.ndarray:
    if "first_class" in facts:
        return (cells != facts["first_class"]).astype(np.int64)
    if facts.get("task") == "regression" or "above" in facts:
        values = cells.astype(np.float32)
        return (values > facts["above"]).astype(np.int64) if "above" in facts else values
    return cells


def binary(content: bytes, width: int = 123) -> tuple[np.ndarray, np.ndarray]:
    """Features, float32 (rows, width) of 0 and 1, and labels, 0 for -1 and 1 for +1, of LIBSVM text.

    Args:
        content: in which every value is 1, and indices start at 1.
        width: number of features.
    """
    lines = content.decode("ascii").splitlines()
    x = np.zeros((len(lines), width), dtype=np.float32)
    for row, line in enumerate(lines):
        x[row, [int(entry.partition(":")[0]) - 1 for entry in line.split()[1:]]] = 1.0
    return x, np.array([int(line.startswith("+")) for line in lines])


def _parts(*arrays: np.ndarray) -> dict[str, Any]:
    return dict(zip(_PARTS, arrays, strict=True))


def _libsvm(facts: Facts, contents: Contents) -> dict[str, Any]:
    x, y = binary(contents[0])
    if "folds" in facts:
        cut = len(x) - len(x) // facts["folds"]
        return _parts(x[:cut], y[:cut], x[cut:], y[cut:])
    return _parts(x, y, *binary(contents[1]))


def clustered(contents: Contents, clusters: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """All rows of the LIBSVM files, scaled to norm 1, and the cluster of each.

    Args:
        contents: of the files.
        clusters: number of classes.
    """
    from sklearn.cluster import KMeans

    x = np.concatenate([binary(content)[0] for content in contents])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, KMeans(clusters, random_state=0).set_params(n_init=10).fit_predict(x).astype(np.int64)


def _clusters(facts: Facts, contents: Contents) -> dict[str, Any]:
    """Stand-in for Purchase-100 of Jayaraman and Evans (2019), which is not published in a form that can be fetched.

    As there, the classes are 100 clusters of the rows, and train and test rows are drawn in equal parts of each.
    Nothing measured on it compares with a published number.
    """
    from sklearn.model_selection import train_test_split

    x, y = clustered(contents)
    train, test = facts["rows"]
    # The seed that the paper's code uses elsewhere; its split has none.
    drawn = train_test_split(np.arange(len(y)), train_size=train, test_size=test, stratify=y, random_state=21312)
    return _parts(x[drawn[0]], y[drawn[0]], x[drawn[1]], y[drawn[1]])


def _numbers(facts: Facts, contents: Contents) -> dict[str, Any]:
    """Texts of numbers, files of the declared widths side by side; the last column counts classes from 1."""
    found: dict[str, Any] = {}
    half = len(contents) // 2
    for part, files in (("train", contents[:half]), ("test", contents[half:])):
        blocks = [
            np.array(content.replace(b",", b" ").split(), dtype=np.float32).reshape(-1, width)
            for content, width in zip(files, facts["widths"], strict=True)
        ]
        table = np.hstack(blocks)
        found |= {f"x_{part}": table[:, :-1], f"y_{part}": table[:, -1].astype(np.int64) - 1}
    return found


def _npz(_: Facts, contents: Contents) -> dict[str, Any]:
    with np.load(io.BytesIO(contents[0]), allow_pickle=False) as stored:
        return _parts(*(stored[part] for part in _PARTS))


def _idx(facts: Facts, contents: Contents) -> dict[str, Any]:
    """Images and labels in the idx format; test images alone are divided, and the name says so.

    Never compare an accuracy on such a part with a published one.
    """
    arrays = [_idx_array(content) for content in contents]
    images = [array[:, None].astype(np.float32) / np.float32(255) for array in arrays[::2]]
    if len(arrays) == 4:
        return _parts(images[0], arrays[1], images[1], arrays[3])
    cut, rest = facts["fewer_rows"]
    x, y = images[0], arrays[1]
    split = f"first {cut} test images train, last {rest} test; no training images found"
    return {**_parts(x[:cut], y[:cut], x[cut:], y[cut:]), "name": f"{facts['name']}_test", "split": split}


def _cifar(_: Facts, contents: Contents) -> dict[str, Any]:
    """Images and labels in the binary form of CIFAR-10, the test images in the last file."""
    parts = [cifar_binary(content) for content in contents]
    x, y = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    cut = len(x) - len(parts[-1][0])
    x = x.astype(np.float32) / np.float32(255)
    return _parts(x[:cut], y[:cut], x[cut:], y[cut:])


def _idx_array(raw: bytes) -> np.ndarray:
    """The uint8 array behind a big-endian header, whose fourth byte is the number of dimensions."""
    dimensions = raw[3]
    shape = np.frombuffer(raw, dtype=">u4", count=dimensions, offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def ratings(content: bytes, *, separator: str, users: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of user and item counted from 0, int64 (rows, 2), and stars, int64 (rows,), of "user item stars time".

    Args:
        content: the file, one rating a line.
        separator: between the columns.
        users: number of users that the release declares.
        items: number of items that the release declares.

    Raises:
        InvalidInput: a line has other columns, or a number is outside what the release declares.
    """
    table = [line.split(separator) for line in content.decode("ascii").split("\n") if line.strip()]
    if not table or any(len(row) != 4 for row in table):
        raise check.fail("ratings", f"lines of four numbers parted by {separator!r}", "lines of another form")
    values = np.array(table, dtype=np.int64)[:, :3]
    rule = f"of users 1..{users}, items 1..{items} and stars 1..5"
    check.that(((values >= 1) & (values <= [users, items, 5])).all(), "ratings", rule, "others among them")
    pairs, stars = values[:, :2] - 1, values[:, 2]
    return pairs, stars


def _ratings(facts: Facts, contents: Contents) -> dict[str, Any]:
    content = contents[0]
    if "member" in facts:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(facts["member"])
    users, items = (int(last) + 1 for last in facts["bounds"][1])
    pairs, stars = ratings(content, separator=facts["separator"], users=users, items=items)
    return {"x_train": pairs, "y_train": stars}


def _reviews(facts: Facts, contents: Contents) -> dict[str, Any]:
    return read_reviews(facts["name"], contents[0])


_ALL = (_bundled, _cifar, _clusters, _delimited, _idx, _libsvm, _npz, _numbers, _ratings, _reviews)
_READERS: dict[str, Callable[[Facts, Contents], dict[str, Any]]] = {each.__name__[1:]: each for each in _ALL}
_SOURCES: dict[str, Source] = {name: _source(name) for name in _TABLE["sets"]}
"""Every published data set, those bundled with a dependency first."""


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
