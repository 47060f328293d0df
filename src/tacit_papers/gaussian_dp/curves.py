"""Figure 3 and the appendix figure: trade-off curves of the CLT, of the moments accountant, and the exact ones.

Figure 2: epsilon by epochs, delta by epsilon and the reverse, and the noise that is enough.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.gaussian_dp.privacy import COLUMNS, curve_task, deltas_task, matched_task, standing
from tacit_papers.gaussian_dp.tables import KEY, NUMBERS

_ALPHAS = [round(float(alpha), 4) for alpha in np.linspace(0.0, 1.0, 101)]
_APPENDIX_STEPS = 234
_BY = {"clt": "clt", "exact": "pld", "envelope": "moments"}


def errors(sigma: float, sample_rate: float, steps: int, delta: float) -> dict[str, Any]:
    """Type II errors at 101 type I errors, and the least sum of both, by three accountants.

    "moments" is the one (epsilon, delta) that the moments accountant states at `delta`; "envelope" all of them.

    Args:
        sigma: noise multiplier, > 0.
        sample_rate: in (0, 1].
        steps: number of steps, >= 1.
        delta: in (0, 1).
    """
    ran = Ledger.of(Gaussian(sigma).poisson(sample_rate) * steps)
    moments = accountant("moments")(ran)
    epsilon = float(moments.epsilon(delta))
    alphas = np.array(_ALPHAS)
    single = np.maximum.reduce(
        [np.zeros_like(alphas), 1 - delta - np.exp(epsilon) * alphas, np.exp(-epsilon) * (1 - delta - alphas)]
    )
    curves = {
        "clt": accountant("clt")(ran).curve.beta(alphas),
        "exact": accountant("pld")(ran).curve.beta(alphas),
        "envelope": moments.curve.beta(alphas),
        "moments": single,
    }
    sums = {f"{name}_sum": 1 - float(accountant(by)(ran).advantage()) for name, by in _BY.items()}
    sums["moments_sum"] = 2 * (1 - delta) / (1 + np.exp(epsilon))
    return {name: [round(float(beta), 6) for beta in curve] for name, curve in curves.items()} | sums


def _tasks(size: str) -> list[Task]:
    table = NUMBERS["table_1"]
    rate = table["batch_size"] / table["records"]
    rows = table["rows"] if size == "full" else table["rows"][1:2]
    return [_task(row["sigma"], rate, round(row["epochs"] / rate)) for row in rows]


def _task(sigma: float, rate: float, steps: int) -> Task:
    settings = {"sigma": sigma, "sample_rate": rate, "steps": steps, "delta": 1e-5}
    return Task(f"{__name__}:errors", settings, 1.0)


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """The text states the least sums of errors of row 2, by the CLT and by the moments accountant."""
    stated = NUMBERS["figure_3"]
    allowed = stated["tolerance"]
    make, second = partial(Row, KEY, "figure-3"), values[1 if size == "full" else 0]
    return [
        make(
            "sigma 1.1: least sum of errors by the CLT, %",
            stated["clt_sum"],
            100 * second["clt_sum"],
            allowed["clt_sum"],
            Standing.ASYMPTOTIC,
        ),
        make(
            "sigma 1.1: least sum of errors by the moments accountant, %",
            stated["moments_sum"],
            100 * second["moments_sum"],
            allowed["moments_sum"],
            Standing.PROVEN,
        ),
        make("sigma 1.1: least sum of errors, exact, %", None, 100 * second["exact_sum"], None, Standing.PROVEN),
    ]


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    table = NUMBERS["table_1"]
    rows = table["rows"] if size == "full" else table["rows"][1:2]
    return {f"figure-3-sigma-{row['sigma']}": _errors_svg(value) for row, value in zip(rows, values, strict=True)}


def _errors_svg(value: dict[str, Any]) -> str:
    words = {"clt": "CLT", "exact": "exact", "envelope": "moments, every delta", "moments": "moments, delta 1e-5"}
    lines = {label: (_ALPHAS, value[name]) for name, label in words.items()}
    return lines_svg(lines, across="type I error", up="type II error", square=True)


def _appendix_tasks(size: str) -> list[Task]:
    """Row 2 with 234 steps and the rate that keeps rate * sqrt(steps): how far the CLT is from its limit there."""
    steps = round(60 * 60000 / 256)
    rate = 256 / 60000 * (steps / _APPENDIX_STEPS) ** 0.5
    return [_task(1.1, rate, _APPENDIX_STEPS)]


def _appendix_rows(size: str, values: Sequence[Any]) -> list[Row]:
    make = partial(Row, KEY, "figure-appendix")
    far = max(abs(a - b) for a, b in zip(values[0]["clt"], values[0]["exact"], strict=True))
    return [make("largest gap between the CLT's curve and the exact one", None, far, None, Standing.PROVEN)]


def _appendix_drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    return {"figure-appendix": _errors_svg(values[0])}


ITEMS = (
    Item("figure-3", "trade-off curves of the six MNIST settings", _tasks, _rows, _drawings),
    Item("figure-appendix", "234 steps against the limit", _appendix_tasks, _appendix_rows, _appendix_drawings),
)


_SIGMA, _EPOCHS = 0.7, 100


def _epochs(size: str) -> list[int]:
    return list(range(10, _EPOCHS + 1, 10 if size == "full" else 30))


def _epsilons(size: str) -> list[float]:
    return [float(epsilon) for epsilon in np.linspace(0.0, 20.0, 41 if size == "full" else 5)]


def _deltas(size: str) -> list[float]:
    count = 9 if size == "full" else 3
    # Not by numpy, whose powers end in another digit on other processors: settings name the stored runs.
    return [10.0 ** (-6 + 2 * place / (count - 1)) for place in range(count)]


def _sigmas(size: str) -> list[float]:
    return [float(sigma) for sigma in np.linspace(0.7, 3.0, 8 if size == "full" else 3)]


def _figure_2_tasks(size: str) -> list[Task]:
    return [
        curve_task(_SIGMA, _epochs(size)),
        deltas_task(_SIGMA, _EPOCHS, _epsilons(size)),
        *(curve_task(_SIGMA, [_EPOCHS], delta) for delta in _deltas(size)),
        *(matched_task(sigma, _EPOCHS) for sigma in _sigmas(size)),
    ]


def _figure_2_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """The figure stores no values; ours are shown at its ends."""
    make, epochs = partial(Row, KEY, "figure-2"), _epochs(size)
    return [
        make(f"sigma 0.7, {epochs[k]} epochs: epsilon, {words}", None, values[0][name][k], standing=standing(name))
        for k in (0, -1)
        for name, words in COLUMNS.items()
    ]


def _figure_2_drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    by_epoch, by_epsilon, *rest = values
    count = len(_deltas(size))
    by_delta, matched = rest[:count], rest[count:]
    epsilons = [value["epsilon"] for value in matched]
    return {
        "figure-2a": lines_svg(
            {words: (_epochs(size), by_epoch[name]) for name, words in COLUMNS.items()},
            across="epochs",
            up="epsilon at delta 1e-5",
        ),
        "figure-2b": lines_svg(
            {words: (_epsilons(size), by_epsilon[name]) for name, words in COLUMNS.items()},
            across="epsilon",
            up="delta after 100 epochs",
            log_up=True,
        ),
        "figure-2c": lines_svg(
            {words: (_deltas(size), [value[name][0] for value in by_delta]) for name, words in COLUMNS.items()},
            across="delta",
            up="epsilon after 100 epochs",
            log_across=True,
        ),
        "figure-2d": lines_svg(
            {
                "unchanged (moments accountant)": (epsilons, _sigmas(size)),
                "exact": (epsilons, [value["exact"] for value in matched]),
                "CLT": (epsilons, [value["clt"] for value in matched]),
            },
            across="the moments accountant's epsilon",
            up="noise multiplier that is enough",
        ),
    }


FIGURE_2 = Item(
    "figure-2",
    "epsilon by epochs, delta against epsilon, and the noise that is enough",
    _figure_2_tasks,
    _figure_2_rows,
    _figure_2_drawings,
)
