"""`Attack`: the base class of membership attacks, and the checked black-box answers of a model that they use.

Success metrics of membership attacks, their bounds by a guarantee, and their overlap over several runs.

FPR is the fraction of non-members flagged (type I error), TPR the fraction of members flagged (1 - type II error).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import bdtrc, ndtr

from tacit import check

Model = Callable[[np.ndarray], np.ndarray]
"""Inputs, shape (n, ...), to class probabilities, shape (n, classes), in evaluation mode."""
Examples = tuple[np.ndarray, np.ndarray]
"""Inputs, shape (n, ...), and integer labels in [0, classes), shape (n,)."""
LEAST_PROBABILITY = 1e-30
"""Probabilities are raised to this before a logarithm or division: finite, and below any float32 softmax of use."""


@dataclass(frozen=True)
class Scores:
    """An attack's scores of members and non-members; a record is flagged when its score is >= `threshold`.

    Members and non-members must come from one distribution, or the attack measures that difference instead.
    The scores are per-record secrets: `repr`, logs and cards leave them out.

    Attributes:
        attack: name of the attack.
        members: scores of records that were trained on, shape (n,), n >= 1, no NaN.
        non_members: scores of records that were not, shape (m,), m >= 1, no NaN.
        threshold: the attack's own rule.

    Raises:
        InvalidInput: one class is empty, a score is NaN, or the arrays are not one-dimensional numbers.

    Example:
        >>> Scores("loss_threshold", [2.0, 1.0], [0.0], threshold=0.5).count
        (2, 1)
    """

    attack: str
    members: np.ndarray = field(repr=False)
    non_members: np.ndarray = field(repr=False)
    threshold: float = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            object.__setattr__(self, name, vector(f"scores of {name}", getattr(self, name)))
        check.that(not np.isnan(self.threshold), "threshold", "a number", self.threshold)

    @property
    def count(self) -> tuple[int, int]:
        """Number of members and of non-members."""
        return len(self.members), len(self.non_members)


class Attack(ABC):
    """Scores records by a model's predictions on them; a higher score means "was in the training data".

    Attributes:
        name: name of the attack.

    Example:
        >>> from tacit.attacks import LossThreshold
        >>> model = lambda inputs: np.column_stack([inputs, 1 - inputs])
        >>> members, others = (np.array([0.9, 0.8]), np.array([0, 0])), (np.array([0.4]), np.array([0]))
        >>> LossThreshold()(model, members=members, non_members=others).count
        (2, 1)
    """

    name: ClassVar[str]

    @abstractmethod
    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """One number for each example, shape (n,): higher means that membership in the training data is likelier."""

    def threshold(self, member_scores: np.ndarray) -> float:
        """The attack's own rule: it flags records of at least this score.

        The mean score of the members, as the trainer may report it (Yeom et al. 2018); attacks whose rule does not
        depend on the members override it.
        """
        return float(member_scores.mean())

    def __call__(self, model: Model, *, members: Examples, non_members: Examples) -> Scores:
        """Scores of `model` on records that it was trained on and records that it was not."""
        scores = self.score(model, joined(members, non_members))
        flagged, others = scores[: len(members[1])], scores[len(members[1]) :]
        return Scores(self.name, flagged, others, self.threshold(vector("scores of members", flagged)))


def joined(members: Examples, non_members: Examples) -> Examples:
    """Members, then non-members, as one set of examples; raises `InvalidInput` when one is empty or shapes differ."""
    for name, (_, labels) in (("members", members), ("non_members", non_members)):
        check.that(len(labels) != 0, name, "at least one record", 0, "An attack needs members and non-members.")
    parts = [np.asarray(inputs) for inputs, _ in (members, non_members)]
    if parts[0].shape[1:] != parts[1].shape[1:]:
        raise check.fail("members and non_members", "records of one shape", f"{parts[0].shape} and {parts[1].shape}")
    return np.concatenate(parts), np.concatenate([np.asarray(members[1]), np.asarray(non_members[1])])


def vector(name: str, values: object) -> np.ndarray:
    """`values` as a non-empty float64 vector without NaN; the error never prints a value."""
    rule = "a non-empty vector of numbers without NaN"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise check.fail(name, rule, type(values).__name__) from None
    if array.ndim != 1 or array.size == 0:
        raise check.fail(name, rule, f"shape {array.shape}", "An attack needs members and non-members.")
    missing = int(np.isnan(array).sum())
    if missing:
        raise check.fail(name, rule, f"{missing} NaN of {array.size}", "Did the model diverge?")
    return array


def class_probabilities(model: Model, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of the examples, shapes (n, classes) and (n,).

    Raises `InvalidInput` when lengths differ, labels are not classes of the model, or the model's answers are not
    probabilities (rows in [0, 1] that sum to 1 within 1e-3).

    Example:
        >>> class_probabilities(lambda inputs: inputs, (np.array([[0.25, 0.75]]), np.array([1])))
        (array([[0.25, 0.75]]), array([1]))
    """
    inputs, labels = examples
    labels = np.asarray(labels)
    probabilities = np.asarray(model(inputs), dtype=float)
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or labels.ndim != 1:
        got = f"{probabilities.shape} for labels of shape {labels.shape}"
        raise check.fail("model output", "of shape (n, classes), one row for each label", got)
    if not (np.all(probabilities >= 0) and np.all(np.abs(probabilities.sum(axis=1) - 1) <= 1e-3)):
        raise check.fail("model output", "class probabilities", "other numbers", "Apply a softmax to the logits.")
    classes = probabilities.shape[1]
    if labels.dtype.kind not in "iu" or np.any(labels < 0) or np.any(labels >= classes):
        raise check.fail("labels", f"integers in [0, {classes})", f"{labels.dtype} labels with others among them")
    return probabilities, labels


