"""The published choice among tickets is close to a draw at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.noise.discrete import Scores, log_probabilities
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tickets import count_scores, paper_scores
from tacit_papers.base import Item, Row, published, unpublished_rows
from tacit_papers.lottery_ticket.mask_attack import KEY

NUMBERS = published("tacit_papers.lottery_ticket")
_EPSILONS = (1.0, 0.2)
_SPARSE = 0.1  # density of the paper's winning tickets


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
    small = np.asarray(densities, dtype=float) <= _SPARSE
    return Explained(
        probability,
        float(probability.max() / probability.min()),
        float(np.abs(probability - 1 / len(probability)).sum() / 2),
        (float(probability[small].sum()), float(small.mean())),
    )


def selectivity(epsilon: float, tickets: int, accuracy: float) -> dict[str, float]:
    """How far from uniform the published choice is at epsilon / 10, for tickets of one accuracy and densities .7^i.

    "counts" is the same for a sound score: one point of accuracy between two tickets, of 10,000 records.
    """
    densities = [0.7**i for i in range(1, tickets + 1)]
    published_ = explain(paper_scores([accuracy] * tickets, densities), densities, epsilon / 10, Relation.REPLACE_ONE)
    sound = explain(count_scores([9500, 9400], [0.1, 0.1]), [0.1, 0.1], epsilon / 10, Relation.REPLACE_ONE)
    return {
        "ratio": published_.ratio,
        "from_uniform": published_.from_uniform,
        "sparse": published_.sparse[0],
        "sparse_at_random": published_.sparse[1],
        "counts_ratio": sound.ratio,
    }


def tasks(size: str) -> list[Task]:
    """One task an epsilon."""
    choice = NUMBERS["choice"]
    settings = {"tickets": choice["tickets"], "accuracy": choice["accuracy"]}
    return [Task(f"{__name__}:selectivity", {"epsilon": epsilon} | settings, 0.1) for epsilon in _EPSILONS]


_WORDS = {
    "ratio": ("likeliest over unlikeliest ticket, published score", Standing.MEASURED),
    "from_uniform": ("distance from a uniform draw", Standing.MEASURED),
    "sparse": ("probability of a density up to .1", Standing.MEASURED),
    "sparse_at_random": ("the same for a uniform draw", Standing.MEASURED),
    "counts_ratio": (
        "likelier over unlikelier ticket one point apart, counts of 10,000 records",
        Standing.MEASURED,
    ),
}


def rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Ours alone: the paper says that the choice consistently picks densities up to .1."""
    return [
        row
        for epsilon, value in zip(_EPSILONS, values, strict=True)
        for row in unpublished_rows(KEY, "choice", f"epsilon {epsilon:g}: ", value, _WORDS)
    ]


ITEM = Item("choice", "how selective the published choice is", tasks, rows)
