"""Claimed against exact epsilon of the published calibration, on a loss that the theorem covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.erm.base import default_delta
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff.gaussian import gaussian_epsilon, gaussian_mu
from tacit_papers.base import Item, Row, unpublished_rows
from tacit_papers.input_perturbation.input_methods import published_std, true_mu

KEY = "input-perturbation"

ROWS = ((150, 0.25), (984, 0.1), (45222, 0.1), (70000, 0.1), (70000, 0.25))
"""n and the claimed epsilon, T = 50."""
LONGER, STEPS = (45222, 0.1), (500, 3000, 45222)
"""The same with more steps: the claim holds at the last."""


@dataclass(frozen=True)
class Refutation:
    """One row: n records, the epsilon claimed by equation (9), and what is exact for the loss ||theta - x||^2 / 2.

    Attributes:
        delta: min(1e-5, n^-1.1).
        noise_std: sigma by equation (9) with G = 2, Delta = 1.
        mu: exact leakage of the released parameter under replace-one.
        epsilon: the same leakage at `delta`.
        constant: the c that would make the claim true, which grows like n / T.
        local_mu: of a perturbed record itself.
    """

    records: int
    claimed: float
    delta: float
    noise_std: float
    mu: float
    epsilon: float
    constant: float
    local_mu: float


def counter_examples(
    rows: Sequence[tuple[int, float]] = ROWS, *, steps: int = 50, constant: float = 1.0
) -> tuple[Refutation, ...]:
    """The table for (records, claimed epsilon) pairs, `steps` gradient steps and the paper's constant c."""
    return tuple(_refuted(records, claimed, steps, constant) for records, claimed in rows)


def _refuted(records: int, claimed: float, steps: int, constant: float) -> Refutation:
    delta = default_delta(records)
    sigma = published_std(
        lipschitz=2.0,
        steps=steps,
        records=records,
        convexity=1.0,
        epsilon=claimed,
        delta=delta,
        constant=constant,
    )
    mu = true_mu(sigma, records)
    needed = constant * (mu / gaussian_mu(claimed, delta)) ** 2
    return Refutation(records, claimed, delta, sigma, mu, gaussian_epsilon(delta, mu), needed, 2 / sigma)


def exact(records: int, claimed: float, steps: int = 50) -> dict[str, float]:
    """`Refutation` of n = `records`, the epsilon `claimed` and T = `steps`, as plain numbers."""
    (found,) = counter_examples([(records, claimed)], steps=steps)
    return asdict(found)


def _tasks(size: str) -> list[Task]:
    settings = [{"records": records, "claimed": epsilon} for records, epsilon in ROWS]
    settings += [dict(zip(("records", "claimed"), LONGER, strict=True)) | {"steps": steps} for steps in STEPS]
    return [Task(f"{__name__}:exact", each, 0.1) for each in settings]


_WORDS = {
    "claimed": ("epsilon as claimed", Standing.CLAIMED),
    "epsilon": ("epsilon, exact", Standing.PROVEN),
    "mu": ("mu, exact", Standing.PROVEN),
    "constant": ("constant c that would make it true", Standing.PROVEN),
    "constant_over_n": ("that c over n", Standing.PROVEN),
    "local_mu": ("mu of a perturbed record itself", Standing.PROVEN),
}


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    rows = []
    for value, steps in zip(values, [0] * len(ROWS) + list(STEPS), strict=False):
        prefix = f"n {value['records']}, claimed {value['claimed']:g}{f', T {steps}' if steps else ''}: "
        value = value | {"constant_over_n": value["constant"] / value["records"]}
        rows += unpublished_rows(KEY, "counter-examples", prefix, value, _WORDS)
    return rows


ITEM = Item("counter-examples", "claimed and exact epsilon of the published calibration", _tasks, _rows)
