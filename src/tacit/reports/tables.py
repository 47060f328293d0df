"""Terminal tables of results (rich), with the standing beside every number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tacit import check
from tacit.accounting import Account, Ledger
from tacit.reports import words
from tacit.standing import Standing

if TYPE_CHECKING:
    from tacit.audit import AuditResult

STYLES: dict[str, str] = {
    Standing.PROVEN: "bold green",
    Standing.CONDITIONAL: "green",
    Standing.ASYMPTOTIC: "yellow",
    Standing.BAYESIAN: "magenta",
    Standing.CLAIMED: "dim",
    Standing.MEASURED: "cyan",
}


def account_table(account: Account, ledger: Ledger | None = None, *, group: int = 1, word: str = "") -> Table:
    """Every accountant's answer, bounds rounded to the safe side; the caption says why others do not apply.

    Args:
        account: the answers.
        ledger: that they are about: the title then says whether it is a run, which data sets are neighbours and how
            batches were drawn, and the caption what it rests on.
        group: how many of its units neighbours are apart.
        word: of a received run, what stands where the standing of a bound would.
    """
    of_delta = any(result.delta_lower is not None for result in account.results)
    lower = f"{'' if word else 'proven '}lower {'delta' if of_delta else 'epsilon'}"
    rows = []
    for result in account.results:
        standing = result.tradeoff.standing
        known = result.epsilon_lower if result.epsilon_lower is not None else result.delta_lower
        told = word if word and result.is_bound else _label(standing)
        row = {"accountant": result.tradeoff.source, "standing": told, lower: words.downward(known)}
        bounds = ("epsilon", "delta", "mu", "advantage")
        rows.append(row | {name: words.leakage(getattr(result, name), standing) for name in bounds})
    said = [words.checked(account.checked.row())] if account.checked else []
    said += [] if ledger is None else filter(None, (words.rests_on(ledger, word), words.rounding_of(ledger)))
    said += [] if word else [words.NOT_A_BOUND]
    said += [f"{name} does not apply: {why}" for name, why in account.refused]
    title = "" if ledger is None else f"{words.of_what(ledger)}\n{words.neighbourhood(ledger, group)}"
    numbers = ("epsilon", lower, "delta", "mu", "advantage")
    headings = ("accountant", "standing", *numbers)
    return plain_table(rows, headings=headings, numbers=numbers, title=title, caption="\n".join(said))


def _label(standing: str) -> Text:
    return Text(str(standing), style=STYLES.get(standing, ""))


def facts_table(ledger: Ledger, word: str = "") -> Table:
    """What the guarantee of a run rests on: verified facts, then declared, then assumed; a received run has `word`."""
    headings = ("kind", "what must hold", "how it is known")
    rows = [dict(zip(headings, row, strict=True)) for row in words.fact_rows(ledger.facts)]
    return plain_table([row | {"kind": word or row["kind"]} for row in rows], headings=headings)


def audit_table(audits: Sequence[AuditResult]) -> Table:
    """Each attack's result, its lower bounds, and the least epsilon that it could detect."""
    named = ("attack", "bounds by", "confidence")
    rows = [
        {
            "attack": audit.attack,
            "bounds by": audit.estimator,
            "confidence": f"{audit.confidence:g}",
            "advantage": words.nearest(audit.advantage, 3),
            "ppv": words.nearest(audit.ppv, 3),
            "epsilon at least": words.downward(audit.epsilon_lower, 3),
            "mu at least": words.downward(audit.mu_lower, 3),
            "detects epsilon (Gaussian DP)": words.upward(audit.detectable_epsilon, 3),
        }
        for audit in audits
    ]
    return plain_table(rows, headings=named, numbers=[name for row in rows for name in row if name not in named])


def plain_table(
    rows: Sequence[Mapping[str, object]],
    *,
    headings: Sequence[str] = (),
    numbers: Sequence[str] = (),
    title: str = "",
    caption: str = "",
) -> Table:
    """One column for every key that a row has; cells fold where the terminal is narrow, and nothing in them is cut.

    Args:
        rows: plain values or `rich.text.Text` by heading.
        headings: columns that come first, also where no row has them.
        numbers: headings of columns that end at the right.
        title: above the table.
        caption: below it.
    """
    names = list(dict.fromkeys([*headings, *(name for row in rows for name in row)]))
    table = Table(box=None, title=Text(title) if title else None, title_justify="left", caption_justify="left")
    table.caption = Text(caption, style="dim") if caption else None
    for name in names:
        table.add_column(Text(name), overflow="fold", justify="right" if name in numbers else "left")
    for row in rows:
        cells = (row.get(name) for name in names)
        table.add_row(*(cell if isinstance(cell, Text) else Text(words.setting(cell)) for cell in cells))
    return table


