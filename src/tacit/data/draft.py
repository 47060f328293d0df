"""`draft`: a TOML configuration for a file that somebody wants to train on, to be finished by hand.

Without `look` it is made of the header and of the types of the columns: whether every cell that is not empty is a
number, a date or a text. With `look` proposals come from the values, which costs privacy that nobody accounts: the
draft says so in a comment that the reader has to answer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data import labels
from tacit.data.delimited import HEADERLESS, SEPARATORS, TableFormat, is_parquet, opened, read_columns, table_file
from tacit.data.labels import numbers
from tacit.data.schema import day_of, days, missing_cells

# Texts that stand for a missing number in the files of common programs.
USUAL_CODES = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", "-", ".")
_ENCODINGS = ("utf-8", "cp1252", "latin-1")
_TEXT_CATEGORIES = 20  # a column with more values than this is proposed as text, to be left out
_DATES = ("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d")
"""Forms of dates that are looked for, the ISO one first; eight digits alone are taken for numbers."""
_IDENTIFIES = re.compile(
    r"(?i)(^|[_ .-])(id|ids|uuid|guid|key|nr|no|number|nummer|ssn|zip|zipcode|plz|postcode|postal_?code)$"
)
_READ = ("classes or target_range", "bounds and dates", "categories", "missing-value codes")
_PREFIX_COLUMNS = 4  # so many columns with one prefix share a pattern


@dataclass(frozen=True)
class Draft:
    """A drafted configuration.

    Attributes:
        text: TOML, with a question in a comment wherever an answer is needed.
        notes: what was noticed about the file, a sentence each, for the terminal.
        looked: whether values were read.
    """

    text: str
    notes: tuple[str, ...]
    looked: bool


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
        task: "classification", "regression" or "ratings"; by the target's type by default.
        form: how a text file is written; found out by default.
        look: propose bounds, categories and missing-value codes that occur in the data.

    Raises:
        MissingData, InvalidInput: as `read_columns`; the first line seems to hold a record instead of names.
    """
    file = table_file(path)
    found = form or (TableFormat() if is_parquet(file) else format_of(file))
    columns = read_columns(file, found)
    if found.header and any(check.is_number(name) for name in columns):
        rule = "the names of the columns"
        raise check.fail("the first line", rule, "numbers among them", f"{HEADERLESS} Or pass --no-header.")
    names = list(columns)
    goal = names[-1] if target is None else check.choice("target", target, names)
    kinds = {name: kind_of(values) for name, values in columns.items()}
    forms = {name: date_form(columns[name]) or "" for name, kind in kinds.items() if kind == "date"}
    chosen = check.choice("task", task or "classification", labels.TASKS)
    features = [name for name in names if name != goal]
    by_kind = {kind: [name for name in features if kinds[name] == kind] for kind in ("number", "date", "text")}
    seen = columns if look else {}
    free = [name for name in by_kind["text"] if look and _many(columns[name])]
    ranged = [name for name in features if kinds[name] != "text"]
    named = [name for name in features if _IDENTIFIES.search(name) and name not in free]
    absent = [name for name in ranged if look and missing_cells(columns[name], USUAL_CODES).any()]
    parts = [
        _head(file, chosen, look),
        _section(file, found, goal, chosen, columns[goal] if look else None),
        _drop(free, named),
        _missing(absent, seen),
        _ranges("bounds", by_kind["number"], seen, {}),
        _ranges("dates", by_kind["date"], seen, forms),
        _categories([name for name in by_kind["text"] if name not in free], seen),
        _fill(absent, seen, forms),
    ]
    return Draft("\n".join(part for part in parts if part), tuple(_notes(found, free)), look)


def format_of(file: Path) -> TableFormat:
    """How a text file seems to be written: its encoding, and the separator and decimal point of its first lines."""
    for encoding in _ENCODINGS:
        try:
            with opened(file, encoding) as stream:
                lines = [line for line in (stream.readline() for _ in range(20)) if line.strip()]
                # The whole file must be readable, not only its beginning.
                for _ in stream:
                    pass
            break
        except UnicodeError:
            continue
        except OSError:
            return TableFormat()
    else:
        return TableFormat()
    first = lines[0] if lines else ""
    separator = max(SEPARATORS, key=first.count) if any(map(first.count, SEPARATORS)) else ","
    cells = [cell.strip().strip('"') for line in lines[1:] for cell in line.split(separator)]
    commas = sum("," in cell and check.is_number(cell.replace(",", ".")) for cell in cells)
    points = sum("." in cell and check.is_number(cell) for cell in cells)
    return TableFormat(
        separator=separator, decimal="," if separator != "," and commas > points else ".", encoding=encoding
    )


