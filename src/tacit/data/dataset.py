"""`Dataset`: the arrays of a learning task and what is public about them.

`report` warns of facts that were read from private data without a privacy cost. `split` holds out test rows by a public
rule that looks at no value.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit import check
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

    def resplit(self, *, test_fraction: float = 0.2, seed: int = 0) -> "Dataset":
        """The same rows, pooled and split anew by `split`; for repeated runs over random splits.

        Raises `InvalidInput` for a data set with weights or users, which the test rows have none of.
        """
        if self.weights is not None or self.units is not None:
            raise check.fail("a data set that is split anew", "one without weights and users", self.name)
        x = np.concatenate([self.x_train, self.x_test])
        y = np.concatenate([self.y_train, self.y_test])
        train, test = split(len(y), test_fraction=test_fraction, seed=seed)
        return replace(
            self,
            x_train=x[train],
            y_train=y[train],
            x_test=x[test],
            y_test=y[test],
            notes=(*self.notes, split_note(test_fraction, seed)),
            public_facts=(rows_fact(len(train), len(test)), *self.public_facts[1:]),
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
    if strict:
        raise check.fail(what, "declared as public in strict mode", "values read from the data", how)
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
    if check.count("seed", seed, minimum=0) >= 2**32:
        raise check.fail("seed", "an integer in [0, 2^32)", seed)
    held_out = min(max(round(rows * test_fraction), 1), rows - 1)
    # RandomState alone among numpy's generators promises the same stream in every later version.
    order = np.random.RandomState(seed).permutation(rows)
    return np.sort(order[held_out:]), np.sort(order[:held_out])
