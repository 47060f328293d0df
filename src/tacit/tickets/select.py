"""Choosing one ticket privately: the paper's score and a sound one, the exponential mechanism and permute-and-flip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from tacit import check
from tacit.mechanisms import Approximate, Exponential, Mechanism
from tacit.noise import Stream
from tacit.noise.draw import gumbel
from tacit.relation import Relation

METHODS = ("exponential", "permute_and_flip")


@dataclass(frozen=True)
class Scores:
    """A score for each ticket, higher is better.

    Attributes:
        values: shape (tickets,).
        sensitivity: by how much one record may move any of them.
        monotone: whether adding a record moves all of them in the same direction.
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
    """
    accuracy, density = np.asarray(accuracies, dtype=float), np.asarray(densities, dtype=float)
    return Scores(accuracy * (1 - check.positive("nu", nu) * density), abs(1 - nu))


def count_scores(correct: Sequence[int], densities: Sequence[float], *, penalty: float = 0.0, size: int = 1) -> Scores:
    """u_k = (records classified right) - penalty * size * density_k: one record moves each by at most 1.

    Args:
        correct: counts on private records, for networks that are fixed or privately released.
        penalty: how many points of accuracy a ticket with all its weights loses to an empty one, >= 0.
        size: a declared public number of records, never the private one.
    """
    counts = np.asarray(correct, dtype=float)
    weight = check.real("penalty", penalty, low=0.0) * check.count("size", size)
    return Scores(counts - weight * np.asarray(densities, dtype=float), 1.0, monotone=True)


def choice_mechanism(epsilon: float, *, method: str = "exponential") -> Mechanism:
    """What a choice is to an accountant: of bounded range for the exponential mechanism, else pure epsilon-DP."""
    check.choice("selection", method, METHODS)
    return Exponential(epsilon) if method == "exponential" else Approximate(epsilon, 0.0)


def log_probabilities(scores: Scores, epsilon: float, relation: Relation) -> NDArray[np.float64]:
    """log of the probability with which the exponential mechanism picks each ticket.

    exp(epsilon u / (2 sensitivity)); for monotone scores under add/remove the factor 2 is not needed.
    """
    return log_softmax(_rate(scores, epsilon, relation) * scores.values)


def choose(scores: Scores, epsilon: float, stream: Stream, *, relation: Relation, method: str = "exponential") -> int:
    """Index of the ticket that the private choice picks; `choice_mechanism` says what it costs.

    The exponential mechanism as the largest of score + Gumbel noise; permute-and-flip (McKenna & Sheldon 2020) looks
    at the tickets in random order and takes one with probability exp(rate (u - max u)); its expected error is never
    larger.
    Drawn in double precision: timing and rounding are not protected.
    """
    check.choice("selection", method, METHODS)
    rate = _rate(scores, epsilon, relation)
    if method == "exponential":
        return int(np.argmax(rate * scores.values + gumbel(stream, len(scores.values))))
    order = np.argsort(stream.uniform(len(scores.values)))
    gaps = rate * (scores.values - scores.values.max())
    flips = np.log(stream.uniform(len(order)))
    return int(next(index for index in order if flips[index] <= gaps[index]))


@dataclass(frozen=True)
class Explained:
    """How selective a choice is.

    Attributes:
        probabilities: of each ticket.
        ratio: largest over smallest.
        from_uniform: total variation distance from a uniform draw.
        sparse: probability of a ticket with density at most .1, and the share of such tickets.
    """

    probabilities: NDArray[np.float64]
    ratio: float
    from_uniform: float
    sparse: tuple[float, float]


def explain(scores: Scores, densities: Sequence[float], epsilon: float, relation: Relation) -> Explained:
    """How far the exponential mechanism at these scores is from a draw at random."""
    probability = np.exp(log_probabilities(scores, epsilon, relation))
    small = np.asarray(densities, dtype=float) <= 0.1
    return Explained(
        probability,
        float(probability.max() / probability.min()),
        float(np.abs(probability - 1 / len(probability)).sum() / 2),
        (float(probability[small].sum()), float(small.mean())),
    )


def _rate(scores: Scores, epsilon: float, relation: Relation) -> float:
    single = scores.monotone and relation is not Relation.REPLACE_ONE
    return check.positive("epsilon", epsilon) / (scores.sensitivity * (1 if single else 2))