def kind_of(values: np.ndarray) -> str:
    """The type of a column: "number", "date" or "text", whichever all cells are that are not missing."""
    if values.dtype.kind in "biuf":
        return "number"
    present = values[~missing_cells(values, USUAL_CODES)]
    found = labels.distinct(present)[0]
    if all(map(check.is_number, found)):
        return "number"
    return "text" if date_form(values) is None else "date"


def date_form(values: np.ndarray) -> str | None:
    """The form of `strptime` in which all cells are dates that are not missing, "" for ISO 8601; None where none is.

    Example:
        >>> date_form(np.array(["31.12.1999", ""], dtype=object))
        '%d.%m.%Y'
    """
    present = values[~missing_cells(values, USUAL_CODES)]
    found = np.array(labels.distinct(present)[0], dtype=object)
    return next((form for form in _DATES if np.isfinite(days(found, form)).all()), None)


def _many(values: np.ndarray) -> bool:
    return len(labels.distinct(values)[0]) > _TEXT_CATEGORIES


def quoted(value: object) -> str:
    """`value` as TOML writes it: a string in quotation marks, true or false."""
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else quoted(name)


def _head(file: Path, task: str, look: bool) -> str:
    model = "recommender" if task == "ratings" else "linear"
    strict = (
        "strict = false           # true once read_from_data is empty"
        if look
        else "strict = true            # anything that is not declared is an error"
    )
    return f"""# Draft of `tacit table init {file.name}`.
# Every question mark needs an answer from what is known publicly about such data, never from the file.
# Then run: tacit train THIS.toml
dataset = "table"
model = "{model}"
epsilon = 2.0            # how much may be learned about one person at most?
delta = 1e-5             # is it below 1 / number of records?
epochs = 20
batch_size = 128
learning_rate = 0.5
clip_norm = 1.0
{strict}
"""


def _section(file: Path, form: TableFormat, target: str, task: str, answers: np.ndarray | None) -> str:
    """The keys of [table]; those that wait for an answer are comments."""
    lines = ["[table]", f"path = {quoted(file.name)}      # from the folder of this file on"]
    usual = TableFormat()
    for name in ("separator", "decimal", "encoding", "header"):
        if getattr(form, name) != getattr(usual, name):
            lines.append(f"{name} = {quoted(getattr(form, name))}")
    if form.names:
        lines.append(f"names = [{', '.join(map(quoted, form.names))}]   # what are the columns called?")
    others = " or ".join(each for each in labels.TASKS if each != task)
    lines.append(f"target = {quoted(target)}   # is this what is predicted?")
    lines.append(f"task = {quoted(task)}   # or {others}?")
    if task == "regression":
        low, high = ("?", "?") if answers is None else _ends(answers)
        lines.append(_line(f"target_range = [{low}, {high}]", "which answers can occur at all?", answers is None))
    else:
        known = [] if answers is None else [quoted(value) for value in labels.read_classes(answers) if value]
        lines.append(_line(f"classes = [{', '.join(known) or '?'}]", "which answers can occur?", answers is None))
    lines += [
        '# user = "?"      # can one person have several records? The column that says whose a record is',
        '# weights = "?"   # is there a column of weights? With weight_bound = the largest weight that counts',
    ]
    if answers is not None:
        read = ", ".join(map(quoted, _READ))
        lines.append(f"read_from_data = [{read}]   # take off what is public knowledge now")
    return "\n".join(lines) + "\n"


def _line(text: str, question: str, waiting: bool) -> str:
    """A line of TOML; a comment as long as it waits for an answer."""
    return f"# {text}   # {question}" if waiting else f"{text}   # {question}"


def _drop(free: Sequence[str], named: Sequence[str]) -> str:
    """The key drop: free text, and as a question what is named like an identifier or a postcode."""
    if named:
        columns = ", ".join(map(quoted, [*free, *named]))
        asked = f"# drop = [{columns}]   # do these name people or places? Then take off the first #.\n"
    else:
        asked = ""
    return asked + _left_out(free)


