"""The privacy columns: what each setting costs by the CLT, the moments accountant and exactly."""

from collections.abc import Sequence
from typing import Any

from tacit.accounting import Ledger, accountant
from tacit.calibration import noise_multiplier
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff import Epsilon

_STANDINGS = {"mu": Standing.ASYMPTOTIC, "clt": Standing.ASYMPTOTIC, "moments": Standing.PROVEN}
WORDS = {"mu": "mu by the CLT", "clt": "epsilon by the CLT", "moments": "epsilon by the moments accountant"}
COLUMNS = {"moments": "moments accountant", "exact": "exact", "clt": "CLT"}
_MNIST_RATE = 256 / 60000


def cost(sigma: float, sample_rate: float, steps: int, delta: float) -> dict[str, float]:
    """Mu and epsilon by the CLT, epsilon by the moments accountant, and the exact bracket.

    Args:
        sigma: noise multiplier, > 0.
        sample_rate: in (0, 1].
        steps: number of steps, >= 1.
        delta: in (0, 1).
    """
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
    """`cost` after each of several numbers of steps, as one list for each column.

    Args:
        sigma: noise multiplier, > 0.
        sample_rate: in (0, 1].
        steps: numbers of steps, one row for each.
        delta: in (0, 1).
    """
    rows = [cost(sigma, sample_rate, count, delta) for count in steps]
    return {name: [row[name] for row in rows] for name in rows[0]}


def deltas(sigma: float, sample_rate: float, steps: int, epsilons: list[float]) -> dict[str, list[float]]:
    """Delta at each epsilon, by the moments accountant, the CLT and exactly.

    Args:
        sigma: noise multiplier, > 0.
        sample_rate: in (0, 1].
        steps: number of steps, >= 1.
        epsilons: where delta is asked, each >= 0.
    """
    ran = Ledger.of(Gaussian(sigma).poisson(sample_rate) * steps)
    by = {"moments": "moments", "clt": "clt", "exact": "pld"}
    found = {name: accountant(by_name)(ran) for name, by_name in by.items()}
    return {name: [float(guarantee.delta(epsilon)) for epsilon in epsilons] for name, guarantee in found.items()}


def matched(sigma: float, sample_rate: float, steps: int, delta: float) -> dict[str, float]:
    """The noise that the CLT, and soundly the exact accountant, ask for at the moments accountant's epsilon.

    Bu et al., equations (7) and (8).

    Args:
        sigma: noise multiplier, > 0.
        sample_rate: in (0, 1].
        steps: number of steps, >= 1.
        delta: in (0, 1).
    """
    epsilon = cost(sigma, sample_rate, steps, delta)["moments"]
    found: dict[str, float] = {"epsilon": epsilon}
    for name, by_name in (("clt", "clt"), ("exact", "pld")):
        found[name] = noise_multiplier(
            Epsilon(epsilon, delta), sample_rate=sample_rate, steps=steps, accountant=by_name
        ).value
    return found


def cost_task(sigma: float, sample_rate: float, steps: int, delta: float) -> Task:
    """The task whose value is `cost`.

    Args:
        sigma: noise multiplier, > 0.
        sample_rate: in (0, 1].
        steps: number of steps, >= 1.
        delta: in (0, 1).
    """
    settings = {"sigma": sigma, "sample_rate": sample_rate, "steps": steps, "delta": delta}
    return Task(f"{__name__}:cost", settings, 0.3)


def curve_task(sigma: float, epochs: Sequence[int], delta: float = 1e-5) -> Task:
    """The task whose value is `curve` after these epochs of MNIST in batches of 256."""
    steps = [_mnist_steps(epoch) for epoch in epochs]
    settings = {"sigma": sigma, "sample_rate": _MNIST_RATE, "steps": steps, "delta": delta}
    return Task(f"{__name__}:curve", settings, 0.3 * len(epochs))


def deltas_task(sigma: float, epochs: int, epsilons: Sequence[float]) -> Task:
    """The task whose value is `deltas` after these epochs of MNIST in batches of 256."""
    settings = {"sigma": sigma, "sample_rate": _MNIST_RATE, "steps": _mnist_steps(epochs), "epsilons": list(epsilons)}
    return Task(f"{__name__}:deltas", settings, 1.0)


def matched_task(sigma: float, epochs: int) -> Task:
    """The task whose value is `matched` after these epochs of MNIST in batches of 256, at delta 1e-5."""
    settings = {"sigma": sigma, "sample_rate": _MNIST_RATE, "steps": _mnist_steps(epochs), "delta": 1e-5}
    return Task(f"{__name__}:matched", settings, 1.0)


def _mnist_steps(epochs: int) -> int:
    return round(epochs / _MNIST_RATE)


def standing(column: str) -> Standing:
    """What kind of claim a column of `cost` is."""
    return _STANDINGS.get(column, Standing.PROVEN)


def cost_rows(
    make: Any, prefix: str, value: dict[str, float], row: dict[str, Any], tolerance: dict[str, float]
) -> list:
    """The privacy rows of one setting: published columns beside ours, and the exact bracket that the paper lacks.

    Args:
        make: makes a row of a name, the published and our value, a tolerance and a standing.
        prefix: of every row's name.
        value: what `cost` gave.
        row: published numbers by column.
        tolerance: largest difference by column.
    """
    rows = [
        make(f"{prefix}{words}", row.get(name), value[name], tolerance.get(name), standing=_STANDINGS[name])
        for name, words in WORDS.items()
    ]
    upper = make(f"{prefix}epsilon, exact", None, value["exact"], None, standing=Standing.PROVEN)
    return [*rows, upper]
