"""Descriptions of saved tickets, and the selectivity of the published choice beside the sound one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit import check
from tacit.noise.choice import Scores
from tacit.relation import Relation
from tacit.tickets.select import count_scores, explain, paper_scores
from tacit.tickets.ticket import Ticket

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