def label_probability(model: Model, examples: Examples) -> np.ndarray:
    """p_y of each example, shape (n,)."""
    probabilities, labels = class_probabilities(model, examples)
    return probabilities[np.arange(len(labels)), labels]


def logit_confidence(model: Model, examples: Examples) -> np.ndarray:
    """log(p_y / sum_{c != y} p_c), shape (n,): near normal over training runs (Carlini et al. 2022, Section V.B).

    Example:
        >>> logit_confidence(lambda inputs: inputs, (np.array([[0.25, 0.75]]), np.array([1]))).round(4)
        array([1.0986])
    """
    probabilities, labels = class_probabilities(model, examples)
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = 0.0
    return safe_log(probabilities[rows, labels]) - safe_log(others.sum(axis=1))


def safe_log(values: np.ndarray) -> np.ndarray:
    """Logarithm of max(value, `LEAST_PROBABILITY`)."""
    return np.log(np.maximum(values, LEAST_PROBABILITY))


_LARGEST_EXPONENT = 700.0  # e^709.8 is the largest double


def error_rates(scores: Scores) -> tuple[float, float]:
    """(FPR, TPR) of the attack's own rule.

    Example:
        >>> error_rates(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0))
        (0.5, 1.0)
    """
    return float(np.mean(scores.non_members >= scores.threshold)), float(np.mean(scores.members >= scores.threshold))


