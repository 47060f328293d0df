"""Targets of a learning task: labels as indices into the declared classes, or values in a declared range.

Encoding of one column: numbers scaled to [0, 1] by public bounds, texts one-hot by public categories.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from tacit import check
from tacit.data.files import listed
from tacit.errors import InvalidInput


def numbers(values: np.ndarray) -> np.ndarray:
    """`values` as float64, NaN where a text is no number."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    found, inverse = distinct(values)
    return np.array([float(value) if check.is_number(value) else np.nan for value in found])[inverse]


def scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """(clip(value, low, high) - low) / (high - low) as float32 (rows, 1); NaN where a value is not finite.

    Equal bounds, which only a constant undeclared column has, give 0.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    return ((np.clip(finite, low, high) - low) / ((high - low) or 1.0)).astype(np.float32)[:, None]


def one_hot(values: np.ndarray, categories: Sequence[str]) -> np.ndarray:
    """float32 (rows, categories) with a single 1 in each row; no 1 where the value is none of them."""
    found, inverse = distinct(values)
    hot = np.array([[value == category for category in categories] for value in found], dtype=np.float32)
    return hot[inverse]


def text(value: object) -> str:
    """The one spelling under which values are compared: 1, 1.0 and "1" are the same; None and NaN are empty."""
    if isinstance(value, str):
        return str(value)
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def distinct(values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The distinct texts of `values`, ascending, and for every value the position of its text in that list."""
    if values.dtype.kind in "biufU":
        found, inverse = np.unique(values, return_inverse=True)
        return [text(value) for value in found], inverse.reshape(-1)
    # A table of first places: sorting half a million Python texts takes seconds.
    first: dict[str, int] = {}
    places = np.fromiter((first.setdefault(text(value), len(first)) for value in values), np.int64, len(values))
    order = sorted(first)
    rank = np.empty(len(first), dtype=np.int64)
    rank[[first[value] for value in order]] = np.arange(len(order))
    return order, rank[places]


def declared(name: str, classes: Iterable[object]) -> tuple[str, ...]:
    """`classes` as at least two different texts; raises `InvalidInput` otherwise."""
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise check.fail(name, "a list of at least two names", classes)
    texts = tuple(text(value) for value in classes)
    check.that(len(texts) >= 2 and len(set(texts)) == len(texts), name, "at least two different names", list(texts))
    return texts


def read_classes(*labels: np.ndarray) -> tuple[str, ...]:
    """The classes that occur in `labels`: numbers by value, everything else by spelling."""
    found = {name for array in labels for name in distinct(array)[0]}
    return tuple(sorted(found, key=lambda name: (0, float(name), name) if check.is_number(name) else (1, 0.0, name)))


def indices(
    name: str, labels: np.ndarray, classes: Sequence[str], *, hint: str = "Declare every class, or remove the rows."
) -> np.ndarray:
    """int64 indices into `classes`, shape (rows,).

    A label is one of the classes by value. Integers are taken as indices only where no class reads as a
    number, so that labels 0 and 1 are never mistaken for positions in `classes=("1", "0")`.

    Args:
        name: of the labels, for messages.
        labels: shape (rows,).
        classes: declared, by name.
        hint: what to do, a sentence.

    Raises:
        InvalidInput: a label outside the declared classes; it is quoted only within `check.show_values`.
    """
    found, inverse = distinct(labels)
    position = {value: index for index, value in enumerate(classes)}
    if labels.dtype.kind in "iu" and not any(check.is_number(value) for value in classes):
        position = {str(index): index for index in range(len(classes))}
    unknown = [value for value in found if value not in position]
    rule = f"labels of the declared classes {listed(position, 10)}"
    check.that(not unknown, name, rule, check.private_values(unknown), hint)
    return np.array([position[value] for value in found], dtype=np.int64)[inverse]


TASKS = ("classification", "ratings", "regression")


def class_indices(
    y: np.ndarray, y_held: np.ndarray, classes: Sequence[object] | None, *, task: str
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """int64 indices of the training and test labels, and the classes, read from the labels where None are declared.

    Args:
        y: training labels, shape (records,).
        y_held: test labels, shape (test records,).
        classes: declared classes; None to read them from the labels.
        task: "classification" or "ratings".

    Raises:
        InvalidInput: a label is outside the classes, only one class occurs, or the classes of ratings are no numbers.
    """
    if classes is None:
        classes = read_classes(y, y_held)
        check.that(len(classes) >= 2, "y_train", "labels of at least two classes", check.private_values(classes))
    known = declared("classes", classes)
    if task == "ratings" and not all(check.is_number(name) for name in known):
        raise check.fail("classes", "numbers for ratings", check.private_values(known))
    y, y_held = indices("y_train", y, known), indices("y_test", y_held, known)
    if len(present := np.unique(y)) < 2:
        only = [known[index] for index in present]
        raise check.fail("y_train", "labels of at least two classes", check.private_values(only))
    return y, y_held, known


def values(
    y: np.ndarray, y_held: np.ndarray, target_range: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """float32 values of a regression, and their range, read from them where None is declared.

    Raises `InvalidInput` for values that are no finite numbers or outside the range.
    """
    y, y_held = _finite("y_train", y), _finite("y_test", y_held)
    if target_range is None:
        low, high = float(min(y.min(), y_held.min())), float(max(y.max(), y_held.max()))
    else:
        low = check.real("low of target_range", target_range[0])
        high = check.real("high of target_range", target_range[1], low=low, open_low=True)
    check.that(high > low, "y_train", "at least two different values", "one value")
    for name, array in (("y_train", y), ("y_test", y_held)):
        if outside := int(np.sum((array < low) | (array > high))):
            hint = "Clip the answers to a public range, or declare a wider one."
            raise check.fail(name, "inside the declared target_range", f"{outside} values outside", hint)
    return y, y_held, (low, high)


def _finite(name: str, array: np.ndarray) -> np.ndarray:
    try:
        numbers = array.astype(np.float32)
    except ValueError:
        raise check.fail(name, "numbers for a regression", f"dtype {array.dtype}") from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise InvalidInput(f"{name} must be finite numbers in every row; got rows {listed(bad)} that are not.")
    return numbers
