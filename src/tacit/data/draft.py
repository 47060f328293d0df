"""`draft`: a TOML configuration for a file that somebody wants to train on, to be finished by hand or by questions.

Without `look` it is made of the header and of the types of the columns: whether every cell that is not empty is a
number, a date or a text. With `look` proposals come from the values, which costs privacy that nobody accounts: the
draft says so in a comment that the reader has to answer.
"""

import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data import labels
from tacit.data.answers import CATEGORY, DATE, DROP, FROM_FILE, NUMBER, USUAL_CODES, Draft, Entry
from tacit.data.declarations import column_named
from tacit.data.delimited import HEADERLESS, SEPARATORS, TableFormat, is_parquet, opened, read_columns, table_file
from tacit.data.schema import day_of, days, missing_cells

_ENCODINGS = ("utf-8", "cp1252", "latin-1")
_TEXT_CATEGORIES = 20  # a column with more values than this is proposed as text, to be left out
_DATES = (
    *("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d"),
    *("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
)
"""Forms of dates that are looked for, the ISO one first; eight digits alone are taken for numbers."""
_IDENTIFIES = re.compile(
    r"(?i)(^|[_ .-])(id|ids|uuid|guid|key|nr|no|number|nummer|ssn|zip|zipcode|plz|postcode|postal_?code)$"
)
_PREFIX_COLUMNS = 4  # so many columns with one prefix share a pattern


def draft(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    task: str | None = None,
    form: TableFormat | None = None,
    look: bool = False,
) -> Draft:
    """The draft of a configuration for the table at `path`.

    Args:
        path: of a CSV or Parquet file.
        target: the column to predict; the last one by default.
        task: "classification", "regression" or "ratings"; classification by default.
        form: how a text file is written; found out by default.
        look: propose bounds, categories and missing-value codes that occur in the data.

    Raises:
        MissingData, InvalidInput: as `read_columns`; the first line seems to hold a record instead of names.
    """
    file = table_file(path)
    found = form or (TableFormat() if is_parquet(file) else format_of(file))
    return draft_of(file.name, read_columns(file, found), found, target=target, task=task, look=look)


def draft_of(
    name: str,
    columns: Mapping[str, np.ndarray],
    form: TableFormat,
    *,
    target: str | None = None,
    task: str | None = None,
    look: bool = False,
) -> Draft:
    """`draft` of a table that was read.

    Args:
        name: of the file.
        columns: its cells by column, each of shape (records,).
        form: in which it is written.
        target: the column of the answers; the last one by default.
        task: "classification" or "regression"; the first by default.
        look: whether categories are taken from the cells, which makes the guarantee only claimed.

    Raises:
        InvalidInput: the first line holds numbers, or there is no such column or task.
    """
    if form.header and any(check.is_number(each) for each in columns):
        rule = "the names of the columns"
        raise check.fail("the first line", rule, "numbers among them", f"{HEADERLESS} Or pass --no-header.")
    names = list(columns)
    goal = names[-1] if target is None else column_named("target", target, names)
    chosen = check.choice("task", task or "classification", labels.TASKS)
    features = [each for each in names if each != goal]
    kinds = {each: _kind(columns[each]) for each in features}
    texts = [each for each in features if look and kinds[each][0] == CATEGORY]
    free = [each for each in texts if len(labels.distinct(columns[each])[0]) > _TEXT_CATEGORIES]
    goals = Entry(goal, (goal,), NUMBER if chosen == "regression" else CATEGORY)
    entries, notes = tuple(_entries(kinds, free)), tuple(_notes(form, free))
    drafted = Draft(name, form, len(columns[goal]), chosen, goals, entries, tuple(names), notes=notes)
    return _looked(drafted, columns) if look else drafted


def _entries(kinds: Mapping[str, tuple[str, str]], free: Sequence[str]) -> list[Entry]:
    """Columns of one kind under one pattern; free text and what is named like an identifier stands alone, left out."""
    left_out = {name for name in kinds if name in free or _IDENTIFIES.search(name)}
    found = [Entry(name, (name,), DROP) for name in left_out]
    for role, form in dict.fromkeys(kinds.values()):
        names = [name for name, kind in kinds.items() if kind == (role, form) and name not in left_out]
        grouped = {name: [name] for name in names} if role == CATEGORY else patterns(names)
        found += [Entry(key, tuple(group), role, date_format=form) for key, group in grouped.items()]
    order = list(kinds)
    return sorted(found, key=lambda entry: order.index(entry.columns[0]))


def _looked(drafted: Draft, columns: Mapping[str, np.ndarray]) -> Draft:
    """With what occurs in the data: ends, categories, codes, and a constant where cells are missing."""
    target, *entries = (look_at(entry, columns) for entry in (drafted.target, *drafted.entries))
    codes = {value for values in columns.values() for value in labels.distinct(values)[0] if value in USUAL_CODES}
    ranged = [name for entry in entries if entry.role in (NUMBER, DATE) for name in entry.columns]
    absent = tuple(name for name in ranged if missing_cells(columns[name], USUAL_CODES).any())
    seen = {"missing": tuple(sorted(codes)), "indicator": absent, "looked": True}
    return replace(drafted, target=target, entries=tuple(entries), **seen)


def look_at(entry: Entry, columns: Mapping[str, np.ndarray]) -> Entry:
    """The entry with the values that occur in its columns, whose source is the file: a leak."""
    if entry.role == DROP:
        return entry
    values = np.concatenate([columns[name] for name in entry.columns])
    present = values[~missing_cells(values, USUAL_CODES)]
    if entry.role == CATEGORY:
        return replace(entry, values=labels.read_classes(present), source=FROM_FILE)
    low, high = _ends(present, entry.date_format if entry.role == DATE else None)
    return replace(entry, low=low, high=high, source=FROM_FILE)


def _ends(present: np.ndarray, form: str | None) -> tuple[str, str]:
    """Lowest and highest number; of dates in `form`, "" for ISO 8601, first and last."""
    if form is not None:
        texts = sorted(labels.distinct(present)[0], key=lambda text: day_of(text, form))
        return (texts[0], texts[-1]) if form else (texts[0][:10], texts[-1][:10])
    finite = labels.numbers(present)
    finite = finite[np.isfinite(finite)]
    if not len(finite) or finite.min() == finite.max():
        return "0", "1"
    return repr(float(finite.min())), repr(float(finite.max()))


def format_of(file: Path) -> TableFormat:
    """How a text file seems to be written: its encoding, and the separator and decimal point of its first lines."""
    encoding, lines = "", []
    for encoding in _ENCODINGS:
        try:
            with opened(file, encoding) as stream:
                lines = [line for line in islice(stream, 20) if line.strip()]
                deque(stream, maxlen=0)  # The whole file must be readable, not only its beginning.
            break
        except UnicodeError:
            continue  # Latin-1 reads any bytes.
        except OSError:
            return TableFormat()
    first = lines[0] if lines else ""
    separator = max(SEPARATORS, key=first.count) if any(map(first.count, SEPARATORS)) else ","
    cells = [cell.strip().strip('"') for line in lines[1:] for cell in line.split(separator)]
    commas = sum("," in cell and check.is_number(cell.replace(",", ".")) for cell in cells)
    points = sum("." in cell and check.is_number(cell) for cell in cells)
    return TableFormat(separator, "," if separator != "," and commas > points else ".", encoding)


def _kind(values: np.ndarray) -> tuple[str, str]:
    """The role that all cells of a column allow that are not missing, and the form of its dates."""
    if values.dtype.kind in "biuf":
        return NUMBER, ""
    present = values[~missing_cells(values, USUAL_CODES)]
    if all(map(check.is_number, labels.distinct(present)[0])):
        return NUMBER, ""
    form = date_form(present)
    return (CATEGORY, "") if form is None else (DATE, form)


def date_form(values: np.ndarray) -> str | None:
    """The form of `strptime` in which all cells are dates that are not missing, "" for ISO 8601; None where none is.

    Example:
        >>> date_form(np.array(["31.12.1999", ""], dtype=object))
        '%d.%m.%Y'
    """
    found = np.array(labels.distinct(values[~missing_cells(values, USUAL_CODES)])[0], dtype=object)
    likely = [form for form in _DATES if np.isfinite(days(found[:1], form)).all()]
    return next((form for form in likely if np.isfinite(days(found, form)).all()), None)


def patterns(names: Sequence[str]) -> dict[str, list[str]]:
    """Columns under a pattern where at least four share what stands before a number or the last underscore.

    Example:
        >>> patterns(["age", "lab_1", "lab_2", "lab_3", "lab_4"])
        {'age': ['age'], 'lab_*': ['lab_1', 'lab_2', 'lab_3', 'lab_4']}
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        numbered = name[-1:].isdigit()
        stem = name.rstrip("0123456789") if numbered else name.rpartition("_")[0] + "_" * ("_" in name)
        groups.setdefault(stem if stem.strip("_") else name, []).append(name)
    found: dict[str, list[str]] = {}
    for stem, group in groups.items():
        found |= {f"{stem}*": group} if len(group) >= _PREFIX_COLUMNS else {name: [name] for name in group}
    return found


def _notes(form: TableFormat, free: Sequence[str]) -> list[str]:
    other = f"The text is not UTF-8; it was read as {form.encoding}. Check names with accents."
    found = {
        f"Cells are separated by {form.separator!r}.": form.separator != ",",
        "Numbers have a decimal comma.": form.decimal == ",",
        other: form.encoding != "utf-8",
        f"{len(free)} columns of free text are left out by drop.": bool(free),
    }
    return [sentence for sentence, holds in found.items() if holds]