def pairs_table(values: Mapping[str, object]) -> Table:
    """Names and values, one line each; values that are not there are left out."""
    table = plain_table([{"name": name, "value": value} for name, value in values.items() if value is not None])
    table.show_header = False
    for column in table.columns[:1]:
        column.style = "bold"
    return table


def rows_table(
    rows: Sequence[Mapping[str, object]], *, width: int, title: str = "", caption: str = ""
) -> Table | Group:
    """A column for each name or, where `width` characters are too few for all headings, a line for each value.

    Args:
        rows: as `plain_table` takes them; values that are not there are left out.
        width: of the screen, in characters.
        title: above them.
        caption: below them.
    """
    kept = [{name: value for name, value in row.items() if value is not None} for row in rows]
    table = plain_table(kept, title=title, caption=caption)
    if sum(2 + max(len(str(column.header)), _LEAST) for column in table.columns) <= width:
        return table
    parts = [part for row in kept for part in (pairs_table(row), "")]
    return Group(*([Text(title)] if title else []), *parts, *([Text(caption, style="dim")] if caption else []))


_LEAST = 8  # characters of a column
_GUARANTEE = ("epsilon", "accountant", "standing", "delta", "relation", "unit", "unsafe")
_OF_A_RUN = {"measure", *(f"guarantee.{name}" for name in _GUARANTEE)}
_ONE_OF_MANY = "epsilon: the smallest of the best standing. --json has every accountant's, each with its standing."
_UNKNOWN = "Values as their function gave them, without standing; `tacit reproduce` prints the papers' with theirs."


def sweep_table(
    title: str, settings: Sequence[Mapping[str, object]], values: Sequence[Mapping[str, object]], *, width: int
) -> Table | Group:
    """One row a run: `settings` and, of a training run, its test result and best guarantee; else all of `values`.

    Args:
        title: of the table.
        settings: of each run, by name.
        values: results of each run, by name; as many as `settings`.
        width: of the screen, in characters.
    """
    trained = all(row.keys() >= _OF_A_RUN for row in values)
    rows = [{**one, **(_trained(other) if trained else other)} for one, other in zip(settings, values, strict=True)]
    caption = "\n".join(_notes(values)) if trained else _UNKNOWN
    return rows_table(rows, width=width, title=title, caption=caption)


def _trained(row: Mapping[str, object]) -> dict[str, object]:
    """The cells of a training run; its bound is rounded to the safe side."""
    given = {name.removeprefix("guarantee."): value for name, value in row.items() if name.startswith("guarantee.")}
    test, epsilon, measure = row.get("metrics.test"), given["epsilon"], str(row["measure"])
    named = given["standing"]
    standing = "" if named is None else check.choice("standing", named, [*Standing, "stated"])
    label = _label(standing or "none")
    return {
        "test": words.measured(test, measure) if isinstance(test, int | float) else "–",
        "epsilon": words.leakage(epsilon, standing) if isinstance(epsilon, int | float) and standing else "–",
        "standing": label + Text("\nunsafe", style="bold red") if _switches(row) else label,
        "accountant": words.setting(given["accountant"]),
        "relation": f"{given['relation']}" + ("" if given["unit"] == "record" else f"\nof one {given['unit']}"),
        "delta": words.setting(given["delta"]),
    }


def _switches(row: Mapping[str, object]) -> list[str]:
    return json.loads(str(row["guarantee.unsafe"]))


def _notes(values: Sequence[Mapping[str, object]]) -> list[str]:
    notes = [words.OUTSIDE, _ONE_OF_MANY]
    if any(row["guarantee.standing"] != Standing.PROVEN for row in values):
        notes.append(words.NOT_A_BOUND)
    switches = ", ".join(sorted({switch for row in values for switch in _switches(row)}))
    return [*notes, f"unsafe: {switches}"] if switches else notes
