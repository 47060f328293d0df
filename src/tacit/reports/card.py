"""The privacy card: everything a run promises and everything that was found against it, on one page.

`write_card`: the card as JSON and as one self-contained page, from the packaged template.

The end of a run in at most six lines: what is guaranteed, what was found, and what was taken as public.

The card as Markdown, made from `card.json`, and the form that a `card.json` must have.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.accounting import Account, Ledger, Result
from tacit.accounting.facts import PUBLIC
from tacit.audit import AuditResult
from tacit.audit.evidence import CanaryEvidence
from tacit.relation import Relation, unit_in_words
from tacit.reports import words
from tacit.serialization import json_text, plain_values, write_text
from tacit.standing import Standing
from tacit.statement.schema import faults, schema_of
from tacit.statement.subject import filed

if TYPE_CHECKING:
    from jinja2 import Environment


Scalar = str | int | float | bool | None
_AS_THEY_ARE = (
    *("title", "about", "dataset", "records", "model", "method", "measure", "held_out", "calibration", "power"),
    *("leaks", "training_curve", "settings", "versions", "wall_seconds", "training_seconds"),
)


@dataclass(frozen=True)
class Card:
    """What a card shows; `tacit.reports.write_card` formats it and computes nothing about privacy.

    A card is read by people who must not see the training data: it holds no record, no per-record loss or score, and
    no seed. Its audits and accuracies are statistics of private data that the guarantee does not cover; the page
    says so.

    Attributes:
        dataset: what it was trained on, in a few words.
        model: what was trained, in a few words.
        method: how it was trained, in a few words.
        records: how many units (ledger.unit) the training data holds.
        metrics: `test` and `nonprivate_test` by `measure` (None when not measured), and any others.
        account: every accountant's answer at one delta, and the refusals.
        ledger: what ran.
        leaks: what was read from the data without a privacy cost, named beside every guarantee.
        audits: what attacks found.
        measure: "accuracy", in [0, 1], or "rmse", in the units of the answers.
        calibration: of two classes: a row for each bin of the second one's predicted chance: `start` and `end` of the
            bin, mean chance `predicted`, `share` of the class with the band `low` to `high`, and `rows`.
        training_curve: `measure` after each epoch under `private` and `nonprivate`.
        held_out: how the test records were measured: `records` "public" or "private", `test` "exact", "noisy" or "not
            measured", what they paid, and one sentence that `says` so.
        settings: what the run was configured with, single values only.
        versions: of the programs that ran.
        wall_seconds: from start to card, by `coarse_seconds`.
        evidence: what canaries in the first steps found; a sentence why there are none, "" where none were asked for.
        training_seconds: of the private training, by `coarse_seconds`; 0 where it is not told.
        power: attack on records -> broken copy of the training in words -> the epsilon that it finds there.
        about: data, owner, contact, purpose, date and more, by the names of `tacit.statement.Subject`.

    Raises:
        InvalidInput: no `test` metric, unknown training curves, a setting that is not a single value or is a seed.
    """

    dataset: str
    model: str
    method: str
    records: int
    metrics: Mapping[str, float | None]
    account: Account
    ledger: Ledger
    wall_seconds: float
    leaks: Sequence[str] = ()
    audits: Sequence[AuditResult] = ()
    calibration: Sequence[Mapping[str, float]] = ()
    training_curve: Mapping[str, Sequence[float]] = field(default_factory=dict)
    held_out: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    title: str = "Privacy card"
    measure: str = "accuracy"
    about: Mapping[str, Any] = field(default_factory=dict)
    evidence: CanaryEvidence | str = ""
    training_seconds: float = 0.0
    power: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.choice("measure", self.measure, words.MEASURES)
        check.count("records", self.records)
        check.real("wall_seconds", self.wall_seconds, low=0.0)
        check.that("test" in self.metrics, "metrics", "a table with the key test", sorted(self.metrics))
        check.keys("training_curve", self.training_curve, ("private", "nonprivate"))
        for name, value in self.settings.items():
            if "seed" in name.lower():
                raise check.fail("settings", "free of seeds", name, "A seed would let a reader redraw the noise.")
            check.that(isinstance(value, Scalar), f"settings.{name}", "a single value", type(value).__name__)


def card_table(card: Card) -> dict[str, Any]:
    """The content of `card.json`: plain values, infinity spelled "inf"."""
    found = {
        "metrics": {"nonprivate_test": None} | dict(card.metrics),
        "guarantees": [result.row() for result in card.account.results],
        "refused": [{"accountant": name, "why": why} for name, why in card.account.refused],
        "checked": None if card.account.checked is None else card.account.checked.row(),
        "audits": [_audit_row(card, audit) for audit in _every(card)],
        "evidence": card.evidence if isinstance(card.evidence, str) else card.evidence.row(),
    }
    return plain_values({name: getattr(card, name) for name in _AS_THEY_ARE} | found | ledger_table(card.ledger))


def ledger_table(ledger: Ledger) -> dict[str, Any]:
    """What a card repeats of its ledger, by which one that belongs to another ledger is known."""
    return {
        "unit": ledger.unit,
        "relation": ledger.relation.value,
        "scope": ledger.scope,
        "mechanisms": ledger.spec()["mechanisms"],
        "ledger_hash": ledger.hash,
        "facts": ledger.facts.spec(),
        "assumptions": list(ledger.assumptions),
        "unsafe": list(ledger.unsafe),
    }


def refuted(card: Card, audit: AuditResult) -> list[str]:
    """The accountants whose curve `audit` is incompatible with."""
    return [result.tradeoff.source for result in card.account.results if audit.refutes(result.tradeoff)]


def _audit_row(card: Card, audit: AuditResult) -> dict[str, Any]:
    names = ("estimator", "statement", "advantage_interval", "delta", "members", "non_members", "detectable_epsilon")
    told = {name: getattr(audit, name) for name in names}
    return audit.row() | told | {"trials": audit.trials.value, "refutes": refuted(card, audit)}


def _every(card: Card) -> tuple[AuditResult, ...]:
    """The audits of a card, that of its canaries first."""
    return (*(() if isinstance(card.evidence, str) else (card.evidence.result,)), *card.audits)


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


def environment(**changed: Any) -> Environment:
    """The packaged templates, with autoescape and the filters that round to the safe side; `changed` replaces options.

    Args:
        **changed: of `jinja2.Environment`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("tacit.reports", "templates")
    usual: Any = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    made = Environment(loader=loader, **usual | changed)
    names = ("upward", "downward", "leakage", "nearest", "percent", "measured", "duration", "setting")
    made.filters |= {name: getattr(words, name) for name in names}
    return made


