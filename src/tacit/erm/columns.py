"""Columns of a table by their kind, and the split of one bill between their statistics and a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tacit import check
from tacit.erm.release import Terms
from tacit.mechanisms import Compose, Mechanism

Array = np.ndarray

MOST_CATEGORIES = 4096
"""Codes of a column of categories, at most."""


def categories_of(estimator: Any, categorical: Sequence[Any], low: Array, high: Array) -> dict[int, int]:
    """Column -> number of its codes, from the declared bounds 0 and high.

    Args:
        estimator: whose `feature_names_in_` names its columns.
        categorical: columns by place or name.
        low: (p,), declared; 0 for a column of categories.
        high: (p,), declared; the last code.

    Raises:
        InvalidInput: a column is unknown, or its bounds are not 0 and a whole number.
    """
    names = list(getattr(estimator, "feature_names_in_", ()))
    found: dict[int, int] = {}
    for each in categorical:
        place = names.index(each) if isinstance(each, str) and each in names else each
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or not 0 <= place < len(low):
            raise check.fail("categorical", f"columns of X by name or place below {len(low)}", each)
        if low[place] != 0 or high[place] != np.floor(high[place]) or not 1 <= high[place] < MOST_CATEGORIES:
            hint = f"Declare data_bounds 0 and the last code, below {MOST_CATEGORIES}, for it."
            raise check.fail("categorical", "columns of codes 0, 1, ...", each, hint)
        found[int(place)] = int(high[place]) + 1
    return found


def member_codes(values: Array, count: int) -> Array:
    """The codes 0, ..., count - 1 as integers; `count` for any other value."""
    known = (values >= 0) & (values < count) & (values == np.floor(values))
    return np.where(known, values, count).astype(np.int64)


def split_bill(
    terms: Terms, share: float, parts: tuple[Callable[[float], Mechanism], Callable[[float], Mechanism]]
) -> tuple[float, float, Mechanism]:
    """Noise multipliers of two releases that together meet the target, the first with `share` of mu^2.

    Gaussian releases compose to mu^2 = mu_1^2 + mu_2^2 also where the second is chosen by the first.

    Args:
        terms: of both.
        share: of the first, in [0, 1); with 0 there is the second alone.
        parts: what each releases at a noise multiplier.
    """
    if not share:
        multiplier = terms.noise_multiplier(parts[1])
        return math.inf, multiplier, parts[1](multiplier)

    def scaled(multiplier: float) -> tuple[float, float]:
        return multiplier / math.sqrt(share), multiplier / math.sqrt(1 - share)

    def build(multiplier: float) -> Mechanism:
        each = zip(parts, scaled(multiplier), strict=True)
        return Compose.of(*(pair for part, value in each for pair in part(value).parts()))

    multiplier = terms.noise_multiplier(build)
    return *scaled(multiplier), build(multiplier)
