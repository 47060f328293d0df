"""`Dataset`: the arrays of a learning task and what is public about them.

`report` warns of facts that were read from private data without a privacy cost. `split` holds out test rows by a public
rule that looks at no value.

`from_arrays`: the checks that every data set passes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit import check
from tacit.data.files import bad_cells, listed
from tacit.data.labels import TASKS, class_indices, values
from tacit.data.schema import Schema
from tacit.errors import LeakWarning

Bounds = tuple[float | np.ndarray, float | np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Training and test arrays with their declared classes and bounds; `from_arrays` builds and checks it.

    Attributes:
        name: what cards and tables call it.
        x_train: float32, (rows, features) for tables and (rows, channels, height, width) for images; int64
            (rows, places) for numbers of words, users or items.
        y_train: int64 indices into `classes`, (rows,); for a regression float32 values.
        x_test: features of the test rows, as `x_train`.
        y_test: labels of the test rows, as `y_train`.
        classes: names of the classes, declared rather than learned; none for a regression.
        bounds: lowest and highest value of the features: one pair of numbers, or a pair of arrays that
            broadcast against one row.
        feature_names: one name for each column of a table, or None.
        notes: source, licence, preprocessing, split.
        public_facts: what is treated as known to everybody.
        leaks: what was read from the data without a privacy cost; empty where every fact is declared.
        task: "classification", "ratings" (classes that are numbers) or "regression".
        target_range: lowest and highest value that the answer of a regression can have, declared.
        schema: how the columns of a table became features; None for other data.
        features: the `tacit.features.PublicFeatures` that the inputs were made by; None where they are as published.
        weights: of the training rows in the loss, float32 in [0, 1], shares of a declared bound; None for equal ones.
        units: number of the privacy unit (user) of each training row, int64; None where every record is one.
        test_units: the same of each test row, where whole users are held out; None otherwise.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    bounds: Bounds
    feature_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    public_facts: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    task: str = "classification"
    target_range: tuple[float, float] = (0.0, 1.0)
    schema: Schema | None = None
    features: Any = None
    weights: np.ndarray | None = None
    units: np.ndarray | None = None
    test_units: np.ndarray | None = None

    def without(self, aside: np.ndarray) -> "Dataset":
        """The same data without the training rows where `aside`, shape (rows,), is True."""
        kept = ~aside
        return replace(
            self,
            x_train=self.x_train[kept],
            y_train=self.y_train[kept],
            weights=None if self.weights is None else self.weights[kept],
            units=None if self.units is None else self.units[kept],
            public_facts=(rows_fact(int(kept.sum()), len(self.y_test)), *self.public_facts[1:]),
        )

    def __repr__(self) -> str:
        # Never the values: a repr ends up in logs.
        shapes = f"train={self.x_train.shape}, test={self.x_test.shape}"
        return f"Dataset({self.name!r}, {shapes}, classes={len(self.classes)})"


def split_note(test_fraction: float, seed: int) -> str:
    """How a random split was drawn, for `Dataset.notes`."""
    return f"split: {test_fraction:.0%} of all rows held out, drawn with seed {seed}"


def rows_fact(train: int, test: int) -> str:
    """The first of `Dataset.public_facts`."""
    return f"number of rows: {train} for training, {test} for testing"


def report(what: str, how: str, *, strict: bool, stacklevel: int = 3) -> None:
    """Tell the caller that `what` was read from the data, and by `how` what to declare instead.

    Warns with `LeakWarning`.

    Args:
        what: the values that were read, as a noun.
        how: the remedy, a sentence.
        strict: whether to raise instead of warning.
        stacklevel: frames up to the caller whom the warning names.

    Raises:
        InvalidInput: `strict` is set.
    """
    check.that(not strict, what, "declared as public in strict mode", check.Told("values read from the data"), how)
    message = f"{what} came from private data, which no guarantee covers. {how}"
    warnings.warn(message, LeakWarning, stacklevel=stacklevel)


def split(rows: int, *, test_fraction: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test rows, each ascending.

    Drawn from `seed` and the number of rows alone, so nothing about the records leaks through it; no label
    is looked at, hence no stratification.

    Args:
        rows: at least 2.
        test_fraction: in (0, 1); round(rows * test_fraction) rows are held out, at least 1, at most rows - 1.
        seed: integer in [0, 2^32).
    """
    check.count("rows", rows, minimum=2, hint="A split needs a row for training and one for testing.")
    check.probability("test_fraction", test_fraction, open_low=True, open_high=True)
    check.that(check.count("seed", seed, minimum=0) < 2**32, "seed", "an integer in [0, 2^32)", seed)
    held_out = min(max(round(rows * test_fraction), 1), rows - 1)
    # RandomState alone among numpy's generators promises the same stream in every later version.
    order = np.random.RandomState(seed).permutation(rows)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


