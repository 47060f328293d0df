"""Metrics of held-out rows that help to decide: base rate, intervals, AUROC, recall, calibration, R2.

They are statistics of held-out records without noise: the guarantee of a run does not cover them.

How well predictions fit held-out rows: one metric for each kind of task.
"""

import numpy as np
from scipy.special import ndtri

from tacit import check
from tacit.audit.bounds import clopper_pearson
from tacit.data import Dataset


def measure_of(dataset: Dataset) -> str:
    """Name of the metric: "accuracy" of classes, else "rmse", of ratings by the expected one, sum_k k p_k."""
    return "accuracy" if dataset.task == "classification" else "rmse"


def metric_on_test(dataset: Dataset, predicted: np.ndarray) -> float:
    """The metric of predictions (n, ...) of the test rows."""
    if dataset.task == "classification":
        return float(np.mean(predicted.argmax(axis=1) == dataset.y_test))
    return _rmse(expected_numbers(dataset, predicted), numbers_of(dataset, dataset.y_test))


def constant_test(dataset: Dataset) -> float:
    """Test metric of the best constant prediction: the training mean or the commonest class."""
    if dataset.task == "classification":
        return float(np.mean(dataset.y_test == np.bincount(dataset.y_train).argmax()))
    truth = numbers_of(dataset, dataset.y_test)
    return _rmse(np.full(len(truth), numbers_of(dataset, dataset.y_train).mean()), truth)


def numbers_of(dataset: Dataset, answers: np.ndarray) -> np.ndarray:
    """The answers (n,) of a regression or ratings as numbers."""
    return answers if dataset.task == "regression" else ratings_of(dataset)[answers]


def expected_numbers(dataset: Dataset, predicted: np.ndarray) -> np.ndarray:
    """Predictions of a regression or of ratings as numbers (n,), of ratings the mean over their chances."""
    return predicted if dataset.task == "regression" else predicted @ ratings_of(dataset)


def ratings_of(dataset: Dataset) -> np.ndarray:
    """The number that each class of a data set of ratings stands for, float64 (classes,)."""
    return np.array([float(name) for name in dataset.classes])


def _rmse(predicted: np.ndarray, answers: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - answers) ** 2)))


CONFIDENCE = 0.95
"""Of the intervals: each covers with this probability by itself, over the draw of the held-out records."""
FALSE_ALARMS = 0.05
"""False-positive rate at which recall is stated."""
BINS = 10
"""Bins of equal width of the calibration curve."""


def decision_metrics(dataset: Dataset, predicted: np.ndarray) -> dict[str, float | None]:
    """Further metrics of `predicted` on the test rows, by name.

    Classes: `test_low` and `test_high` of the accuracy (Clopper-Pearson), `balanced_accuracy` (mean recall of the
    classes that occur). Two classes besides, with the second as the positive one: `base_rate`, `auroc` with
    `auroc_low` and `auroc_high`, `recall_at_fpr_0.05`, `calibration_error`. Numbers and ratings: `r2`, and an
    interval of the RMSE.
    """
    y = dataset.y_test
    if dataset.task != "classification":
        return _of_values(expected_numbers(dataset, predicted), numbers_of(dataset, y))
    right = predicted.argmax(axis=1) == y
    low, high = proportion(int(right.sum()), len(y))
    recalls = [float(right[y == place].mean()) for place in np.unique(y)]
    found: dict[str, float | None] = {"test_low": low, "test_high": high, "balanced_accuracy": float(np.mean(recalls))}
    if len(dataset.classes) == 2:
        found |= _of_two_classes(predicted[:, 1], y == 1)
    return found


