"""The figure of `tacit account --plot`: trade-off curves, and epsilon as the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import Account, Ledger, accountant
from tacit.errors import Refused
from tacit.mechanisms import Compose
from tacit.reports.plots import DASHES
from tacit.tradeoff import TradeOff

_POINTS = 12
_WORTH_DRAWING = 30.0


def plot_account(ledger: Ledger, answer: Account, *, delta: float, path: str | Path) -> None:
    """Draw what `answer` says about `ledger` into `path` (.svg, .png or .pdf).

    Left: type II against type I error. Right: epsilon at `delta` after each part of the run, by every accountant;
    accountants that are more than 30 times above the lowest are left out of both.
    """
    from matplotlib.figure import Figure

    path = Path(path)
    check.choice("ending of the plot file", path.suffix, [".svg", ".png", ".pdf"])
    drawn = _worth_drawing(answer)
    figure = Figure(figsize=(11, 5), layout="constrained")
    errors, course = figure.subplots(1, 2)
    _draw_errors(errors, drawn)
    _draw_course(course, ledger, drawn, delta)
    figure.savefig(path)


def _worth_drawing(answer: Account) -> list[TradeOff]:
    finite = [result for result in answer.results if np.isfinite(result.epsilon)]
    lowest = min((result.epsilon for result in finite), default=0.0)
    return [result.tradeoff for result in finite if result.epsilon <= max(lowest, 1e-6) * _WORTH_DRAWING]


def _draw_errors(axes: Any, tradeoffs: list[TradeOff]) -> None:
    alpha = np.concatenate([np.geomspace(1e-6, 1e-2, 100), np.linspace(1e-2, 1.0, 200)])
    for tradeoff in tradeoffs:
        axes.plot(alpha, tradeoff.curve.beta(alpha), dashes=DASHES[tradeoff.standing], label=_label(tradeoff))
    axes.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    axes.set(xlabel="type I error", ylabel="type II error", xlim=(0, 1), ylim=(0, 1), aspect="equal")


def _draw_course(axes: Any, ledger: Ledger, tradeoffs: list[TradeOff], delta: float) -> None:
    mechanism = ledger.mechanism
    most = max(times for _, times in mechanism.steps)
    shares = np.unique(np.geomspace(max(most / 100, 1), most, _POINTS).round()) / most
    for tradeoff in tradeoffs:
        judge = accountant(tradeoff.source)
        epsilons = []
        for share in shares:
            part = Compose(tuple((step, max(1, round(share * times))) for step, times in mechanism.steps))
            try:
                epsilons.append(float(judge(part, relation=ledger.relation).epsilon(delta)))
            except Refused:
                epsilons.append(np.nan)
        axes.plot(shares * most, epsilons, dashes=DASHES[tradeoff.standing], label=_label(tradeoff))
    axes.set(xlabel="steps", ylabel=f"epsilon at delta = {delta:g}", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False)


def _label(tradeoff: TradeOff) -> str:
    return f"{tradeoff.source} ({tradeoff.standing.value})"
