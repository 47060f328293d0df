"""The card as Markdown, made from `card.json`, and the form that a `card.json` must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit import check
from tacit.relation import unit_in_words
from tacit.reports import words
from tacit.standing import Standing
from tacit.statement.schema import faults, schema_of
from tacit.statement.subject import filed

_STANDINGS = [*(standing.value for standing in Standing), "stated", "consistent"]
_UNKNOWN = "not stated on the card"
_NUMBERS = ("epsilon", "epsilon_lower", "delta", "mu", "advantage")
_KINDS = {"enforced": "verified", "checked": "verified"} | {
    name: name for name in ("declared", "assumed", "stated", "consistent")
}

Table = Mapping[str, Any]
"""The content of a `card.json`."""


def card_markdown(table: Table, *, reserve: str = "") -> str:
    """The card as Markdown: headline, four facts, then every table; characters that Markdown reads are escaped."""
    check_card(table)
    lines = [f"# {_escaped(table['model'])} on {_escaped(table['dataset'])}", "", _escaped(table["method"]), ""]
    lines += [f"{heading}: {_escaped(told)}  " for heading, told in filed(table.get("about", {}))]
    lines += ["", f"**{_escaped(_parameters(table))}**", "", *([_escaped(reserve), ""] if reserve else [])]
    for heading, rows in _sections(table):
        lines += [f"## {heading}", ""]
        if rows:
            lines += [_row(rows[0]), _row(["---"] * len(rows[0])), *(_row(cells) for cells in rows[1:]), ""]
        else:
            lines += ["None.", ""]
    return "\n".join(lines)


def _sections(table: Table) -> list[tuple[str, list[list[str]]]]:
    """(heading, rows with the heads first) of the card; no rows where it has none."""
    guarantees = sorted(table["guarantees"], key=lambda row: (_STANDINGS.index(row["standing"]), _size(row["epsilon"])))
    found = [[row["accountant"], row["standing"], *(_bound(row, name) for name in _NUMBERS)] for row in guarantees]
    audits = [
        [row["attack"], _number(row["confidence"]), _number(row["advantage"]), _number(row["epsilon_lower"])]
        for row in table["audits"]
    ]
    facts = [[_KINDS[row["how"]], row["id"], row.get("says", "")] for row in table.get("facts", ())]
    facts.sort(key=lambda row: list(dict.fromkeys(_KINDS.values())).index(row[0]))
    ran = [[str(row.get("type")), _setting(row), str(row.get("steps", 1))] for row in table["mechanisms"]]
    said = [[sentence] for sentence in (*table["assumptions"], *table["leaks"])]
    metrics = table["metrics"]
    facts_of_card = [
        ["guarantee", _parameters(table)],
        *([["checked", words.checked(table["checked"])]] if table.get("checked") else []),
        ["scope", _scope(table)],
        [
            "protected",
            f"{_protected(table)}, {words.NEIGHBOURS[_relation(table)].format(unit=table['unit'])}",
        ],
        [
            table["measure"],
            f"{_number(metrics.get('test'))}; without privacy {_number(metrics.get('nonprivate_test'))}",
        ],
        ["attacks found", "; ".join(f"{row[0]}: ε ≥ {row[3]}" for row in audits) or "no attack was run"],
    ]
    unsafe = [[str(switch)] for switch in table["unsafe"]]
    received = bool(guarantees) and guarantees[0]["standing"] not in list(Standing)
    lower, bound = ("lower ε", []) if received else ("proven lower ε", [[words.NOT_A_BOUND]])
    return [
        *([("Unsafe switches", [["switch"], *unsafe])] if unsafe else []),
        ("Four facts", [["fact", "value"], *facts_of_card]),
        (
            "Facts" if received else "Verified, declared, assumed",
            [["kind", "fact", "how it is known"], *facts] if facts else [],
        ),
        (
            "Guarantees by accountant",
            [["accountant", "standing", "ε", lower, "δ", "μ", "advantage"], *found],
        ),
        ("Attacks", [["attack", "confidence", "advantage", "ε at least"], *audits] if audits else []),
        ("What ran", [["mechanism", "settings", "times"], *ran] if ran else []),
        ("Assumptions, and statistics read without a privacy cost", [["sentence"], *said] if said else []),
        ("Not covered", [["sentence"], [words.OUTSIDE], *bound]),
    ]


def check_card(table: Table) -> None:
    """Raise `InvalidInput` unless `table` has the form of a card.json: a received file may hold anything."""
    for place in faults(dict(table), schema_of("tacit.reports", "card.schema.json"), "card"):
        raise check.fail(f"{place[:80]} of card.json", "as card.schema.json says", check.Told("another value"))


def _best(table: Table) -> Table | None:
    rows = table["guarantees"]
    return min(rows, key=lambda row: (_STANDINGS.index(row["standing"]), _size(row["epsilon"])), default=None)


def _scope(table: Table) -> str:
    return words.scope(str(table["scope"])) if "scope" in table else _UNKNOWN  # Absent before scopes.


def _protected(table: Table) -> str:
    return unit_in_words(table["unit"], str(table.get("about", {}).get("unit") or ""))


def _relation(table: Table) -> Any:
    from tacit.relation import Relation

    return Relation.parse(table["relation"])


def _parameters(table: Table) -> str:
    best = _best(table)
    if best is None:
        return "No guarantee: no accountant applies to what ran."
    sign = "≤" if best["standing"] in ("proven", "conditional") else "≈"
    return f"ε {sign} {_bound(best, 'epsilon')} at δ = {best['delta']:g}, {best['standing']}, by {best['accountant']}"


def _bound(row: Table, name: str) -> str:
    value = _value(row.get(name))
    if value is None:
        return "–"
    if name == "epsilon_lower":
        return words.downward(value)
    return f"{value:g}" if name == "delta" else words.leakage(value, row["standing"])


def _number(value: object) -> str:
    return words.nearest(_value(value))


def _value(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | str) else None


def _size(value: object) -> float:
    found = _value(value)
    return float("inf") if found is None else found


def _setting(row: Table) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("type", "steps", "hash", "note"))


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(_escaped(cell) if cell != "---" else "---" for cell in cells) + " |"


def _escaped(text: object) -> str:
    """`text` on one line, with the characters that Markdown or HTML in it would act on made plain."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]|#!" else letter for letter in plain)
