"""Results of an audit: `audit.html` and `audit.json`, and tables for the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tacit.attacks import Overlap, approximate_bound, gaussian_bound, pure_bound
from tacit.audit import Finding, Report
from tacit.reports import words
from tacit.reports.card import environment
from tacit.reports.plots import detections_svg, errors_svg, said_of_figures
from tacit.reports.tables import plain_table
from tacit.serialization import json_text, plain_values, write_bytes


def finding_table(findings: Sequence[Finding]) -> Table:
    """Lower bounds on epsilon by estimators that give no point, and in the caption what each rests on."""
    named = ("attack", "bounds by")
    rows = [
        {
            "attack": found.attack,
            "bounds by": found.estimator,
            "epsilon at least": words.downward(found.epsilon_lower, 3),
            "mu at least": words.downward(found.mu_lower, 3),
            "mu it could have found (Gaussian DP)": words.upward(found.detectable_mu, 3),
        }
        for found in findings
    ]
    said = "\n".join(f"{found.estimator}: valid when {found.valid_when}" for found in findings)
    return plain_table(rows, numbers=[name for name in rows[0] if name not in named], caption=said)


def overlap_table(name: str, rows: Sequence[Overlap]) -> Table:
    """Members and non-members flagged in at least k runs, beside the share expected by chance."""
    told = [
        {
            "runs": f">= {row.runs}",
            "members": f"{row.members:,}",
            "non-members": f"{row.non_members:,}",
            "PPV": words.nearest(row.ppv, 3),
            "share by chance": words.nearest(row.chance, 3),
        }
        for row in rows
    ]
    return plain_table(told, title=name, numbers=list(told[0])[1:])


def audited_sentence(report: Report) -> str:
    """Whether the claimed number was audited, and if not, why."""
    if report.audited:
        by = "by the run's execution record and ledger"
        return f"audited: {report.audited_steps:,} steps were run again with canaries, {by}."
    return f"not audited: {'; '.join(each.rstrip('.') for each in report.differences) or 'attacks alone'}."


def audit_table_of(report: Report) -> dict[str, Any]:
    """The content of `audit.json`: plain values, infinity spelled "inf"."""
    return plain_values(
        {
            "delta": report.delta,
            "claim": None if report.claim is None else _claimed(report),
            "audits": report.rows(),
            "overlaps": {name: [vars(row) for row in rows] for name, rows in report.overlaps.items()},
            "refuted": report.refuted,
            "refuted_by": list(report.refuted_by or ()),
            "refuted_at": 0.999,
            "monitors": {name: "passed" if passed else "failed" for name, passed in report.monitors.items()},
            "refusals": list(report.refusals),
            "audited": report.audited,
            "differences": list(report.differences),
        }
    )


def audit_files(report: Report, *, title: str) -> dict[str, bytes]:
    """The content of `audit.json` and `audit.html`, by name."""
    files = {"audit.json": json_text(audit_table_of(report)), "audit.html": audit_page(report, title=title)}
    return {name: text.encode() for name, text in files.items()}


def write_audit(report: Report, folder: str | Path, *, title: str) -> Path:
    """Write `audit.json` and `audit.html` into `folder`, each atomically; returns the path of the page."""
    for name, content in audit_files(report, title=title).items():
        write_bytes(Path(folder) / name, content)
    return Path(folder) / "audit.html"


def audit_page(report: Report, *, title: str) -> str:
    """The report as HTML: every string escaped, no script, nothing loaded from anywhere."""
    from markupsafe import Markup

    claim = report.claim
    drawn = [claim] if claim is not None and claim.advantage() < words.TRIVIAL_ADVANTAGE else []
    context = {
        "title": title,
        "report": report,
        "claimed": None if claim is None else _claimed(report),
        "errors": Markup(errors_svg(drawn, report.results)),
        "detections": Markup(detections_svg(drawn, report.results)),
        "said_of_figures": said_of_figures(drawn, report.results),
        "audited": audited_sentence(report),
        "together": words.together(report.confidences, jointly=report.refuted_by is not None),
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
