"""Terminal tables of results (rich), with the standing beside every number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.accounting import Account, Ledger
from tacit.audit import AuditResult
from tacit.reports import words
from tacit.standing import Standing

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

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
    from rich.text import Text

    refusals = [f"{name} does not apply: {why}" for name, why in account.refused]
    told = ("",) if ledger is None else (words.rests_on(ledger, word), words.rounding_of(ledger))
    ground = [line for line in told if line]
    judged = [words.checked(account.checked.row())] if account.checked else []
    said = [] if word else [words.NOT_A_BOUND]
    caption = Text("\n".join([*judged, *ground, *said, *refusals]), style="dim")
    table = _folding("accountant", caption=caption, caption_justify="left")
    table.add_column("standing", overflow="fold", min_width=8)
    if ledger is not None:
        table.title, table.title_justify = (
            Text(f"{words.of_what(ledger)}\n{words.neighbourhood(ledger, group)}"),
            "left",
        )
    of_delta = any(result.delta_lower is not None for result in account.results)
    lower_heading = f"{'' if word else 'proven '}lower {'delta' if of_delta else 'epsilon'}"
    for heading in ("epsilon", lower_heading, "delta", "mu", "advantage"):
        table.add_column(heading, justify="right", overflow="fold")
    for result in account.results:
        standing = result.tradeoff.standing
        numbers = [words.leakage(value, standing) for value in (result.epsilon, result.mu, result.advantage)]
        known = result.epsilon_lower if result.epsilon_lower is not None else result.delta_lower
        lower, delta = words.downward(known), words.leakage(result.delta, standing)
        label = Text(word) if word and result.is_bound else Text(standing.value, style=STYLES[standing])
        table.add_row(Text(result.tradeoff.source), label, numbers[0], lower, delta, *numbers[1:])
    return table


def _folding(*headings: str, **options: Any) -> Table:
    """A table whose cells fold where the terminal is narrow: nothing in them is cut."""
    from rich.table import Table

    table = Table(box=None, **options)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def facts_table(ledger: Ledger, word: str = "") -> Table:
    """What the guarantee of a run rests on: verified facts, then declared, then assumed; a received run has `word`."""
    from rich.text import Text

    table = _folding("kind", "what must hold", "how it is known")
    for kind, what, known in words.fact_rows(ledger.facts):
        table.add_row(word or kind, Text(what), Text(known))
    return table


def audit_table(audits: Sequence[AuditResult]) -> Table:
    """Each attack's result, its lower bounds, and the least epsilon that it could detect."""
    from rich.text import Text

    table = _folding("attack", "bounds by", "confidence")
    for heading in ("advantage", "ppv", "epsilon at least", "mu at least", "detects epsilon (Gaussian DP)"):
        table.add_column(heading, justify="right", overflow="fold")
    for audit in audits:
        table.add_row(
            Text(audit.attack),
            audit.estimator,
            f"{audit.confidence:g}",
            words.nearest(audit.advantage, 3),
            words.nearest(audit.ppv, 3),
            words.downward(audit.epsilon_lower, 3),
            words.downward(audit.mu_lower, 3),
            words.upward(audit.detectable_epsilon, 3),
        )
    return table


def plain_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Rows of plain values, one column for every key that any of them has."""
    from rich.table import Table
    from rich.text import Text

    headings = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(box=None)
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    for row in rows:
        table.add_row(*(Text(words.setting(row[key]) if row.get(key) is not None else "–") for key in headings))
    return table


def pairs_table(values: Mapping[str, object]) -> Table:
    """Names and values, one line each; values that are not there are left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False)
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        if value is not None:
            table.add_row(Text(name), Text(words.setting(value)))
    return table


Row = Mapping[str, object]
Cells = Mapping[str, "Text"]
_GAP, _LONGEST = 2, 40
_OF_A_RUN = {"measure"} | {
    f"guarantee.{name}" for name in ("epsilon", "accountant", "standing", "delta", "relation", "unit", "unsafe")
}
_ONE_OF_MANY = "epsilon: the smallest of the best standing. --json has every accountant's, each with its standing."
_UNKNOWN = "Values as their function gave them, without standing; `tacit reproduce` prints the papers' with theirs."