def proportion(events: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate, each end at half of 1 - confidence.

    Example:
        >>> low, high = proportion(0, 100)
        >>> (low, round(high, 4))
        (0.0, 0.0362)
    """
    alpha = (1 - check.confidence(confidence)) / 2
    upper = float(clopper_pearson(np.array(events), trials, alpha))
    return 1 - float(clopper_pearson(np.array(trials - events), trials, alpha)), upper


def auroc(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float, float] | None:
    """Area under the ROC curve with the ends of its interval; None where a class does not occur.

    The area is P(score of a positive > score of a negative) + P(equal) / 2. Its standard error is that of DeLong,
    DeLong and Clarke-Pearson (Biometrics 1988): sqrt(var(V) / m + var(W) / n) for the shares V of negatives below each
    of m positives, and W of positives above each of n negatives; where it is 0, that of one further error is taken.

    Example:
        >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))[0]
        0.75
    """
    m, n = int(positive.sum()), int((~positive).sum())
    if not m or not n:
        return None
    every = _ranks(scores)
    below = (every[positive] - _ranks(scores[positive])) / n
    above = 1 - (every[~positive] - _ranks(scores[~positive])) / m
    area = float(below.mean())
    variance = (below.var(ddof=1) / m if m > 1 else 0.25) + (above.var(ddof=1) / n if n > 1 else 0.25)
    reach = max(-float(ndtri((1 - CONFIDENCE) / 2)) * float(np.sqrt(variance)), 1 / (m * n))
    return area, max(area - reach, 0.0), min(area + reach, 1.0)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 on, equal values with the mean of theirs; `scipy.stats.rankdata` takes a second to load."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right") + 1) / 2


def recall_at(scores: np.ndarray, positive: np.ndarray, rate: float = FALSE_ALARMS) -> float | None:
    """Largest recall of a threshold whose false-positive rate is at most `rate`; None where a class does not occur.

    Example:
        >>> recall_at(np.array([0.1, 0.2, 0.9, 0.8]), np.array([False, True, True, False]), rate=0.0)
        0.5
    """
    if positive.all() or not positive.any():
        return None
    negatives = np.sort(scores[~positive])[::-1]
    allowed = int(np.floor(rate * len(negatives) + 1e-9))
    threshold = negatives[allowed] if allowed < len(negatives) else -np.inf
    return float((scores[positive] > threshold).mean())


def calibration_curve(chances: np.ndarray, positive: np.ndarray) -> list[dict[str, float]]:
    """Mean predicted chance, share of positives and number of rows of each bin that has any, ascending.

    `low` and `high` are a band: all shares of the population lie in it together with probability 95 % at least, over
    the draw of the held-out records (Clopper-Pearson for each of k bins at 1 - 0.05 / k, by the union bound). A bin
    spans `start` to `end`.

    Example:
        >>> calibration_curve(np.array([0.05, 0.95, 0.95]), np.array([False, True, False]))[1]["share"]
        0.5
    """
    places = np.clip((chances * BINS).astype(int), 0, BINS - 1)
    filled = np.unique(places)
    confidence = 1 - (1 - CONFIDENCE) / len(filled)
    return [_bin(chances[places == place], positive[places == place], int(place), confidence) for place in filled]


def _bin(chances: np.ndarray, positive: np.ndarray, place: int, confidence: float) -> dict[str, float]:
    low, high = proportion(int(positive.sum()), len(positive), confidence)
    row = {"start": place / BINS, "end": (place + 1) / BINS, "predicted": float(chances.mean())}
    return row | {"share": float(positive.mean()), "low": low, "high": high, "rows": len(positive)}


def calibration_error(chances: np.ndarray, positive: np.ndarray) -> float:
    """Expected calibration error: mean distance of predicted chance and share in the bins of `calibration_curve`.

    Example:
        >>> calibration_error(np.array([0.75, 0.75]), np.array([True, False]))
        0.25
    """
    curve = calibration_curve(chances, positive)
    return float(sum(row["rows"] * abs(row["predicted"] - row["share"]) for row in curve) / len(positive))


def calibration_of(dataset: Dataset, predicted: np.ndarray) -> list[dict[str, float]]:
    """The calibration curve of the second of two classes; empty for other tasks."""
    if dataset.task != "classification" or len(dataset.classes) != 2:
        return []
    return calibration_curve(predicted[:, 1], dataset.y_test == 1)


def _of_two_classes(chances: np.ndarray, positive: np.ndarray) -> dict[str, float | None]:
    areas = dict(zip(("auroc", "auroc_low", "auroc_high"), auroc(chances, positive) or (None,) * 3, strict=True))
    return {
        "base_rate": float(positive.mean()),
        **areas,
        f"recall_at_fpr_{FALSE_ALARMS:g}": recall_at(chances, positive),
        "calibration_error": calibration_error(chances, positive),
    }


def _of_values(predicted: np.ndarray, values: np.ndarray) -> dict[str, float | None]:
    """R2, and the interval of the RMSE by the normal law of the mean squared error."""
    errors = (predicted - values).astype(float) ** 2
    spread = float(np.var(values.astype(float)))
    mean = float(errors.mean())
    error = float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else mean
    reach = -float(ndtri((1 - CONFIDENCE) / 2)) * error
    return {
        "r2": 1 - mean / spread if spread else None,
        "test_low": float(np.sqrt(max(mean - reach, 0.0))),
        "test_high": float(np.sqrt(mean + reach)),
    }
