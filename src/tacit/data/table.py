"""`table`: a CSV or Parquet file or a data frame as a `Dataset`, encoded by declared public knowledge.

Tables that are in memory already: data frames of pandas, polars, Arrow and Hugging Face, and mappings of columns.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.data import labels
from tacit.data.dataset import Dataset, from_arrays, report, rows_fact, split, split_note
from tacit.data.declarations import Declarations, schema_of, undeclared_hint
from tacit.data.delimited import TableFormat, frame_columns, read_columns
from tacit.data.files import bad_cells, listed, optional
from tacit.data.schema import missing_cells


def is_frame(rows: Any) -> bool:
    """Whether `frame` takes `rows`.

    Example:
        >>> is_frame({"age": [41, 27]}), is_frame("patients.csv")
        (True, False)
    """
    return isinstance(rows, Mapping) or _is_pandas(rows) or callable(getattr(rows, "to_pandas", None))


def frame(rows: Any) -> dict[str, np.ndarray]:
    """The columns of a table by name: float64 for numbers, texts otherwise; missing cells are NaN or "".

    Args:
        rows: a frame of pandas, polars (eager), `pyarrow.Table` or `datasets.Dataset`, or a mapping of columns.

    Raises:
        InvalidInput: it is none of these, it is empty, or columns share a name or differ in length.
        TacitError: pandas, by which all of them are read, is not installed.

    Example:
        >>> frame({"age": [41, None], "ward": ["north", None]})
        {'age': array([41., nan]), 'ward': array(['north', ''], dtype=object)}
    """
    rule = "a data frame of pandas, polars, Arrow or Hugging Face datasets, or a mapping of columns"
    check.that(is_frame(rows), "rows", rule, type(rows).__name__)
    pandas = optional("pandas", "to read a data frame")
    if isinstance(rows, Mapping):
        lengths = {np.shape(values)[:1] for values in rows.values()}
        if len(lengths) != 1 or () in lengths:
            raise check.fail("rows", "columns of one length", "columns of several lengths or of none")
        rows = pandas.DataFrame({str(name): list(values) for name, values in rows.items()})
    columns = frame_columns(rows if _is_pandas(rows) else rows.to_pandas(), pandas)
    check.that(columns and len(next(iter(columns.values()))), "rows", "at least one row and one column", "none")
    return columns


def _is_pandas(rows: Any) -> bool:
    return type(rows).__module__.split(".")[0] == "pandas" and hasattr(rows, "iloc")


def table(
    path: str | os.PathLike[str] | Any,
    *,
    form: TableFormat | None = None,
    name: str | None = None,
    strict: bool = False,
    **declared: Any,
) -> Dataset:
    """A `Dataset` from a CSV or Parquet file or a data frame, encoded by declared public knowledge.

    Numeric columns are clipped to their bounds and scaled to [0, 1], dates likewise; columns with categories become
    one 0/1 column for each category. Values outside the bounds saturate silently: to count them would leak.
    Declarations are by column or by pattern ("lab_*"); a name counts before a pattern, a longer one before a shorter.

    Args:
        path: `.csv` (also compressed) or `.parquet`; or a table in memory, as `tacit.data.table.frame` takes it.
        form: how a text file is written; commas, "." and a header line in UTF-8 by default. Of no use with a frame.
        name: for cards and tables; the file's name without its ending, or "table", by default.
        strict: bounds, categories or classes that are read from the data are an error instead of a
            `LeakWarning`.
        **declared: the fields of `tacit.data.declarations.Declarations`, by name: target, classes, bounds, ...

    Raises:
        MissingData: no such file.
        InvalidInput: what `from_arrays` refuses; unknown columns; a cell that is no finite number, date or
            declared category (rows and columns are named).
        TacitError: pandas and pyarrow, which Parquet needs, are not installed.
    """
    check.keys("table", declared, [each.name for each in fields(Declarations)])
    about = Declarations(**{name: value for name, value in declared.items() if value is not None})
    return dataset_from(path, about, form=form or TableFormat(), name=name, strict=strict)


def dataset_from(
    path: str | os.PathLike[str] | Any,
    declared: Declarations,
    *,
    form: TableFormat,
    name: str | None = None,
    strict: bool = False,
    toml: bool = False,
) -> Dataset:
    """`table` by `declared` in one object.

    Args:
        path: of the file, or a data frame.
        declared: about it.
        form: how it is written.
        name: of the data set.
        strict: refuse what is not declared.
        toml: whether messages speak of the keys of a TOML file.

    Raises:
        MissingData, InvalidInput, TacitError: as `table`.
    """
    if isinstance(path, str | os.PathLike):
        columns, source = read_columns(path, form), Path(path).name
    else:
        columns, source = frame(path), "table in memory"
    schema, read = schema_of(declared, columns, toml=toml, headed=is_frame(path))
    unknown = {what: sorted(names) for what, names in read.items() if names}
    leaks = [(f"{what} of {listed(names)}", undeclared_hint(what, names, toml=toml)) for what, names in unknown.items()]
    hint = "Replace it by public knowledge, then take it off read_from_data."
    leaks += [(check.text("each of read_from_data", what), hint) for what in declared.read_from_data]
    classes, span = declared.classes, declared.span
    undeclared = span is None and classes is None
    if undeclared:
        what, form_of = ("target_range", "[low, high]") if declared.task == "regression" else ("classes", "[...]")
        how = f"In [table] declare {what} = {form_of}" if toml else f"Pass {what}={form_of}"
        leaks.append((what, f"{how} from public knowledge."))
    for what, hint in leaks:
        report(what, hint, strict=strict, stacklevel=4)
    x = schema.encode(columns, toml=toml)
    y = _answers(columns[declared.target], declared)
    weights = None if declared.weights is None else _weights(columns[declared.weights], declared)
    users = None if declared.user is None else columns[declared.user]
    units = None if users is None else _units(users, declared)
    train, test, how = _split(len(x), declared, users)
    if undeclared and declared.task == "regression":
        span = float(y.min()), float(y.max())
        check.that(span[1] > span[0], "the target column", "of at least two different values", "one value")
    elif undeclared:
        classes = labels.read_classes(y)
        rule = f"a column of at least two different values in {declared.target}"
        check.that(len(classes) >= 2, "target", rule, check.Told("one value"))
    if classes is not None:
        where = "classes of [table]" if toml else "classes=[...]"
        hint = f"Name every class in {where}, or remove the records without an answer."
        labels.indices(f"the column {declared.target}", y, labels.declared("classes", classes), hint=hint)
    highest = np.array([column.size - 1 for column in schema.columns])
    dataset = from_arrays(
        x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=classes,
        task=declared.task,
        target_range=span,
        bounds=(np.zeros(len(highest)), highest) if schema.codes else (0.0, 1.0),
        codes=schema.codes,
        feature_names=schema.features,
        name=name if name is not None else "table" if is_frame(path) else source.split(".")[0],
        notes=(f"source: {source}, target column {declared.target}", how),
        strict=strict,
    )
    public = [what for what in ("classes", "target_range") if what in dataset.public_facts and not undeclared]
    public += [f"{what} of {', '.join(names)}" for what, names in _kinds(schema, read).items() if names]
    return replace(
        dataset,
        public_facts=(rows_fact(len(train), len(test)), *public),
        leaks=tuple(what for what, _ in leaks),
        schema=schema,
        weights=None if weights is None else weights[train],
        units=None if units is None else units[train],
        test_units=None if units is None or declared.task == "ratings" else units[test],
    )


def _kinds(schema, read: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The columns whose bounds, dates and categories are declared."""
    known = {name for names in read.values() for name in names}
    found: dict[str, list[str]] = {"bounds": [], "dates": [], "categories": []}
    for column in (each for each in schema.columns if each.name not in known):
        found["categories" if column.categories else "dates" if column.kind == "date" else "bounds"].append(column.name)
    return found