def roc(scores: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(FPR, TPR, threshold) at each distinct score from the highest down, after (0, 0, inf); ends at (1, 1).

    Example:
        >>> fpr, tpr, thresholds = roc(Scores("loss", [2.0], [0.0], 1.0))
        >>> fpr, tpr
        (array([0., 0., 1.]), array([0., 1., 1.]))
    """
    thresholds = np.append(np.inf, np.unique(np.concatenate([scores.members, scores.non_members]))[::-1])
    return _flagged(scores.non_members, thresholds), _flagged(scores.members, thresholds), thresholds


def advantage(scores: Scores) -> float:
    """TPR - FPR of the attack's own rule (Yeom et al. 2018, Definition 4).

    Example:
        >>> advantage(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0))
        0.5
    """
    fpr, tpr = error_rates(scores)
    return tpr - fpr


def ppv(scores: Scores, *, prior: float = 0.5) -> float:
    """Positive predictive value: the probability that a flagged record is a member; 0 if none is flagged.

    It is prior TPR / (prior TPR + (1 - prior) FPR), where a fraction `prior` in [0, 1] of records are members.

    Example:
        >>> round(ppv(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0)), 4)
        0.6667
    """
    prior = check.probability("prior", prior)
    fpr, tpr = error_rates(scores)
    total = prior * tpr + (1 - prior) * fpr
    return prior * tpr / total if total > 0 else 0.0


def pure_bound(epsilon: float) -> float:
    """Bound e^epsilon - 1 on the advantage (Yeom et al. 2018, Theorem 1), trivial from epsilon log 2 on.

    Example:
        >>> round(pure_bound(0.5), 4)
        0.6487
    """
    return math.expm1(min(check.epsilon(epsilon), _LARGEST_EXPONENT))


def approximate_bound(epsilon: float, delta: float) -> float:
    """Bound (e^eps - 1 + 2 delta) / (e^eps + 1) on the advantage, attained by some (epsilon, delta)-DP mechanism.

    It is the advantage at the corner of the trade-off function of (epsilon, delta)-DP, where both error rates
    equal (1 - delta) / (e^eps + 1) (Kairouz, Oh & Viswanath 2015).

    Example:
        >>> round(approximate_bound(1.0, 1e-5), 4)
        0.4621
    """
    shrink = math.exp(-check.epsilon(epsilon))
    return (1 - shrink + 2 * check.delta(delta) * shrink) / (1 + shrink)


def gaussian_bound(mu: float) -> float:
    """Bound 2 Phi(mu/2) - 1 on the advantage under mu-GDP: the total variation of N(0, 1) and N(mu, 1), mu >= 0.

    Example:
        >>> round(gaussian_bound(1.0), 4)
        0.3829
    """
    return float(2 * ndtr(check.real("mu", mu, low=0.0) / 2) - 1)


def _flagged(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return (len(values) - np.searchsorted(np.sort(values), thresholds)) / len(values)


@dataclass(frozen=True)
class Overlap:
    """Records flagged in at least `runs` of all runs.

    Attributes:
        runs: least number of runs.
        members: number of members flagged so often.
        non_members: number of non-members flagged so often.
        ppv: fraction of members among them, half of all being members (as `metrics.ppv`); 0 if none is flagged.
        chance: the fraction that fair coins, independent over the runs, would flag so often.

    Example:
        >>> overlaps([Scores("loss", [2.0, 0.0], [0.0, 0.0], 1.0)])[1]
        Overlap(runs=1, members=1, non_members=0, ppv=1.0, chance=0.5)
    """

    runs: int
    members: int
    non_members: int
    ppv: float
    chance: float


def overlaps(scores: Sequence[Scores]) -> list[Overlap]:
    """For k = 0 to the number of runs, the records flagged in at least k of them.

    Source: Jayaraman & Evans 2019, Figures 4, 8, 11 and 13.

    Args:
        scores: of the same records in the same order, one for each run.

    Example:
        >>> runs = [Scores("loss", [2.0, 0.0], [0.0, 0.0], 1.0), Scores("loss", [2.0, 2.0], [0.0, 2.0], 1.0)]
        >>> [(row.members, row.non_members) for row in overlaps(runs)]
        [(2, 2), (2, 1), (1, 0)]
    """
    counts = [run.count for run in scores]
    check.that(len(set(counts)) == 1, "scores", "of the same records, one or more runs", counts)
    inside = np.sum([run.members >= run.threshold for run in scores], axis=0)
    outside = np.sum([run.non_members >= run.threshold for run in scores], axis=0)
    runs, rows = len(scores), []
    for least in range(runs + 1):
        found, wrong = int(np.sum(inside >= least)), int(np.sum(outside >= least))
        tpr, fpr = found / len(inside), wrong / len(outside)
        value = tpr / (tpr + fpr) if found + wrong else 0.0
        rows.append(Overlap(least, found, wrong, value, 1.0 if least == 0 else float(bdtrc(least - 1, runs, 0.5))))
    return rows