def sweep_table(title: str, settings: Sequence[Row], values: Sequence[Row], *, width: int) -> Table:
    """One row a run: `settings` and, of a training run, its test result and best guarantee; else all of `values`.

    Where the columns are wider than `width`, the settings share one, then the values too; no heading is cut.

    Args:
        title: of the table.
        settings: of each run, by name.
        values: results of each run, by name; as many as `settings`.
        width: of the screen, in characters.
    """
    from rich.table import Table
    from rich.text import Text

    trained = all(row.keys() >= _OF_A_RUN for row in values)
    left, right = [_cells(row) for row in settings], [_trained(row) if trained else _cells(row) for row in values]
    narrow = _shared("settings", left)
    layouts = [_joined(left, right), _joined(narrow, right)]
    if not trained:
        layouts.append(_joined(narrow, _shared("values", right)))
    rows = next((layout for layout in layouts if _width(layout) <= width), layouts[-1])
    caption = Text("\n".join(_notes(values) if trained else [_UNKNOWN]), style="dim")
    table = Table(box=None, padding=(0, _GAP, 0, 0), title=Text(title), caption=caption)
    table.title_justify = table.caption_justify = "left"
    headings = _headings(rows)
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    for row in rows:
        table.add_row(*(row.get(heading, "–") for heading in headings))
    return table


def _cells(row: Row) -> Cells:
    from rich.text import Text

    return {name: Text(_shortened(words.setting(value))) for name, value in row.items()}


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _trained(row: Row) -> Cells:
    """The cells of a training run; its bound is rounded to the safe side."""
    from rich.text import Text

    given = {name.removeprefix("guarantee."): value for name, value in row.items() if name.startswith("guarantee.")}
    test, epsilon, measure = row.get("metrics.test"), given["epsilon"], str(row["measure"])
    named = given["standing"]
    standing = "" if named is None else check.choice("standing", named, [*Standing, "stated"])
    label = Text(standing or "none", style=STYLES.get(standing, ""))
    bound = words.leakage(epsilon, standing) if isinstance(epsilon, int | float) and standing else "–"
    unit = "" if given["unit"] == "record" else f"\nof one {given['unit']}"
    return {
        "test": Text(words.measured(test, measure) if isinstance(test, int | float) else "–"),
        "epsilon": Text(bound),
        "standing": label + Text("\nunsafe", style="bold red") if _switches(row) else label,
        "accountant": Text(words.setting(given["accountant"])),
        "relation": Text(f"{given['relation']}{unit}"),
        "delta": Text(words.setting(given["delta"])),
    }


def _switches(row: Row) -> list[str]:
    return json.loads(str(row["guarantee.unsafe"]))


def _notes(values: Sequence[Row]) -> list[str]:
    bounds = all(row["guarantee.standing"] == Standing.PROVEN for row in values)
    switches = ", ".join(sorted({switch for row in values for switch in _switches(row)}))
    notes = [words.OUTSIDE, _ONE_OF_MANY]
    return [*notes, *([] if bounds else [words.NOT_A_BOUND]), *([f"unsafe: {switches}"] if switches else [])]


def _shared(heading: str, rows: Sequence[Cells]) -> list[Cells]:
    """The cells of each row in one, a line for each."""
    from rich.text import Text

    lines = [Text("\n").join(Text(f"{name} ") + cell for name, cell in row.items()) for row in rows]
    return [{heading: line} if row else {} for line, row in zip(lines, rows, strict=True)]


def _joined(left: Sequence[Cells], right: Sequence[Cells]) -> list[Cells]:
    return [{**first, **second} for first, second in zip(left, right, strict=True)]


def _headings(rows: Sequence[Cells]) -> list[str]:
    return list(dict.fromkeys(heading for row in rows for heading in row))


def _width(rows: Sequence[Cells]) -> int:
    from rich.cells import cell_len

    lines = {
        heading: [heading, *(line for row in rows if heading in row for line in row[heading].plain.split("\n"))]
        for heading in _headings(rows)
    }
    return sum(max(map(cell_len, each)) + _GAP for each in lines.values())
