"""Scores of tickets, published and sound, and how selective a private choice by them is.

Descriptions of saved tickets, and the selectivity of the published choice beside the sound one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.noise.choice import Scores, log_probabilities
from tacit.relation import Relation
from tacit.tickets.ticket import Ticket

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


# One point of accuracy.
_POINT = 0.01
# Share of epsilon of the choice, as in `budget` and in the paper.
_SHARE = 0.1
# exp of more overflows a double.
_LARGEST_EXPONENT = 700.0


def saved_tickets(path: str | Path) -> dict[str, Ticket]:
    """The ticket in the file `path`, or every ticket in the folder `path` and below, by file name.

    Raises:
        InvalidInput: there is none.
    """
    place = Path(path)
    if not place.is_dir():
        return {place.name: Ticket.load(place)}
    files = sorted(place.rglob("ticket*.safetensors"))
    if not files:
        raise check.fail("PATH", "a ticket file, or a folder that has one", str(path))
    return {str(file.relative_to(place)): Ticket.load(file) for file in files}


def described(ticket: Ticket) -> dict[str, Any]:
    """Provenance, size and measured accuracy of a ticket, and what is left of every layer, as plain values."""
    layers: list[dict[str, Any]] = []
    for name, mask in ticket.masks.items():
        rows = mask.reshape(len(mask), -1) != 0
        layers.append(
            {
                "layer": name,
                "weights": mask.numel(),
                "kept": int(mask.sum()),
                "density": float(mask.mean()),
                "unread_inputs": int((~rows.any(0)).sum()),
                "outputs_without_weights": int((~rows.any(1)).sum()),
            }
        )
    return {
        "provenance": ticket.provenance,
        "note": ticket.note,
        "origin": None if ticket.origin is None else ticket.origin.value,
        "weights": sum(layer["weights"] for layer in layers),
        "kept": sum(layer["kept"] for layer in layers),
        "density": ticket.density,
        "accuracy": ticket.measured.get("accuracy"),
        "layers": layers,
    }


def compared(
    accuracies: Sequence[float],
    densities: Sequence[float],
    *,
    epsilon: float,
    records: int = 10_000,
    relation: Relation = Relation.REPLACE_ONE,
) -> list[dict[str, Any]]:
    """Selectivity of the published choice and of the sound one among tickets, at a tenth of `epsilon` each.

    Args:
        accuracies: of the tickets, in [0, 1].
        densities: of the tickets, in [0, 1].
        epsilon: > 0, of everything together.
        records: private validation records that the sound score counts on.
        relation: neighbouring relation.

    Returns:
        For each score: `likeliest_over_unlikeliest`; `from_uniform`, the total variation distance from a uniform draw;
        `sparse`, the probability of a density up to .1, and `sparse_at_random`; and `one_point`, the factor by which
        another point of accuracy raises the sparsest ticket's probability over that of any other.

    Raises:
        InvalidInput: `epsilon` or `records` is outside its range.
    """
    spent = _SHARE * check.positive("epsilon", epsilon)
    check.count("records", records)

    def published(values: Sequence[float]) -> Scores:
        return paper_scores(values, densities)

    def sound(values: Sequence[float]) -> Scores:
        return count_scores([round(value * records) for value in values], densities)

    found = []
    for name, score in (("published", published), ("sound", sound)):
        told = explain(score(accuracies), densities, spent, relation)
        sparsest = min(range(len(densities)), key=densities.__getitem__)
        better = [value + _POINT * (place == sparsest) for place, value in enumerate(accuracies)]
        gained = score(better).values[sparsest] - score(accuracies).values[sparsest]
        factor = 1 if score is sound and relation is not Relation.REPLACE_ONE else 2
        sensitivity = score(accuracies).sensitivity
        exponent = spent * gained / (factor * sensitivity)
        found.append(
            {
                "score": name,
                "epsilon": spent,
                "sensitivity": sensitivity,
                "likeliest_over_unlikeliest": told.ratio,
                "from_uniform": told.from_uniform,
                "sparse": told.sparse[0],
                "sparse_at_random": told.sparse[1],
                "one_point": math.exp(min(_LARGEST_EXPONENT, exponent)),
            }
        )
    return found
