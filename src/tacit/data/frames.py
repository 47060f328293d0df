"""Tables that are in memory already: data frames of pandas, polars, Arrow and Hugging Face, and mappings of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit import check
from tacit.data.delimited import frame_columns
from tacit.data.files import optional


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
    if not is_frame(rows):
        rule = "a data frame of pandas, polars, Arrow or Hugging Face datasets, or a mapping of columns"
        raise check.fail("rows", rule, type(rows).__name__)
    pandas = optional("pandas", "to read a data frame")
    if isinstance(rows, Mapping):
        lengths = {np.shape(values)[:1] for values in rows.values()}
        if len(lengths) != 1 or () in lengths:
            raise check.fail("rows", "columns of one length", "columns of several lengths or of none")
        rows = pandas.DataFrame({str(name): list(values) for name, values in rows.items()})
    columns = frame_columns(rows if _is_pandas(rows) else rows.to_pandas(), pandas)
    if not columns or not len(next(iter(columns.values()))):
        raise check.fail("rows", "at least one row and one column", "none")
    return columns


def _is_pandas(rows: Any) -> bool:
    return type(rows).__module__.split(".")[0] == "pandas" and hasattr(rows, "iloc")
