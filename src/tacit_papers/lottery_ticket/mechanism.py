"""The released mask gives a record away: pruned weights of inputs that one record alone uses keep their first order.

Ten inputs are zero in every record but one. Without it, their weights get no gradient, so that pruning by magnitude
cuts them in the order of the initial weights: a surviving weight that is initially smaller than a pruned one never
occurs. With the record it occurs in nearly every run. Both the mask and the initial weights are released.

The published choice among tickets is close to a draw at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit import models
from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.audit import audit_scores
from tacit.mechanisms import Approximate
from tacit.noise import SeededStream
from tacit.noise.discrete import Scores as Quality
from tacit.noise.discrete import log_probabilities
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tickets import PrivateTicket, Ticket, TicketPlan, count_scores, iterative_tickets, paper_scores
from tacit.tickets.iterative_pruning import data_free_ticket
from tacit_papers.base import Item, Row, published, unpublished_rows

KEY = "lottery-ticket"
MODES = ("paper", "T1", "T2", "T3", "T4")
_INPUTS, _RARE, _CLASSES, _RECORDS = 64, 10, 10, 300
_EPSILON, _DELTA = 1.0, 1e-5
_QUICK_RUNS = {"paper": 16, "T1": 16, "T2": 10, "T3": 0, "T4": 0}
_FULL_RUNS = 200
_CONFIDENCE = 0.95


def violations(mode: str, present: bool, runs: int, seed: int) -> list[int]:
    """Whether the order is violated in the released mask, for each of `runs` independent runs of `mode`.

    Network 64-100-16-10, 300 records, 3 tickets of 200 iterations at learning rate .1, epsilon 1.

    Args:
        mode: of `PrivateTicket`.
        present: whether the first record has the rare inputs.
        runs: independent runs.
        seed: of the runs.
    """
    return [int(_violated(_released(mode, present, 2 * runs * seed + run), _INPUTS - _RARE)) for run in range(runs)]


def _released(mode: str, present: bool, seed: int) -> Ticket:
    x, y = _data(present, seed)
    build = partial(_network, seed)
    plan = TicketPlan(mode, _EPSILON, _DELTA, batch_size=60, epochs=5, search_epochs=4, densities=(0.7, 0.5, 0.35))
    candidates: Sequence[Ticket] = ()
    if mode == "T1":
        candidates = [data_free_ticket(build(), "random", density=0.5, shape=(_INPUTS,), seed=seed)]
    elif mode == "paper":
        candidates = iterative_tickets(
            build(),
            x,
            y,
            provenance="paper",
            accuracy=lambda network: float((network(x).argmax(1) == y).float().mean()),
            rounds=3,
            iterations=200,
            batch_size=100,
            seed=seed,
        )
    found = PrivateTicket(build, (x, y), plan, candidates=candidates, stream=SeededStream(seed))
    return found.find(Ledger())


def _network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models.mlp(_INPUTS, _CLASSES, hidden=(100, 16))


def _data(present: bool, seed: int) -> tuple[Tensor, Tensor]:
    """The same records in every run; the first has its rare inputs set, or zero."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.rand(_CLASSES, _INPUTS - _RARE, generator=generator)
    y = torch.randint(_CLASSES, (_RECORDS,), generator=generator)
    noise = 0.3 * torch.rand(_RECORDS, _INPUTS - _RARE, generator=generator)
    x = torch.cat([centres[y] + noise, torch.zeros(_RECORDS, _RARE)], 1)
    x[0, -_RARE:] = float(present)
    return x, y


def _violated(ticket: Ticket, first: int) -> bool:
    """Whether a weight of the rare inputs survived that was initially smaller than one that was pruned."""
    mask, start = ticket.masks["0.weight"][:, first:], ticket.start["0.weight"][:, first:].abs()
    if not bool((mask == 0).any()) or not bool((mask == 1).any()):
        return False
    return bool(start[mask == 1].min() < start[mask == 0].max())


def _modes(size: str) -> dict[str, int]:
    """Runs with the record, and as many without it, of each mode."""
    runs = _QUICK_RUNS if size == "quick" else dict.fromkeys(MODES, _FULL_RUNS)
    return {mode: count for mode, count in runs.items() if count}


def tasks(size: str) -> list[Task]:
    """Runs with and without the record, of every mode."""
    seconds = {"paper": 0.5, "T1": 0.05}
    return [
        Task(
            f"{__name__}:violations",
            {"mode": mode, "present": present, "runs": runs, "seed": int(present)},
            seconds.get(mode, 2.0) * runs,
        )
        for mode, runs in _modes(size).items()
        for present in (True, False)
    ]


def rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Counts and what they prove at 95 % confidence; whether the claim stands, of the mode whose masks are ordered.

    The masks of T1 to T4 have no order that a record could violate: the count is the same in both worlds by design, so
    that this attack has no power against them.
    """
    make, claim = partial(Row, KEY, "mask-attack"), accountant("naive")(Approximate(_EPSILON, _DELTA))
    found: list[Row] = []
    for mode, with_it, without in zip(_modes(size), values[::2], values[1::2], strict=True):
        # The attacker may bet on either direction: each at half the failure probability.
        sign = -1.0 if sum(with_it) < sum(without) else 1.0
        present, absent = (sign * np.array(counts, dtype=float) for counts in (with_it, without))
        result = audit_scores(
            Scores("mask order", present, absent, threshold=0.5 * sign),
            delta=_DELTA,
            estimator="fixed",
            trials="independent",
            relation=Relation.REPLACE_ONE,
            confidence=1 - (1 - _CONFIDENCE) / 2,
            claim=claim,
        )
        refuted = result.epsilon_lower > _EPSILON
        found += [
            make(f"{mode}: runs with the order violated, with the record", None, float(sum(with_it))),
            make(f"{mode}: runs with the order violated, without the record", None, float(sum(without))),
            make(f"{mode}: epsilon at least, 95 % (claimed 1, delta 1e-5)", None, float(result.epsilon_lower)),
        ]
        if mode == "paper":
            detectable = float(result.detectable_epsilon)
            found.append(make(f"{mode}: smallest epsilon that the audit would detect", None, detectable))
            found.append(make(f"{mode}: claim refuted (1 yes, 0 no)", None, float(refuted)))
    return found


MASK_ATTACK = Item("mask-attack", "membership of a record from the released mask", tasks, rows)


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


def explain(scores: Quality, densities: Sequence[float], epsilon: float, relation: Relation) -> Explained:
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


def choice_tasks(size: str) -> list[Task]:
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


def choice_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Ours alone: the paper says that the choice consistently picks densities up to .1."""
    return [
        row
        for epsilon, value in zip(_EPSILONS, values, strict=True)
        for row in unpublished_rows(KEY, "choice", f"epsilon {epsilon:g}: ", value, _WORDS)
    ]


CHOICE = Item("choice", "how selective the published choice is", choice_tasks, choice_rows)
