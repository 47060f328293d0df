"""An attack on input perturbation as published: labels are not perturbed, and one of them is flipped.

At the first step every record's gradient is half of its perturbed features, with the sign of its label. Flipping the
label of a record of norm 1 moves their mean by 1 / n, where n noises of deviation sigma / 2 average to one of
sigma / (2 sqrt(n)): mu = 2 / (sqrt(n) sigma) to first order, whatever was claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.audit import audit_scores
from tacit.erm.losses import Logistic
from tacit.erm.release import Terms
from tacit.erm.solver import Problem
from tacit.mechanisms import Approximate
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff import Epsilon
from tacit.tradeoff.gaussian import gaussian_epsilon
from tacit_papers.base import Item, Row
from tacit_papers.input_perturbation.counter_examples import KEY
from tacit_papers.input_perturbation.input_methods import PaperInput, true_mu

_RECORDS, _COLUMNS, _STRENGTH, _STEPS, _CLAIMED = 70_000, 5, 0.01, 20, 0.1
_POWERS = {"quick": (0.5,), "full": (0.5, 1.0)}
_RUNS = {"quick": 100, "full": 300}
_SECONDS = 0.04
_OWN_RUNS, _OWN_SEEDS = 20, 10**6
_DELTA = min(1e-5, _RECORDS**-1.1)


def released(flipped: bool, runs: int, convexity_power: float, seed: int) -> dict[str, Any]:
    """The first parameter of `runs` independent releases by the published method, and the attacker's threshold.

    L2-logistic regression on 70,000 records of norm 1 in 5 dimensions, lambda .01, 20 full-batch steps, claimed
    epsilon .1. The first record is the first unit vector; its label is 0, or 1 if `flipped`. The attacker knows
    all records but that label, and sets the threshold by runs of their own.

    Returns "scores" (runs,), "threshold" and the mu of the first step, "mu".

    Args:
        flipped: whether the label of the first record is 1.
        runs: independent releases.
        convexity_power: exponent of the strong convexity in the published noise variance.
        seed: of the noise.
    """
    method, problem = PaperInput(steps=_STEPS, convexity_power=convexity_power), _problem(flipped)
    streams = (SeededStream(seed * runs + run) for run in range(runs))
    found = [method.release(problem, _terms(stream)).theta[0, 0] for stream in streams]
    std = method.std(problem, _terms(SeededStream(0)))
    return {"scores": [float(value) for value in found], "threshold": _middle(method), "mu": true_mu(std, _RECORDS)}


def _terms(stream: SeededStream) -> Terms:
    return Terms(Epsilon(_CLAIMED, _DELTA), Ledger(relation=Relation.REPLACE_ONE), stream)


@cache
def _records() -> tuple[np.ndarray, np.ndarray]:
    """Directions at random, labels by a noisy linear rule; the first record is the one in question."""
    random = np.random.default_rng(0)
    x = random.normal(size=(_RECORDS, _COLUMNS))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[0] = np.eye(_COLUMNS)[0]
    y = (x.sum(axis=1) + random.normal(size=_RECORDS) > 0).astype(float)
    return x, y


def _problem(flipped: bool) -> Problem:
    x, y = _records()
    return Problem(x, np.append(float(flipped), y[1:]), Logistic(), _STRENGTH * _RECORDS)


def _middle(method: PaperInput) -> float:
    """Midpoint of the means under either label in the attacker's own runs, whose noise no audited run shares."""
    own = [
        method.release(_problem(flipped), _terms(SeededStream(_OWN_SEEDS + 2 * run + flipped))).theta[0, 0]
        for run in range(_OWN_RUNS)
        for flipped in (False, True)
    ]
    return float(np.mean(own))


def _tasks(size: str) -> list[Task]:
    return [
        Task(
            f"{__name__}:released",
            {"flipped": flipped, "runs": _RUNS[size], "convexity_power": power, "seed": int(flipped)},
            _SECONDS * (_RUNS[size] + 2 * _OWN_RUNS),
        )
        for power in _POWERS[size]
        for flipped in (True, False)
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """What the audit proves at 95 %, and the smallest violation that it would have been expected to find."""
    make, rows = partial(Row, KEY, "label-flip"), []
    claim = accountant("naive")(Approximate(_CLAIMED, _DELTA), relation=Relation.REPLACE_ONE)
    for power, flipped, kept in zip(_POWERS[size], values[::2], values[1::2], strict=True):
        found = audit_scores(
            Scores("label flip", np.array(flipped["scores"]), np.array(kept["scores"]), flipped["threshold"]),
            delta=_DELTA,
            estimator="fixed",
            trials="independent",
            relation=Relation.REPLACE_ONE,
            claim=claim,
        )
        fpr, tpr = (float(np.mean(np.array(runs["scores"]) >= runs["threshold"])) for runs in (kept, flipped))
        prefix = f"exponent {power:g}, {_RUNS[size]} runs with either label: "
        rows += [
            make(f"{prefix}true positive rate", None, tpr),
            make(f"{prefix}false positive rate", None, fpr),
            make(f"{prefix}epsilon as claimed", None, _CLAIMED, standing=Standing.CLAIMED),
            make(f"{prefix}epsilon at least, at 95 %", None, found.epsilon_lower),
            make(f"{prefix}mu at least, at 95 %, were it Gaussian", None, found.mu_lower),
            make(f"{prefix}smallest epsilon that the audit would detect", None, found.detectable_epsilon),
            make(f"{prefix}claim refuted (1 yes, 0 no)", None, float(found.refutes(claim))),
            make(f"{prefix}mu of the first step by formula", None, flipped["mu"], None, Standing.ASYMPTOTIC),
            make(
                f"{prefix}epsilon of that mu", None, gaussian_epsilon(_DELTA, flipped["mu"]), None, Standing.ASYMPTOTIC
            ),
        ]
    return rows


ITEM = Item("label-flip", "attack on one flipped label in the released parameters", _tasks, _rows)
