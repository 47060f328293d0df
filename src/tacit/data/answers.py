"""Answers of each kind of task, checked: indices into declared classes, or values inside a declared range."""

from collections.abc import Sequence

import numpy as np

from tacit import check
from tacit.data import labels

TASKS = ("classification", "ratings", "regression")


def class_indices(
    y: np.ndarray, y_held: np.ndarray, classes: Sequence[object] | None, *, task: str
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """int64 indices of the training and test labels, and the classes, read from the labels where None are declared.

    Raises `InvalidInput` for labels outside the classes, one class only, and ratings whose classes are no numbers.
    """
    known = labels.declared("classes", labels.read_classes(y, y_held) if classes is None else classes)
    if task == "ratings" and not all(labels.is_number(name) for name in known):
        raise check.fail("classes", "numbers for ratings", list(known[:5]))
    y, y_held = labels.indices("y_train", y, known), labels.indices("y_test", y_held, known)
    if len(present := np.unique(y)) < 2:
        raise check.fail("y_train", "labels of at least two classes", [known[index] for index in present])
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
    if high <= low:
        raise check.fail("y_train", "at least two different values", "one value")
    for name, array in (("y_train", y), ("y_test", y_held)):
        outside = int(np.sum((array < low) | (array > high)))
        if outside:
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
        raise check.fail(name, "finite numbers in every row", f"others in rows {bad[:5].tolist()}")
    return numbers
