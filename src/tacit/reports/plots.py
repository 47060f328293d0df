"""Figures of the privacy card as inline SVG, and the figure of `tacit account --plot`.

Matplotlib figures as inline SVG: colours follow the page's CSS variables, letters its font, nothing is loaded.

The calibration curve of two classes: share of the second class against its predicted chance, with its band.
"""

import html
import io
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tacit import check
from tacit.accounting import Account, Ledger, accountant
from tacit.audit import AuditResult
from tacit.errors import Refused
from tacit.mechanisms import Compose
from tacit.standing import Standing
from tacit.tradeoff import TradeOff

_NAMES = "ink faint paper proven conditional asymptotic bayesian claimed measured private nonprivate"
INK = {name: f"#fe{index:02x}ef" for index, name in enumerate(_NAMES.split())}
"""Stand-in colours, one for each CSS variable `--NAME` of the card; `inline_svg` swaps them."""

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.edgecolor": INK["faint"],
    "axes.labelcolor": INK["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.color": INK["faint"],
    "ytick.color": INK["faint"],
    "xtick.labelcolor": INK["ink"],
    "ytick.labelcolor": INK["ink"],
    "text.color": INK["ink"],
}


def settings(salt: str) -> Any:
    """The matplotlib settings to draw a card figure under; `salt` keeps element ids of two figures apart."""
    chosen: Any = _SETTINGS | {"svg.hashsalt": salt}
    return matplotlib.rc_context(chosen)


def inline_svg(figure: Figure, *, description: str) -> str:
    """`figure`, drawn under `settings`, as one `<svg>` element for an HTML page."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for name, colour in INK.items():
        text = text.replace(colour, f"var(--{name})")
    text = text.replace('<g id="', '<g class="')  # Two figures of a page must not share an id.
    text = re.sub(r"""font: ([\d.]+px) [^;"]*""", r"font-size: \1", text)
    text = re.sub(r"""font-family: [^;"]*;? ?""", "", text)
    view = re.search(r'viewBox="[^"]*"', text)
    head = f'<svg {view.group(0) if view else ""} role="img" aria-label="{html.escape(description)}">'
    return head + text[text.index(">") + 1 :].strip()


DASHES: dict[Standing, tuple[float, ...]] = {
    Standing.PROVEN: (),
    Standing.CONDITIONAL: (9, 2),
    Standing.ASYMPTOTIC: (6, 3),
    Standing.BAYESIAN: (6, 2, 1.5, 2),
    Standing.CLAIMED: (1.5, 2.5),
    Standing.MEASURED: (),
}
"""Dash pattern of each standing, in points; the page's legend draws the same ones."""
_SQUARE = (4.6, 4.4)  # inches
_POINTS = 12  # of epsilon along the run: each asks every accountant once
_WORTH_DRAWING = 30.0  # times the smallest epsilon; beyond it one curve would flatten all others
_LEAST = 1e-4  # smallest error rate on logarithmic axes: finer than any audit of a run resolves
_ALPHA = np.concatenate([[0.0], np.geomspace(1e-6, 1e-2, 120), np.linspace(1e-2, 1.0, 300)[1:]])


def errors_svg(tradeoffs: Sequence[TradeOff], audits: Sequence[AuditResult]) -> str:
    """Type I error against type II error; what no attack can reach is shaded."""
    with settings("errors"):
        figure, axes = axes_of(_SQUARE, "type I error (non-members flagged)", "type II error (members missed)")
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_aspect("equal")
        axes.plot([0, 1], [1, 0], color=INK["faint"], linewidth=0.8)
        _draw(axes, tradeoffs, audits, lambda beta: beta, floor=0.0)
        return inline_svg(figure, description="Type I error against type II error of the best possible attack.")