def _answers(values: np.ndarray, declared: Declarations) -> np.ndarray:
    """The target column; of a regression as numbers."""
    if declared.task != "regression":
        return values
    answers = np.where(missing_cells(values, declared.codes), np.nan, labels.numbers(values))
    hint = "Remove these rows, because a record without an answer teaches nothing"
    _refuse(~np.isfinite(answers), declared.target, "finite numbers in the target column", hint)
    return answers.astype(np.float32)


def _refuse(bad: np.ndarray, column: str | None, rule: str, hint: str) -> None:
    if bad.any():
        raise bad_cells("table", rule, np.flatnonzero(bad), [str(column)], hint)


def _weights(values: np.ndarray, declared: Declarations) -> np.ndarray:
    """Weights as shares of the declared bound, in [0, 1]: no record counts more than the bound."""
    assert declared.weight_bound is not None
    found = labels.numbers(values)
    _refuse(~(np.isfinite(found) & (found >= 0)), declared.weights, "finite weights >= 0", "Correct these cells")
    return (np.minimum(found, declared.weight_bound) / declared.weight_bound).astype(np.float32)


def _units(values: np.ndarray, declared: Declarations) -> np.ndarray:
    """A number for each user, int64 (rows,)."""
    hint = "A record of nobody is protected as nobody's: name its user, or remove it"
    _refuse(missing_cells(values, declared.codes), declared.user, "users in every row", hint)
    return labels.distinct(values)[1].astype(np.int64)


def _split(rows: int, declared: Declarations, users: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Training rows, test rows, and how they were drawn."""
    if users is None or declared.task == "ratings":
        train, test = split(rows, test_fraction=declared.test_fraction, seed=declared.seed)
        return train, test, split_note(declared.test_fraction, declared.seed)
    check.probability("test_fraction", declared.test_fraction, open_low=True, open_high=True)
    seed = check.count("seed", declared.seed, minimum=0)
    found, inverse = labels.distinct(users)
    # A number in [0, 1) that follows from seed and user alone: whether one is held out tells nothing of others.
    digests = (hashlib.sha256(f"{seed} {user}".encode()).digest() for user in found)
    shares = np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests])
    held = (shares < declared.test_fraction)[inverse]
    if held.all() or not held.any():
        raise check.fail("test_fraction", "one that leaves users for training and for testing", declared.test_fraction)
    note = f"split: users held out as a whole, each with probability {declared.test_fraction:.0%} by seed {seed}"
    return np.flatnonzero(~held), np.flatnonzero(held), note