def _context(card: Card) -> dict[str, Any]:
    from tacit.reports.plots import said_of_figures

    protected = unit_in_words(card.ledger.unit, str(card.about.get("unit", "")))
    sentence, detail = words.headline(card.account.results, card.ledger.unit)
    results, audits = words.by_trust(card.account.results), _every(card)
    standing = results[0].tradeoff.standing if results else None
    telling = [result for result in results if words.says_something(result)]
    drawn = [result for result in results if result is results[0] or result.advantage < words.TRIVIAL_ADVANTAGE]
    return {
        "card": card,
        "words": words,
        "results": results,
        "sentence": sentence,
        "detail": detail,
        "checked": words.checked(card.account.checked and card.account.checked.row()),
        "number": words.headline_number(card.account.results),
        "guaranteed": words.guarantee(results),
        "found": words.strongest(audits),
        "filed": filed(card.about),
        "terms": words.terms(card.account.results, protected),
        "protected": protected,
        "standing": standing,
        "best": results[0] if standing is Standing.PROVEN else None,
        "neighbours": words.NEIGHBOURS[card.ledger.relation].format(unit=card.ledger.unit),
        "informative": telling,
        "others": [result for result in results if result not in telling],
        "audits": [_audit(card, audit) for audit in audits],
        "together": words.together([audit.confidence for audit in audits]),
        "canaries": None if isinstance(card.evidence, str) else card.evidence,
        "powers": _powers(card),
        "legend": _legend(drawn, audits),
        "figures": _figures(drawn, card),
        "said_of_figures": said_of_figures([result.tradeoff for result in drawn], audits),
        "left_out": [result.tradeoff.source for result in results if result not in drawn],
    }