def _left_out(free: Sequence[str]) -> str:
    if not free:
        return ""
    advice = "# Text with a value for almost every record is no feature, and it may name people: left out."
    return f"{advice}\ndrop = [{', '.join(map(quoted, free))}]\n"


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
        shared = len(group) >= _PREFIX_COLUMNS
        found |= {f"{stem}*": group} if shared else {name: [name] for name in group}
    return found


def _ranges(section: str, names: Sequence[str], seen: Mapping[str, np.ndarray], forms: Mapping[str, str]) -> str:
    if not names:
        return ""
    question = "Between which values?" if section == "bounds" else "Which first and last day?"
    lines = [f"[table.{section}]   # {question} Values outside count as the nearest end."]
    for key, group in patterns(names).items():
        form = forms.get(group[0]) if section == "dates" else None
        low, high = _shared_ends([seen[name] for name in group], form) if seen else ("?", "?")
        last = f", {quoted(form)}" if form else ""
        words = f"for {len(group)} columns?" if len(group) > 1 else "?"
        lines.append(_line(f"{_key(key)} = [{low}, {high}{last}]", words, not seen))
    return "\n".join(lines) + "\n"


def _shared_ends(columns: Sequence[np.ndarray], form: str | None) -> tuple[object, object]:
    return _ends(np.concatenate(list(columns)), form)


def _ends(values: np.ndarray, form: str | None = None) -> tuple:
    """Lowest and highest number; of dates in `form`, "" for ISO 8601, first and last as texts."""
    present = values[~missing_cells(values, USUAL_CODES)]
    if form is not None:
        texts = sorted(labels.distinct(present)[0], key=lambda text: day_of(text, form))
        cut = None if form else 10
        return quoted(texts[0][:cut]), quoted(texts[-1][:cut])
    finite = numbers(present)
    finite = finite[np.isfinite(finite)]
    if not len(finite) or finite.min() == finite.max():
        return (0.0, 1.0)
    return float(finite.min()), float(finite.max())


def _categories(names: Sequence[str], seen: Mapping[str, np.ndarray]) -> str:
    if not names:
        return ""
    lines = ['[table.categories]   # Which values can occur? "" is a missing cell. Drop free text and names.']
    for name in names:
        known = []
        if seen:
            gone = missing_cells(seen[name], USUAL_CODES)
            known = [quoted(value) for value in labels.distinct(seen[name][~gone])[0]] + ['""'] * bool(gone.any())
        lines.append(_line(f"{_key(name)} = [{', '.join(known) or '?'}]", "?", not seen))
    return "\n".join(lines) + "\n"


def _missing(absent: Sequence[str], seen: Mapping[str, np.ndarray]) -> str:
    """The codes of missing cells, and which columns say so by an indicator."""
    if not seen:
        return (
            '# missing = ["NA", "-9"]   # which codes stand for a missing cell? An empty cell always does.\n'
            '# indicator = ["?"]        # in which columns does absence say something itself?\n'
        )
    codes = {value for values in seen.values() for value in labels.distinct(values)[0] if value in USUAL_CODES}
    lines = [f"missing = [{', '.join(map(quoted, sorted(codes)))}]   # which codes stand for a missing cell?"]
    if absent:
        lines.append(f"indicator = [{', '.join(map(quoted, absent))}]   # does absence say something itself?")
    return "\n".join(lines) + "\n"


def _fill(absent: Sequence[str], seen: Mapping[str, np.ndarray], forms: Mapping[str, str]) -> str:
    """Constants for missing numbers and dates: the lowest value that occurs, where the data were looked at."""
    lines = ["[table.fill]   # Which constant stands for a missing number or date? Without one it is an error."]
    for name in absent:
        lines.append(f"{_key(name)} = {_ends(seen[name], forms.get(name))[0]}   # ?")
    if not absent:
        lines.append('# "*" = ?')
    return "\n".join(lines) + "\n"


def _notes(form: TableFormat, free: Sequence[str]) -> list[str]:
    found = []
    if form.separator != ",":
        found.append(f"Cells are separated by {form.separator!r}.")
    if form.decimal == ",":
        found.append("Numbers have a decimal comma.")
    if form.encoding != "utf-8":
        found.append(f"The text is not UTF-8; it was read as {form.encoding}. Check names with accents.")
    if free:
        found.append(f"{len(free)} columns of free text are left out by drop.")
    return found
