"""The privacy columns: what each setting costs by the CLT, the moments accountant and exactly."""

from __future__ import annotations

from typing import Any

from tacit.accounting import Ledger, accountant
from tacit.calibration import noise_multiplier
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff import Epsilon

_STANDINGS = {"mu": Standing.ASYMPTOTIC, "clt": Standing.ASYMPTOTIC, "moments": Standing.PROVEN}
WORDS = {"mu": "mu by the CLT", "clt": "epsilon by the CLT", "moments": "epsilon by the moments accountant"}


def cost(sigma: float, sample_rate: float, steps: int, delta: float) -> dict[str, float]:
    """mu and epsilon by the CLT, epsilon by the moments accountant, and the exact bracket."""
    ran = Ledger.of(Gaussian(sigma).poisson(sample_rate) * steps)
    limit, moments, exact = (accountant(name)(ran) for name in ("clt", "moments", "pld"))
    epsilon = exact.epsilon(delta)
    return {
        "mu": float(limit.mu()),
        "clt": float(limit.epsilon(delta)),
        "moments": float(moments.epsilon(delta)),
        "exact": float(epsilon),
        "exact_lower": float(epsilon.lower or 0.0),
    }


def curve(sigma: float, sample_rate: float, steps: list[int], delta: float) -> dict[str, list[float]]:
    """`cost` after each of several numbers of steps, as one list for each column."""
    rows = [cost(sigma, sample_rate, count, delta) for count in steps]
    return {name: [row[name] for row in rows] for name in rows[0]}


def matched(sigma: float, sample_rate: float, steps: int, delta: float) -> dict[str, float]:
    """The noise that the CLT, and soundly the exact accountant, ask for at the moments accountant's epsilon.

    Bu et al., equations (7) and (8).
    """
    epsilon = cost(sigma, sample_rate, steps, delta)["moments"]
    found: dict[str, float] = {"epsilon": epsilon}
    for name, using in (("clt", "clt"), ("exact", "pld")):
        found[name] = noise_multiplier(Epsilon(epsilon, delta), sample_rate=sample_rate, steps=steps, using=using).value
    return found


def cost_task(sigma: float, sample_rate: float, steps: int, delta: float) -> Task:
    """The task whose value is `cost`."""
    settings = {"sigma": sigma, "sample_rate": sample_rate, "steps": steps, "delta": delta}
    return Task(f"{__name__}:cost", settings, 0.3)


def cost_rows(
    make: Any, prefix: str, value: dict[str, float], row: dict[str, Any], tolerance: dict[str, float]
) -> list:
    """The privacy rows of one setting: published columns beside ours, and the exact bracket that the paper lacks."""
    rows = [
        make(f"{prefix}{words}", row.get(name), value[name], tolerance.get(name), standing=_STANDINGS[name])
        for name, words in WORDS.items()
    ]
    upper = make(f"{prefix}epsilon, exact", None, value["exact"], None, standing=Standing.PROVEN)
    return [*rows, upper]