def detections_svg(tradeoffs: Sequence[TradeOff], audits: Sequence[AuditResult]) -> str:
    """The same curves where false alarms are few: members found against type I error, both logarithmic."""
    with settings("detections"):
        figure, axes = axes_of(_SQUARE, "type I error (non-members flagged)", "members found (1 − type II error)")
        axes.set(xscale="log", yscale="log", xlim=(_LEAST, 1), ylim=(_LEAST, 1))
        axes.set_aspect("equal")
        ticks = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, labels=["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
            axis.set_ticks([], minor=True)
        axes.plot([_LEAST, 1], [_LEAST, 1], color=INK["faint"], linewidth=0.8)
        _draw(axes, tradeoffs, audits, lambda beta: np.maximum(1 - beta, _LEAST / 10), floor=1.0)
        return inline_svg(figure, description="Members found against type I error of the best possible attack.")


def training_svg(curve: Mapping[str, Sequence[float]], *, measure: str = "accuracy") -> str:
    """`measure` after each epoch, one line for each of `private` and `nonprivate`."""
    with settings("training"):
        figure, axes = axes_of((5.6, 2.5), "epoch", measure)
        for name, dashes in (("nonprivate", (5, 3)), ("private", ())):
            values = curve.get(name, ())
            epochs = range(1, len(values) + 1)
            marker = "o" if len(values) < 3 else None
            axes.plot(epochs, values, color=INK[name], linewidth=1.8, dashes=dashes, marker=marker, markersize=4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if measure == "accuracy":
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.grid(axis="y", color=INK["faint"], linewidth=0.4, alpha=0.5)
        return inline_svg(figure, description=f"Test {measure} after each epoch of training.")


def axes_of(size: tuple[float, float], across: str, up: str) -> tuple[Any, Any]:
    """A figure of `size` inches and its axes, with their labels."""
    # Margins in inches for the labels that these figures have: to let matplotlib fit them is two fifths of a drawing.
    width, height = size
    axes = (figure := Figure(figsize=size)).add_axes((0.9 / width, 0.55 / height, 1 - 1.2 / width, 1 - 0.7 / height))
    axes.set(xlabel=across, ylabel=up)
    return figure, axes


def _draw(
    axes: Any, tradeoffs: Sequence[TradeOff], audits: Sequence[AuditResult], height: Any, *, floor: float
) -> None:
    """Every curve on `axes`; `height` maps a type II error to the y axis, `floor` is its best for attacks."""
    proven = [tradeoff for tradeoff in tradeoffs if tradeoff.standing is Standing.PROVEN]
    if proven:
        betas = [tradeoff.curve.beta(_ALPHA) for tradeoff in proven]
        tightest = int(np.argmax([beta.sum() for beta in betas]))
        _shade_impossible(axes, height(np.max(betas, axis=0)), floor)
        for index, beta in enumerate(betas):
            main = index == tightest
            axes.plot(_ALPHA, height(beta), color=INK["proven"], linewidth=2 if main else 0.9, alpha=1 if main else 0.6)
        ceiling = proven[tightest].floor
        if ceiling is not None:
            top = height(ceiling.beta_ceiling(_ALPHA))
            axes.fill_between(_ALPHA, height(betas[tightest]), top, color=INK["proven"], alpha=0.35, linewidth=0)
    for tradeoff in tradeoffs:
        if tradeoff.standing not in (Standing.PROVEN, Standing.MEASURED):
            style = {"color": INK[tradeoff.standing.value], "dashes": DASHES[tradeoff.standing], "linewidth": 1.6}
            axes.plot(_ALPHA, height(tradeoff.curve.beta(_ALPHA)), **style)
    for audit in audits:
        x, y = _band_outline(audit)
        axes.fill(x, height(y), color=INK["measured"], alpha=0.2, linewidth=0)
        fpr, fnr = observed(audit)
        marker = "o" if len(fpr) == 1 else None
        axes.plot(fpr, height(fnr), color=INK["measured"], linewidth=1.3, marker=marker, markersize=3)


def _shade_impossible(axes: Any, edge: np.ndarray, floor: float) -> None:
    axes.fill_between(_ALPHA, edge, floor, color=INK["proven"], alpha=0.12, linewidth=0)
    inside = 0.05 if floor == 0.0 else 0.95
    roomy = edge[np.searchsorted(_ALPHA, 0.3)] > 0.25 if floor == 0.0 else edge[np.searchsorted(_ALPHA, 1e-3)] < 0.1
    if roomy:
        label = "proven: no attack gets here"
        axes.text(0.05, inside, label, transform=axes.transAxes, va="center", color=INK["proven"], fontsize=8.5)


def observed(audit: AuditResult) -> tuple[np.ndarray, np.ndarray]:
    """(FPR, FNR) of the empirical curve where the data resolve it: one false alarm and one missed member at least.

    Without a false alarm the records say only that the rate is below about 1 / non-members; a line there would be
    drawn by nothing but the axes. Both arrays are empty where the attack separates all records.
    """
    inside = (audit.fpr > 0) & (audit.tpr < 1)
    fpr, tpr = audit.fpr[inside], audit.tpr[inside]
    kept = _few(fpr + tpr) if len(fpr) else slice(0, 0)
    return fpr[kept], 1 - tpr[kept]


def enters(audit: AuditResult, claim: TradeOff) -> tuple[bool, bool]:
    """Whether the drawn curve, and whether the drawn band of `audit` reaches below the trade-off curve of `claim`."""
    fpr, fnr = observed(audit)
    x, y = _band_outline(audit)
    return bool(np.any(fnr < claim.curve.beta(fpr) - 1e-9)), bool(np.any(y < claim.curve.beta(x) - 1e-9))


def _band_outline(audit: AuditResult) -> tuple[np.ndarray, np.ndarray]:
    """The polygon around the band: the box of one threshold, or the outer edge there and the inner edge back.

    It ends where the data end, at one false alarm and one missed member.
    """
    band = audit.band
    least_fpr, least_fnr = 1 / audit.non_members, 1 / audit.members
    if len(band.fpr_low) == 1:
        left, right, low, high = band.fpr_low[0], band.fpr_high[0], band.fnr_low[0], band.fnr_high[0]
        x, y = np.array([left, right, right, left]), np.array([low, low, high, high])
    else:
        kept = _few(band.fpr_high - band.fnr_high + 1)
        x = np.concatenate([band.fpr_high[kept], band.fpr_low[kept][::-1]])
        y = np.concatenate([band.fnr_high[kept], band.fnr_low[kept][::-1]])
    return np.maximum(x, least_fpr), np.maximum(y, least_fnr)


def _few(reach: np.ndarray) -> np.ndarray:
    """Which points of a long curve to draw, dense where few records are flagged; `reach` grows along it from 0 to 2."""
    targets = np.concatenate([np.geomspace(1e-5, 2, 250), np.linspace(0, 2, 250)])
    return np.unique(np.append(np.searchsorted(reach, targets), [0, len(reach) - 1]).clip(max=len(reach) - 1))


def said_of_figures(tradeoffs: Sequence[TradeOff], audits: Sequence[AuditResult]) -> str:
    """What the pictures show, read off the curves that are drawn: the caption claims nothing that they contradict."""
    proven = [tradeoff for tradeoff in tradeoffs if tradeoff.standing is Standing.PROVEN]
    said = ["The shaded region is proven to be out of reach of every attack."] if proven else []
    if audits:
        said.append(
            "The line of an attack is what it reached on the records scored, its band where the true rates lie with "
            "the stated confidence; both end where the data end, at one false alarm and one missed member."
        )
    inside = {audit.attack: [enters(audit, tradeoff) for tradeoff in proven] for audit in audits}
    lines = [name for name, found in inside.items() if any(line for line, _ in found)]
    bands = [name for name, found in inside.items() if any(band for _, band in found)]
    if proven and audits and not lines:
        said.append("No line reaches into the shaded region.")
    if lines:
        said.append(
            f"The line of {', '.join(lines)} reaches into the shaded region: that refutes the proof only where the "
            "whole band does, which the verdicts tell."
        )
    if bands:
        said.append("A band may reach into the shaded region where there are too few records to tell.")
    return " ".join(said)


def plot_account(ledger: Ledger, answer: Account, *, delta: float, path: str | Path) -> None:
    """Draw what `answer` says about `ledger` into `path` (.svg, .png or .pdf).

    Left: type II against type I error. Right: epsilon at `delta` after each part of the run, by every accountant;
    accountants that are more than 30 times above the lowest are left out of both.

    Args:
        ledger: the mechanisms that ran.
        answer: what every accountant says about it.
        delta: in (0, 1), of epsilon in the right picture.
        path: file to write; its ending gives the format.

    Raises:
        InvalidInput: the ending of `path` is another.
    """
    path = Path(path)
    check.choice("ending of the plot file", path.suffix, [".svg", ".png", ".pdf"])
    finite = [result for result in answer.results if np.isfinite(result.epsilon)]
    worth = max(min((result.epsilon for result in finite), default=0.0), 1e-6) * _WORTH_DRAWING
    drawn = [result.tradeoff for result in finite if result.epsilon <= worth]
    figure = Figure(figsize=(11, 5), layout="constrained")
    errors, by_step = figure.subplots(1, 2)
    for tradeoff in drawn:
        tradeoff.plot(errors)
    errors.set_aspect("equal")
    _draw_epsilons(by_step, ledger, drawn, delta)
    figure.savefig(path)


def _draw_epsilons(axes: Any, ledger: Ledger, tradeoffs: list[TradeOff], delta: float) -> None:
    mechanism = ledger.mechanism
    most = max(times for _, times in mechanism.steps)
    shares = np.unique(np.geomspace(max(most / 100, 1), most, _POINTS).round()) / most
    for tradeoff in tradeoffs:
        bound = accountant(tradeoff.source)
        epsilons = []
        for share in shares:
            part = Compose(tuple((step, max(1, round(share * times))) for step, times in mechanism.steps))
            try:
                epsilons.append(float(bound(part, relation=ledger.relation).epsilon(delta)))
            except Refused:
                epsilons.append(np.nan)
        label = f"{tradeoff.source} ({tradeoff.standing.value})"
        axes.plot(shares * most, epsilons, dashes=DASHES[tradeoff.standing], label=label)
    axes.set(xlabel="steps", ylabel=f"epsilon at delta = {delta:g}", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False)


Rows = Sequence[Mapping[str, float]]


def calibration_svg(rows: Rows) -> str:
    """The curve as inline SVG for the card."""
    with settings("calibration"):
        figure, axes = axes_of(_SQUARE, "predicted chance of the second class", "share of the second class")
        draw_calibration(axes, rows)
        return inline_svg(figure, description="Share of the second class against its predicted chance, with its band.")


def draw_calibration(axes: Any, rows: Rows) -> None:
    """Draw the diagonal, and of each bin that has rows its band as a box and its mean as a point.

    Points are joined where bins are neighbours; between others there are no data, and nothing is drawn.

    Args:
        axes: of matplotlib.
        rows: as in `Card.calibration`, with a band.
    """
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.plot([0, 1], [0, 1], color=INK["faint"], linewidth=0.8)
    for row in rows:
        sides = [row["start"], row["end"]]
        axes.fill_between(sides, row["low"], row["high"], color=INK["private"], alpha=0.18, linewidth=0)
    for one, other in pairwise(rows):
        if other["start"] <= one["end"] + 1e-9:
            ends = [one["predicted"], other["predicted"]], [one["share"], other["share"]]
            axes.plot(*ends, color=INK["private"], linewidth=1.6)
    points = [row["predicted"] for row in rows], [row["share"] for row in rows]
    axes.plot(*points, color=INK["private"], marker="o", markersize=4, linestyle="none", clip_on=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