_HOW = {"classes": "[...]", "bounds": "(low, high)", "target_range": "(low, high)"}


def from_arrays(
    x_train: ArrayLike,
    *,
    y_train: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    classes: Sequence[object] | None = None,
    task: str = "classification",
    target_range: tuple[float, float] | None = None,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    feature_names: Sequence[str] | None = None,
    name: str = "arrays",
    notes: Sequence[str] = (),
    codes: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
    strict: bool = False,
) -> Dataset:
    """A `Dataset` from arrays, with every check that the library makes on data.

    Args:
        x_train: finite numbers, (rows, features) or (rows, channels, height, width); kept as float32.
        y_train: labels, (rows,): values of `classes`, or indices when the classes are words.
        x_test: features of the test rows; without test arrays `split` holds out `test_fraction` of the rows.
        y_test: labels of the test rows, given together with `x_test`.
        classes: every class that can occur, public knowledge. None reads them from the labels: a leak.
        task: "classification", "ratings" (classes that read as numbers) or "regression".
        target_range: lowest and highest answer of a regression, public knowledge. None reads them: a leak.
        bounds: lowest and highest value, two numbers or two arrays that broadcast against one row, public
            knowledge. None reads them from the features: a leak.
        feature_names: one name for each column of a table.
        name: of the data set, for cards and tables.
        notes: how the data were prepared, for cards and tables.
        codes: the features are numbers of words, users or items, kept as int64.
        test_fraction: share of the rows held out without test arrays, in (0, 1); see `split`.
        seed: of that split; public.
        strict: a leak is an error instead of a `LeakWarning`.

    Raises:
        InvalidInput: empty arrays, widths or lengths that differ, NaN or infinity (rows and columns are
            named), labels outside the classes, one class only, values outside the bounds or the target range,
            or a leak in strict mode.
    """
    kind = np.int64 if codes else np.float32
    x, y = _part("train", x_train, y_train, feature_names, kind)
    notes = tuple(notes)
    if x_test is None and y_test is None:
        train, test = split(len(x), test_fraction=test_fraction, seed=seed)
        x, x_held, y, y_held = x[train], x[test], y[train], y[test]
        notes += (split_note(test_fraction, seed),)
    else:
        x_held, y_held = _part("test", x_test, y_test, feature_names, kind)
    if x.shape[1:] != x_held.shape[1:]:
        raise check.fail("x_test", f"rows of shape {x.shape[1:]}, as in x_train", x_held.shape[1:])

    regression = check.choice("task", task, TASKS) == "regression"
    answers = ("target_range", target_range) if regression else ("classes", classes)
    leaks = tuple(what for what, given in (answers, ("bounds", bounds)) if given is None)
    for what in leaks:
        report(what, f"Pass {what}={_HOW[what]} from public knowledge.", strict=strict)
    if bounds is None:
        limits = np.minimum(x.min(axis=0), x_held.min(axis=0)), np.maximum(x.max(axis=0), x_held.max(axis=0))
    else:
        limits = declared_ends("bounds", bounds, x.shape[1:], f"an array that fits a row of shape {x.shape[1:]}")
    columns = _columns(feature_names, x)
    _inside("x_train", x, limits, columns)
    _inside("x_test", x_held, limits, columns)
    known, span = (), (0.0, 1.0)
    if regression:
        y, y_held, span = values(y, y_held, target_range)
    else:
        y, y_held, known = class_indices(y, y_held, classes, task=task)
    public = (what for what in (answers[0], "bounds") if what not in leaks)
    return Dataset(
        name=name,
        x_train=x,
        y_train=y,
        x_test=x_held,
        y_test=y_held,
        classes=known,
        bounds=limits,
        feature_names=None if feature_names is None else tuple(feature_names),
        notes=notes,
        public_facts=(rows_fact(len(x), len(x_held)), *public),
        leaks=leaks,
        task=task,
        target_range=span,
    )


