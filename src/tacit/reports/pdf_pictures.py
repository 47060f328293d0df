"""The pictures of a card's PDF, from `card.json` alone: the certified trade-off curve, and the calibration curve."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tacit.accounting import Ledger, accountant
from tacit.errors import TacitError
from tacit.reports.plots import LABELS, Rows, draw_calibration, drawable
from tacit.reports.words import SHARES
from tacit.tradeoff import TradeOff

_INK = {"ink": "#1c2330", "faint": "#a9b0ba", "proven": "#0f5f8c", "private": "#0f5f8c"}
_ALPHA = np.concatenate([[0.0], np.geomspace(1e-4, 1e-2, 60), np.linspace(1e-2, 1.0, 200)[1:]])
_SIDE = 3.2  # inches of a picture
_DOTS = 200  # per inch


def certified(table: Mapping[str, Any], best: Mapping[str, Any] | None) -> TradeOff | None:
    """The trade-off curve of the best guarantee, recomputed from the mechanisms of the card.

    None where there is no proven one, or where the curve of the mechanisms has another epsilon than the card states:
    a picture beside a number that it contradicts helps nobody. It is no evidence that they ran.
    """
    if best is None or best["standing"] != "proven":
        return None
    try:
        # Hashes are those of the whole ledger, of which the card has a part.
        steps = [{key: value for key, value in row.items() if key != "hash"} for row in table["mechanisms"]]
        ledger = Ledger.from_spec({"relation": table["relation"], "mechanisms": steps})
        found = accountant(best["accountant"])(ledger)
        same = math.isclose(float(found.epsilon(best["delta"])), float(best["epsilon"]), rel_tol=1e-3)
        return found if same else None
    except TacitError:
        return None


def card_png(table: Mapping[str, Any], best: Mapping[str, Any] | None) -> tuple[bytes, list[str]] | None:
    """The pictures side by side as PNG, with the sentence that each stands for; None where there is nothing to draw."""
    import matplotlib
    from matplotlib.figure import Figure

    curve, rows = certified(table, best), drawable(table.get("calibration") or ())
    drawn: list[Callable[[Any], str]] = [partial(_draw_errors, curve)] if curve is not None else []
    drawn += [partial(_draw_shares, rows)] if rows else []
    if not drawn:
        return None
    with matplotlib.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(_SIDE * len(drawn), _SIDE), layout="constrained")
        said = [draw(figure.add_subplot(1, len(drawn), place + 1)) for place, draw in enumerate(drawn)]
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=_DOTS)
    return stream.getvalue(), said


def _draw_errors(curve: TradeOff, axes: Any) -> str:
    beta = curve.curve.beta(_ALPHA)
    axes.fill_between(_ALPHA, beta, 0, color=_INK["proven"], alpha=0.12, linewidth=0)
    axes.plot(_ALPHA, beta, color=_INK["proven"], linewidth=1.8)
    axes.plot([0, 1], [1, 0], color=_INK["faint"], linewidth=0.8)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="type I error (non-members flagged)", ylabel="type II error (members missed)")
    return (
        f"Error rates of every attack by {curve.source} (proven): none gets into the shaded region, if the mechanisms "
        "ran as the card says. What attacks reached is drawn on card.html."
    )


def _draw_shares(rows: Rows, axes: Any) -> str:
    draw_calibration(axes, rows, _INK)
    axes.set(xlabel=LABELS[0], ylabel=LABELS[1])
    return SHARES