def _powers(card: Card) -> list[tuple[str, bool]]:
    """(sentence, whether it is red): whether each attack could have refuted the claim."""
    rows = words.powers(card.audits, card.power, card.account.results, card.training_seconds)
    if isinstance(card.evidence, str):
        return [*([(card.evidence, False)] if card.evidence else []), *rows]
    bad = card.evidence.refuted or not card.evidence.could_refute
    return [(words.canary_sentence(card.evidence), bad), *rows]


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
    shown = [(standing, dict.fromkeys(names[standing])) for standing in Standing if standing in names]
    return [(each.value, " ".join(map(str, DASHES[each])), ", ".join(found)) for each, found in shown]


def _figures(drawn: Sequence[Result], card: Card) -> dict[str, Any]:
    from markupsafe import Markup

    from tacit.reports.plots import calibration_svg, detections_svg, errors_svg, training_svg

    tradeoffs, audits, curve = [result.tradeoff for result in drawn], _every(card), card.training_curve
    return {
        "errors": Markup(errors_svg(tradeoffs, audits)),
        "detections": Markup(detections_svg(tradeoffs, audits)),
        "calibration": Markup(calibration_svg(card.calibration)) if card.calibration else None,
        "training": Markup(training_svg(curve, measure=card.measure)) if any(curve.values()) else None,
    }


def summary(card: Card) -> Iterator[str]:
    """Epsilon with standing and delta, the test result against the constant answer, the strongest attack, and the rest.

    Args:
        card: of a finished run.
    """
    results = card.account.results
    if results:
        best = words.by_trust(results)[0]
        told = f"{words.guarantee(results)} at δ = {best.delta:g}, {best.tradeoff.standing.value}"
        neighbours = words.NEIGHBOURS[best.tradeoff.relation].format(unit=card.ledger.unit)
        yield f"{told}, for {neighbours} (accountant {best.tradeoff.source})."
    else:
        yield words.headline(results, card.ledger.unit)[0]
    found, nonprivate = (words.measured(card.metrics.get(each), card.measure) for each in ("test", "nonprivate_test"))
    against = words.told_against(card.metrics, card.measure)
    beside = f" ({against})" if against else ""
    if chosen := card.settings.get("chosen"):
        yield str(chosen)
    yield f"{words.MEASURES[card.measure]} {found}{beside}, without privacy {nonprivate}: {card.dataset}, {card.model}."
    if said := card.held_out.get("says"):
        yield f"{said} The guarantee covers neither test results nor attacks."
    for sentence in card.ledger.assumptions:
        if sentence.startswith(PUBLIC):
            yield sentence
    if card.leaks:
        yield words.reserve(card.leaks)
    bound, detail = words.strongest(_every(card))
    yield f"Strongest attack: {bound} {detail}."


_STANDINGS = [*(standing.value for standing in Standing), "stated", "consistent"]
_BOUNDS = ("epsilon", "epsilon_lower", "delta", "mu", "advantage")
_KINDS = dict.fromkeys(("enforced", "checked"), "verified")
_KINDS |= {name: name for name in ("declared", "assumed", "stated", "consistent")}

Table = Mapping[str, Any]
"""The content of a `card.json`."""


