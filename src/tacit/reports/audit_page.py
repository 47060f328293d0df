"""`audit.html` and `audit.json`: what attacks found in a run, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.atomic import write_text
from tacit.attacks import approximate_bound, gaussian_bound, pure_bound
from tacit.audit import Report
from tacit.plain import json_text, plain
from tacit.reports import words
from tacit.reports.page import environment

_MOST = 0.99


def audit_table_of(report: Report) -> dict[str, Any]:
    """The content of `audit.json`: plain values, infinity spelled "inf"."""
    return plain(
        {
            "delta": report.delta,
            "claim": None if report.claim is None else _claimed(report),
            "audits": report.rows(),
            "overlaps": {name: [vars(row) for row in rows] for name, rows in report.overlaps.items()},
        }
    )


def write_audit(report: Report, folder: str | Path, *, title: str) -> Path:
    """Write `audit.json` and `audit.html` into `folder`, each atomically; returns the path of the page."""
    folder = Path(folder)
    html = audit_page(report, title=title)
    write_text(folder / "audit.json", json_text(audit_table_of(report)))
    write_text(folder / "audit.html", html)
    return folder / "audit.html"


def audit_page(report: Report, *, title: str) -> str:
    """The report as HTML: every string escaped, no script, nothing loaded from anywhere."""
    from markupsafe import Markup

    from tacit.reports.audit_plots import advantage_svg, overlap_svg
    from tacit.reports.plots import detections_svg, errors_svg

    claim = report.claim
    drawn = [claim] if claim is not None and claim.advantage() < _MOST else []
    epsilon = float("inf") if claim is None else float(claim.epsilon(report.delta))
    points = [(epsilon, result) for result in report.results]
    context = {
        "title": title,
        "report": report,
        "claimed": None if claim is None else _claimed(report),
        "errors": Markup(errors_svg(drawn, report.results)),
        "detections": Markup(detections_svg(drawn, report.results)),
        "advantage": Markup(advantage_svg(points, delta=report.delta, claim=claim)),
        "overlaps": {name: Markup(overlap_svg(rows)) for name, rows in report.overlaps.items()},
        "together": words.together(report.confidences),
        "statements": list(dict.fromkeys(result.statement for result in report.results)),
    }
    return environment().get_template("audit.html.j2").render(context)


def _claimed(report: Report) -> dict[str, float | str]:
    """The claim, and the three bounds that it puts on the advantage."""
    assert report.claim is not None
    epsilon, mu = float(report.claim.epsilon(report.delta)), float(report.claim.mu())
    finite = epsilon < 700
    return {
        "accountant": report.claim.source,
        "standing": report.claim.standing.value,
        "epsilon": epsilon,
        "delta": report.delta,
        "advantage": float(report.claim.advantage()),
        "pure_bound": pure_bound(epsilon) if finite else float("inf"),
        "approximate_bound": approximate_bound(epsilon, report.delta) if finite else 1.0,
        "gaussian_bound": gaussian_bound(mu) if mu < 1e6 else 1.0,
        "sentence": f"ε ≤ {words.upward(epsilon)} at δ = {report.delta:g}, by {report.claim.source}",
    }
