"""`write_card`: the card as JSON and as one self-contained page, from the packaged template."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.accounting import Result
from tacit.audit import AuditResult
from tacit.reports import words
from tacit.reports.card import Card, card_table, refuted
from tacit.reports.plots import drawable
from tacit.serialization import json_text, write_text
from tacit.standing import Standing
from tacit.tradeoff import TradeOff

if TYPE_CHECKING:
    from jinja2 import Environment


_CARD_OF_PAGE = re.compile(rb'<meta name="card" content="sha256-([0-9a-f]{64})">')
_HEAD = 4096  # bytes of a page, in which its digest stands


def write_card(card: Card, folder: str | Path, *, digests: Mapping[str, str] | None = None) -> Path:
    """Write `card.json` and `card.html` into `folder`, each atomically; returns the path of the page.

    Args:
        card: what to write.
        folder: of the run.
        digests: SHA-256 of every other file of the run by name, which the card names as its own. The page names the
            card in turn, so that none of the files can be replaced by that of another run.
    """
    folder = Path(folder)
    text = json_text(card_table(card) | ({} if digests is None else {"digests": dict(digests)}))
    html = page(card) if digests is None else page(card, digest=hashlib.sha256(text.encode()).hexdigest())
    write_text(folder / "card.json", text)
    write_text(folder / "card.html", html)
    return folder / "card.html"


def page(card: Card, *, digest: str = "") -> str:
    """The card as HTML: every string escaped, no script, nothing loaded from anywhere.

    Args:
        card: what to show.
        digest: SHA-256 of its `card.json`, which the page names.
    """
    return environment().get_template("card.html.j2").render(_context(card) | {"digest": digest})


def card_of_page(path: str | Path) -> str:
    """The SHA-256 of the `card.json` that the page in the file `path` names; empty where it names none, or is none."""
    path = Path(path)
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        found = _CARD_OF_PAGE.search(file.read(_HEAD))
    return found[1].decode() if found else ""


def environment() -> Environment:
    """The packaged templates, with autoescape and the filters that round to the safe side."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("tacit.reports", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "upward": words.upward,
        "downward": words.downward,
        "nearest": words.nearest,
        "percent": words.percent,
        "measured": words.measured,
        "duration": words.duration,
        "setting": words.setting,
    }
    return made


def _context(card: Card) -> dict[str, Any]:
    sentence, detail = words.headline(card.account.results, card.ledger.unit)
    results = words.by_trust(card.account.results)
    standing = results[0].tradeoff.standing if results else None
    telling = [result for result in results if words.says_something(result)]
    drawn = [result for result in results if result is results[0] or result.advantage < words.TRIVIAL_ADVANTAGE]
    return {
        "card": card,
        "sentence": sentence,
        "detail": detail,
        "checked": words.checked(card.account.checked and card.account.checked.row()),
        "number": words.headline_number(card.account.results),
        "guaranteed": words.guarantee(results),
        "found": words.strongest(card.audits),
        "known": words.known_by_kind(card.ledger.facts, len(card.ledger.assumptions)),
        "reserve": words.reserve(card.leaks),
        "standing": standing,
        "rests_on": words.rests_on(card.ledger),
        "facts": words.fact_rows(card.ledger.facts),
        "best": results[0] if standing is Standing.PROVEN else None,
        "scope": words.scope(card.ledger.scope),
        "neighbours": words.NEIGHBOURS[card.ledger.relation].format(unit=card.ledger.unit),
        "informative": [_guarantee(result, best=result is results[0]) for result in telling],
        "others": [_guarantee(result) for result in results if result not in telling],
        "audits": [_audit(card, audit) for audit in card.audits],
        "together": words.together([audit.confidence for audit in card.audits]),
        "meaning": words.MEANING,
        "against": words.told_against(card.metrics, card.measure),
        "measure": words.MEASURES[card.measure],
        "not_a_bound": words.NOT_A_BOUND,
        "legend": _legend(drawn, card.audits),
        "figures": _figures(drawn, card),
        "said_of_figures": said_of_figures([result.tradeoff for result in drawn], card.audits),
        "shares": words.SHARES,
        "calibration": drawable(card.calibration),
        "left_out": [result.tradeoff.source for result in results if result not in drawn],
    }


def said_of_figures(tradeoffs: Sequence[TradeOff], audits: Sequence[AuditResult]) -> str:
    """What the pictures show, read off the curves that are drawn: the caption claims nothing that they contradict."""
    from tacit.reports.plots import enters

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


def _guarantee(result: Result, *, best: bool = False) -> dict[str, Any]:
    standing = result.tradeoff.standing
    return {
        "best": best,
        "accountant": result.tradeoff.source,
        "standing": standing,
        "epsilon": words.leakage(result.epsilon, standing),
        "epsilon_lower": words.downward(result.epsilon_lower),
        "delta": f"{result.delta:g}",
        "mu": words.leakage(result.mu, standing),
        "advantage": words.leakage(result.advantage, standing),
    }


def _audit(card: Card, audit: AuditResult) -> dict[str, Any]:
    false_claims = refuted(card, audit)
    standings = {result.tradeoff.source: result.tradeoff.standing for result in card.account.results}
    return {
        "result": audit,
        "refuted": [f"{name} ({standings[name].value})" for name in false_claims],
        "breaks_proof": any(standings[name] is Standing.PROVEN for name in false_claims),
    }


def _legend(drawn: Sequence[Result], audits: Sequence[AuditResult]) -> list[tuple[str, str, str]]:
    """(standing, dash pattern, label) of each kind of line in the picture."""
    from tacit.reports.plots import DASHES

    names: dict[Standing, list[str]] = {}
    for result in drawn:
        names.setdefault(result.tradeoff.standing, []).append(result.tradeoff.source)
    for audit in audits:
        names.setdefault(Standing.MEASURED, []).append(audit.attack)
    return [
        (standing.value, " ".join(map(str, DASHES[standing])), ", ".join(dict.fromkeys(names[standing])))
        for standing in Standing
        if standing in names
    ]


def _figures(drawn: Sequence[Result], card: Card) -> dict[str, Any]:
    from markupsafe import Markup

    from tacit.reports.plots import calibration_svg, detections_svg, errors_svg, training_svg

    shares = drawable(card.calibration)
    tradeoffs = [result.tradeoff for result in drawn]
    curve = card.training_curve
    return {
        "errors": Markup(errors_svg(tradeoffs, card.audits)),
        "detections": Markup(detections_svg(tradeoffs, card.audits)),
        "calibration": Markup(calibration_svg(shares)) if shares else None,
        "training": Markup(training_svg(curve, measure=card.measure)) if any(curve.values()) else None,
    }
