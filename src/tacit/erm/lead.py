"""What a private fit says of itself: its lead over the constant answer on the training records, measured with noise.

Accuracy on the data is private, so nothing else may tell whether a model is worth more than its most frequent class or
its mean. The measurement is one Gaussian release, paid from the budget of the fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.erm.release import Terms
from tacit.mechanisms import Gaussian

Array = np.ndarray

CHECK_SHARE = 0.05
"""Share of mu^2 that pays the measurement."""
_UNITS = 2.0**20  # values are cut to whole parts of it, so that their sums are exact
_QUARTER = 2.0  # standard error on a quarter of the records, in that on all of them


@dataclass(frozen=True)
class Lead:
    """Lead of a model over the constant answer, per record.

    Attributes:
        value: accuracy less that of the most frequent class, or, in units of half the declared range squared, mean
            squared error of the mean less that of the model.
        noise: standard deviation of the noise in it.
        sampling: standard error on a quarter as many records as the training has; 0 for numbers.
        mean: of the answers in [-1, 1], as it was released; 0 for classes.
    """

    value: float
    noise: float
    sampling: float
    mean: float = 0.0

    @property
    def near(self) -> bool:
        """Whether it is within one standard error of nothing."""
        return self.value <= self.sampling + self.noise


def lead_of_classes(scores: Array, targets: Array, terms: Terms, *, multiplier: float, size: int) -> Lead:
    """Lead in accuracy.

    A record counts in one cell, its class by whether it is answered rightly, so that the counts have sensitivity 1.

    Args:
        scores: (n, 1) of the second class, or (n, classes).
        targets: class of each record.
        terms: of the release, which is charged before the noise is drawn.
        multiplier: noise multiplier.
        size: public number of records.
    """
    classes = max(scores.shape[1], 2)
    truth = targets.astype(np.int64)
    answers = (scores[:, 0] > 0).astype(np.int64) if classes == 2 else scores.argmax(axis=1)
    counts = np.bincount(2 * truth + (answers == truth), minlength=2 * classes).astype(np.float64)
    terms.charge(Gaussian(multiplier), "lead over the constant answer", exact=True)
    wrong, right = terms.noisy(counts, std=multiplier).reshape(classes, 2).T
    usual = int((wrong + right).argmax())
    won, lost = float(right.sum() - right[usual]), float(wrong[usual])
    noise = multiplier * math.sqrt(classes)
    # Fewer different answers than the noise are not told from none.
    sampling = _QUARTER * math.sqrt(max(won + lost, noise)) / size
    return Lead((won - lost) / size, noise / size, sampling)


def lead_of_numbers(scores: Array, targets: Array, terms: Terms, *, multiplier: float, size: int) -> Lead:
    """Lead in squared error, capped at 1 for each record: sum y^2 - min((y - f)^2, 1), less (sum y)^2 / n.

    Args:
        scores: f, (n, 1).
        targets: y in [-1, 1], (n,).
        terms: of the release, which is charged before the noise is drawn.
        multiplier: noise multiplier.
        size: public number of records.
    """
    parts = np.stack([targets, targets**2 - np.minimum((targets - scores[:, 0]) ** 2, 1.0)])
    sums = np.trunc(parts * _UNITS).sum(axis=1) / _UNITS
    terms.charge(Gaussian(multiplier), "lead over the constant answer", exact=True)
    total, gain = terms.noisy(sums, std=multiplier * math.sqrt(2)).tolist()
    mean = max(-1.0, min(1.0, total / size))
    noise = multiplier * math.sqrt(2 * (1 + 4 * mean**2)) / size
    return Lead(gain / size - mean**2, noise, 0.0, mean)
