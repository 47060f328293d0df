"""Scores of tickets, published and sound, and how selective a private choice by them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.noise.choice import Scores, log_probabilities
from tacit.relation import Relation

# Density up to which a ticket counts as sparse in `explain`: that of the paper's winning tickets.
SPARSE = 0.1


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
