"""`statement_page`: a statement and the verdicts on it as one page that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from tacit.relation import unit_in_words
from tacit.standing import downward, leakage, upward
from tacit.statement.checking import Finding, Verdict
from tacit.statement.subject import filed


def statement_page(payload: dict[str, Any], findings: Sequence[Finding]) -> str:
    """The page: what is promised to whom, on what it rests, and the verdict on every field.

    Args:
        payload: of the statement, which `check_statement` read.
        findings: of that check.
    """
    worst = max((finding.verdict for finding in findings), default=Verdict.VALID)
    subject, stated = payload["subject"], payload["guarantee"]
    about = [*filed(subject), ("Statement", f"number {subject['sequence']}")]
    parts = [
        f"<h1>Privacy statement: {escape(str(subject['dataset']))}</h1>",
        f'<p class="{_class(worst)}">Checked here: {worst.words}.</p>',
        *(f"<p>{escape(_promise(row, payload))}</p>" for row in stated["at"]),
        _table("What it is about", about),
        _table("What is declared or assumed", _declared(payload["facts"])),
        _table("Attacks on the model", (_attack(row) for row in payload["evidence"]["audits"])),
        _table("Verdict on every field", ((f.field, f"{f.verdict.words}: {f.says}") for f in findings)),
    ]
    style = files("tacit.statement").joinpath("page.css").read_text("utf-8")
    title = f"<title>Privacy statement: {escape(str(subject['dataset']))}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}<style>\n{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _promise(row: dict[str, Any], payload: dict[str, Any]) -> str:
    stated = payload["guarantee"]
    unit = unit_in_words(stated["unit"], str(payload["subject"].get("unit") or ""))
    epsilon = leakage(float(row["epsilon"]), stated["standing"])
    return (
        f"Whoever sees what was released learns about {unit} at most what epsilon {epsilon} with delta "
        f"{row['delta']:g} allows ({stated['standing']}); it was released once, and a further release costs more."
    )


def _declared(facts: Iterable[dict[str, Any]]) -> Iterable[tuple[str, str]]:
    rows = [(fact["how"], fact["says"] or fact["id"]) for fact in facts if fact["how"] in ("declared", "assumed")]
    return rows or [("nothing", "Every fact that the numbers rest on is enforced by the code.")]


def _attack(row: dict[str, Any]) -> tuple[str, str]:
    lower, power = row["epsilon_lower"], row["detectable_epsilon"]
    found = "found no bound" if lower is None else f"found epsilon of at least {downward(float(lower), 3)}"
    could = "its power was not measured" if power is None else f"could have found {upward(float(power), 3)} or more"
    return row["attack"], f"{found} at confidence {row['confidence']}; {could}."


def _table(heading: str, rows: Iterable[tuple[object, object]]) -> str:
    cells = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(text))}</td></tr>" for name, text in rows)
    return f"<h2>{heading}</h2><table>{cells}</table>" if cells else ""


def _class(verdict: Verdict) -> str:
    return "valid" if verdict is Verdict.VALID else "contradicted" if verdict is Verdict.CONTRADICTED else "not"