def _part(
    part: str, x: ArrayLike | None, y: ArrayLike | None, feature_names: Sequence[str] | None, kind: type
) -> tuple[np.ndarray, np.ndarray]:
    features = _numbers(f"x_{part}", x, feature_names, kind)
    with check.reading(f"y_{part}", "one label for each row"):
        answers = np.asarray(y)
    check.that(answers.ndim == 1, f"y_{part}", "one label for each row, shape (rows,)", answers.shape)
    rule = f"of length {len(features)}, one label for each row of x_{part}"
    check.that(len(features) == len(answers), f"y_{part}", rule, len(answers))
    return features, answers


def _numbers(name: str, given: ArrayLike | None, feature_names: Sequence[str] | None, kind: type) -> np.ndarray:
    with check.reading(name, "an array of numbers"):
        array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise check.fail(name, "an array of numbers", f"dtype {array.dtype}", "Encode text columns first.")
    if kind is np.int64 and array.dtype.kind not in "iu":
        raise check.fail(name, "an array of integers, because codes=True", f"dtype {array.dtype}")
    if array.ndim < 2 or array.size == 0:
        raise check.fail(name, "of shape (rows, features) with at least one of each", array.shape)
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=kind)
    finite = np.isfinite(array)
    if not finite.all():
        rows, places = np.nonzero(~finite.reshape(len(array), -1))
        columns = _columns(feature_names, array)
        bad = [columns[place] for place in np.unique(places).tolist()]
        raise bad_cells(name, "finite numbers in every row and column", rows, bad)
    return array


def _columns(feature_names: Sequence[str] | None, x: np.ndarray) -> Sequence[object]:
    width = int(np.prod(x.shape[1:]))
    if feature_names is None:
        return range(width)
    if isinstance(feature_names, str) or len(feature_names) != width or len(set(feature_names)) != width:
        raise check.fail("feature_names", f"{width} different names, one for each column", list(feature_names)[:5])
    return list(feature_names)


def declared_ends(name: str, given: Any, shape: tuple[int, ...], each: str, *, kind: type = np.float32) -> Bounds:
    """Lower and upper bounds of a row of `shape`, each a number or an array that fits it.

    Args:
        name: of the argument.
        given: the pair of them.
        shape: of a row.
        each: what an end may be besides a number, in words.
        kind: float type.

    Raises:
        InvalidInput: they are not a pair low <= high, finite and of a fitting shape.
    """
    wrong = check.fail(name, f"(low, high) with low <= high, finite, each a number or {each}", given)
    try:
        low, high = (np.asarray(end, dtype=kind) for end in given)
        ordered = bool(np.all(np.broadcast_to(low, shape) <= np.broadcast_to(high, shape)))
    except (TypeError, ValueError):
        raise wrong from None
    if not (ordered and np.isfinite(low).all() and np.isfinite(high).all()):
        raise wrong
    return (float(low) if low.ndim == 0 else low, float(high) if high.ndim == 0 else high)


def _inside(name: str, values: np.ndarray, bounds: Bounds, columns: Sequence[object]) -> None:
    low, high = bounds
    outside = ((values.min(axis=0) < low) | (values.max(axis=0) > high)).reshape(-1)
    if outside.any():
        bad = listed(columns[place] for place in np.flatnonzero(outside).tolist())
        hint = "Clip the values to public bounds, or declare wider ones."
        raise check.fail(name, "inside the declared bounds", f"values outside in columns {bad}", hint)