def card_markdown(table: Table, *, reserve: str = "") -> str:
    """The card as Markdown: headline, four facts, then every table; characters that Markdown reads are escaped."""
    check_card(table)

    def trust(row: Table) -> tuple[int, float]:
        return _STANDINGS.index(row["standing"]), math.inf if row["epsilon"] is None else float(row["epsilon"])

    rows = sorted(table["guarantees"], key=trust)
    guarantee = "No guarantee: no accountant applies to what ran."
    if rows:
        best, sign = rows[0], "≤" if rows[0]["standing"] in ("proven", "conditional") else "≈"
        at = f"δ = {best['delta']:g}, {best['standing']}, by {best['accountant']}"
        guarantee = f"ε {sign} {_bound(best, 'epsilon')} at {at}"
    kinds = list(dict.fromkeys(_KINDS.values()))
    facts = [[_KINDS[row["how"]], row["id"], row.get("says", "")] for row in table.get("facts", ())]
    numbers = ("confidence", "advantage", "epsilon_lower")
    audits = [[row["attack"], *(_number(row[name]) for name in numbers)] for row in table["audits"]]
    ran = []
    for row in table["mechanisms"]:
        own = [f"{name} {value}" for name, value in row.items() if name not in ("type", "steps", "hash", "note")]
        ran.append([row.get("type"), ", ".join(own), row.get("steps", 1)])
    received = bool(rows) and rows[0]["standing"] not in list(Standing)
    told = {
        "card": table,
        "filed": filed(table.get("about", {})),
        "guarantee": guarantee,
        "reserve": reserve,
        "received": received,
        "four": _four_facts(table, guarantee, audits),
        "facts": sorted(facts, key=lambda row: kinds.index(row[0])),
        "guarantees": [[row["accountant"], row["standing"], *(_bound(row, name) for name in _BOUNDS)] for row in rows],
        "audits": audits,
        "ran": ran,
        "not_covered": [words.OUTSIDE, *(() if received else (words.NOT_A_BOUND,))],
    }
    text = environment(autoescape=False, finalize=_escaped).get_template("card.md.j2").render(told)
    return text.rstrip("\n") + "\n"


def _four_facts(table: Table, guarantee: str, audits: Sequence[Sequence[str]]) -> list[list[str]]:
    unit = unit_in_words(table["unit"], str(table.get("about", {}).get("unit") or ""))
    neighbours = words.NEIGHBOURS[Relation.parse(table["relation"])].format(unit=table["unit"])
    test, nonprivate = (_number(table["metrics"].get(name)) for name in ("test", "nonprivate_test"))
    checked = [["checked", words.checked(table["checked"])]] if table.get("checked") else []
    return [
        ["guarantee", guarantee],
        *checked,
        ["scope", words.scope(str(table["scope"])) if "scope" in table else "not stated on the card"],
        ["protected", f"{unit}, {neighbours}"],
        [table["measure"], f"{test}; without privacy {nonprivate}"],
        ["attacks found", "; ".join(f"{row[0]}: ε ≥ {row[3]}" for row in audits) or "no attack was run"],
    ]


def check_card(table: Table) -> None:
    """Raise `InvalidInput` unless `table` has the form of a card.json: a received file may hold anything."""
    for place in faults(dict(table), schema_of("tacit.reports", "card.schema.json"), "card"):
        raise check.fail(f"{place[:80]} of card.json", "as card.schema.json says", check.Told("another value"))


def _bound(row: Table, name: str) -> str:
    if row.get(name) is None:
        return "–"
    value = float(row[name])
    if name == "epsilon_lower":
        return words.downward(value)
    return f"{value:g}" if name == "delta" else words.leakage(value, row["standing"])


def _number(value: Any) -> str:
    return words.nearest(None if value is None else float(value))


def _escaped(text: object) -> str:
    """`text` on one line, with the characters that Markdown or HTML in it would act on made plain."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]|#!" else letter for letter in plain)
