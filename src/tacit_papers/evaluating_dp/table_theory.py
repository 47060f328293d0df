"""Table 1: what k steps of epsilon cost by advanced composition, CDP, zCDP and RDP, and by the exact composition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit.accounting import accountant
from tacit.mechanisms import Approximate
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row, unpublished_rows
from tacit_papers.evaluating_dp.privacy import DELTA, KEY

_CELLS = ((0.01, 100), (0.1, 100), (0.5, 100), (0.01, 5000))
_WORDS = {
    "advanced": ("advanced composition", Standing.PROVEN),
    "cdp": ("CDP", Standing.PROVEN),
    "zcdp": ("zCDP", Standing.PROVEN),
    "rdp": ("RDP, where log(1/delta) >= k epsilon^2", Standing.PROVEN),
    "exact": ("exact composition of pure steps", Standing.PROVEN),
    "advanced_loss": ("bound on the expected loss of a step, advanced composition", Standing.PROVEN),
    "cdp_loss": ("bound on the expected loss of a step, CDP", Standing.PROVEN),
    "zcdp_loss": ("bound on the expected loss of a step, zCDP", Standing.PROVEN),
    "rdp_loss": ("bound on the expected loss of a step, RDP", Standing.PROVEN),
    "exact_loss": ("expected privacy loss of a step of randomised response", Standing.PROVEN),
    "variance": ("bound on the variance of the loss of a step, all four", Standing.PROVEN),
    "exact_variance": ("variance of the loss of a step of randomised response", Standing.PROVEN),
}


def composed(epsilon: float, steps: int) -> dict[str, float | None]:
    """The table's formulas at (epsilon, k = `steps`), delta 1e-5; None where a formula does not apply.

    All are bounds for pure steps: Dwork & Rothblum 2016 (CDP), Bun & Steinke 2016, Propositions 1.3 and 1.4 (zCDP),
    Mironov 2017, Proposition 10 (RDP, epsilon <= 1).
    """
    root = epsilon * math.sqrt(2 * steps * math.log(1 / DELTA))
    drift = epsilon * math.expm1(epsilon)
    exact = accountant("optimal")(Approximate(epsilon, 0.0) * steps).epsilon(DELTA)
    return {
        "advanced": root + steps * drift,
        "cdp": root + steps * drift / 2,
        "zcdp": root + steps * epsilon**2 / 2,
        "rdp": 4 * root if math.log(1 / DELTA) >= steps * epsilon**2 else None,
        "exact": float(exact),
        "advanced_loss": drift,
        "cdp_loss": drift / 2,
        "zcdp_loss": epsilon**2 / 2,
        "rdp_loss": 2 * epsilon**2,
        "exact_loss": epsilon * math.tanh(epsilon / 2),
        "variance": epsilon**2,
        "exact_variance": (epsilon / math.cosh(epsilon / 2)) ** 2,
    }


def _tasks(size: str) -> list[Task]:
    return [Task(f"{__name__}:composed", {"epsilon": epsilon, "steps": steps}, 0.2) for epsilon, steps in _CELLS]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        row
        for (epsilon, steps), value in zip(_CELLS, values, strict=True)
        for row in unpublished_rows(KEY, "table-theory", f"epsilon {epsilon:g} a step, {steps} steps: ", value, _WORDS)
    ]


ITEM = Item("table-theory", "composition by the paper's theory table", _tasks, _rows)
