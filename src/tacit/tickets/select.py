"""Private selection of one ticket: scores, the exponential mechanism and permute-and-flip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from tacit import check
from tacit.errors import Refused
from tacit.mechanisms import Approximate, Exponential, Mechanism
from tacit.noise import Stream
from tacit.noise.discrete import exponential_mechanism, permute_and_flip
from tacit.relation import Relation

METHODS = ("exponential", "permute_and_flip")
# Density up to which a ticket counts as sparse in `explain`: that of the paper's winning tickets.
SPARSE = 0.1
_GRID = Fraction(1, 2**20)  # of scores, in sensitivities; half of it is room for the rounding of counts and penalties


@dataclass(frozen=True)
class Scores:
    """A score for each ticket, higher is better.

    Attributes:
        values: shape (tickets,).
        sensitivity: bound on the change of any of them by one record.
        monotone: whether adding a record moves all of them in the same direction.

    Example:
        >>> Scores(np.array([1.0, 2.0]), sensitivity=1.0).values.tolist()
        [1.0, 2.0]
    """

    values: NDArray[np.float64]
    sensitivity: float
    monotone: bool = False

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=float)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)):
            raise check.fail("scores", "a list of finite numbers, one a ticket", self.values)
        check.positive("sensitivity", self.sensitivity)
        object.__setattr__(self, "values", values)


def paper_scores(accuracies: Sequence[float], densities: Sequence[float], *, nu: float = 50.0) -> Scores:
    """S_i = A_i (1 - nu C_i) with the published sensitivity |1 - nu| (Lemma 1 of the paper, which is wrong).

    The range of S is nu, not |1 - nu|, and a data-dependent set of tickets is not covered at all; and with this
    sensitivity the exponential mechanism is close to a uniform draw. See `explain`.

    Example:
        >>> paper_scores([0.9, 0.8], [0.5, 0.1]).sensitivity
        49.0
    """
    accuracy, density = np.asarray(accuracies, dtype=float), np.asarray(densities, dtype=float)
    return Scores(accuracy * (1 - check.positive("nu", nu) * density), abs(1 - nu))


def count_scores(correct: Sequence[int], densities: Sequence[float], *, penalty: float = 0.0, size: int = 1) -> Scores:
    """Sound scores u_k = (records classified right) - penalty * size * density_k, of sensitivity 1.

    Args:
        correct: counts on private records, for networks that are fixed or privately released.
        densities: of the tickets, in [0, 1].
        penalty: how many points of accuracy a ticket with all its weights loses to an empty one, >= 0.
        size: a declared public number of records, never the private one.

    Raises:
        InvalidInput: a count or a density is not finite, or penalty or size is out of range.

    Example:
        >>> count_scores([90, 80], [0.5, 0.1], penalty=0.1, size=100).values.tolist()
        [85.0, 79.0]
    """
    counts = np.asarray(correct, dtype=float)
    weight = check.real("penalty", penalty, low=0.0) * check.count("size", size)
    return Scores(counts - weight * np.asarray(densities, dtype=float), 1.0, monotone=True)


def choice_mechanism(epsilon: float, *, method: str = "exponential") -> Mechanism:
    """Mechanism of a choice: of bounded range for the exponential mechanism, else pure epsilon-DP.

    Example:
        >>> choice_mechanism(0.1)
        Exponential(epsilon=0.1...)
    """
    check.choice("selection", method, METHODS)
    return Exponential(epsilon) if method == "exponential" else Approximate(epsilon, 0.0)


def log_probabilities(scores: Scores, epsilon: float, relation: Relation) -> NDArray[np.float64]:
    """Log probability with which the exponential mechanism picks each ticket.

    Proportional to exp(epsilon u / (2 sensitivity)); for monotone scores under add/remove the factor 2 is not needed.

    Example:
        >>> log_probabilities(count_scores([1, 1], [0.5, 0.1]), 1.0, Relation.ADD_REMOVE).round(3).tolist()
        [-0.693, -0.693]
    """
    return log_softmax(_rate(scores, epsilon, relation) * scores.values)


def choose(scores: Scores, epsilon: float, stream: Stream, *, relation: Relation, method: str = "exponential") -> int:
    """Index of the ticket that the private choice picks, at the cost of `choice_mechanism`.

    Permute-and-flip (McKenna & Sheldon 2020) goes through the tickets in random order and takes one with probability
    exp(rate (u - max u)); its expected error is never larger. Both are drawn exactly, for scores rounded to multiples
    of 2^-20 sensitivities, which may move by that much more; timing is not protected.

    Args:
        scores: of the tickets.
        epsilon: > 0.
        stream: source of the randomness.
        relation: neighbouring relation.
        method: "exponential" or "permute_and_flip".

    Raises:
        InvalidInput: the method is unknown, or epsilon is not positive.
        Refused: the rate at which scores count would cost more than epsilon.

    Example:
        >>> from tacit.noise import SeededStream
        >>> choose(count_scores([90, 10], [0.5, 0.1]), 5.0, SeededStream(0), relation=Relation.ADD_REMOVE)
        0
    """
    check.choice("selection", method, METHODS)
    _check_choices(scores, epsilon, relation)
    unit = Fraction(scores.sensitivity) * _GRID
    rounded = [round(Fraction(value) / unit) * unit for value in scores.values.tolist()]
    # Twice the rate: both samplers halve epsilon, as for scores that may move in either direction.
    doubled = 2 * Fraction(_rate(scores, epsilon, relation)) / (1 + 2 * _GRID)
    draw = exponential_mechanism if method == "exponential" else permute_and_flip
    return draw(stream, rounded, epsilon=doubled, sensitivity=Fraction(1))


@dataclass(frozen=True)
class Explained:
    """Selectivity of a choice.

    Attributes:
        probabilities: of each ticket.
        ratio: largest over smallest.
        from_uniform: total variation distance from a uniform draw.
        sparse: probability of a ticket with density at most .1, and the share of such tickets.

    Example:
        >>> explain(count_scores([1, 1], [0.5, 0.1]), [0.5, 0.1], 1.0, Relation.ADD_REMOVE).sparse
        (0.5, 0.5)
    """

    probabilities: NDArray[np.float64]
    ratio: float
    from_uniform: float
    sparse: tuple[float, float]


def explain(scores: Scores, densities: Sequence[float], epsilon: float, relation: Relation) -> Explained:
    """Distance of the exponential mechanism at these scores from a draw at random.

    Args:
        scores: of the tickets.
        densities: of the tickets, in [0, 1].
        epsilon: > 0.
        relation: neighbouring relation.

    Raises:
        InvalidInput: epsilon is not positive.

    Example:
        >>> explain(count_scores([9, 1], [0.5, 0.1]), [0.5, 0.1], 1.0, Relation.REPLACE_ONE).ratio > 50
        True
    """
    probability = np.exp(log_probabilities(scores, epsilon, relation))
    small = np.asarray(densities, dtype=float) <= SPARSE
    return Explained(
        probability,
        float(probability.max() / probability.min()),
        float(np.abs(probability - 1 / len(probability)).sum() / 2),
        (float(probability[small].sum()), float(small.mean())),
    )


def _rate(scores: Scores, epsilon: float, relation: Relation) -> float:
    single = scores.monotone and relation is not Relation.REPLACE_ONE
    return check.positive("epsilon", epsilon) / (scores.sensitivity * (1 if single else 2))


def _check_choices(scores: Scores, epsilon: float, relation: Relation) -> None:
    """Raise `Refused` where one record could make the unlikelier of two tickets more than e^epsilon times as likely.

    The trial is the worst of all: scores far apart that move towards each other, both at once unless they are monotone
    and a record only comes or goes.
    """
    step, far = scores.sensitivity, 60 * scores.sensitivity / epsilon
    other = 0.0 if scores.monotone and relation is not Relation.REPLACE_ONE else -step
    before, after = (
        log_probabilities(replace(scores, values=np.array(values)), epsilon, relation)[1]
        for values in ((0.0, -far), (other, step - far))
    )
    if not after - before <= epsilon * (1 + 1e-9) + 1e-12:
        raise Refused("a choice must favour no ticket by more than its epsilon states; it would.")
