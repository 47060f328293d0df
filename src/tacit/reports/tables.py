"""Terminal tables of results (rich), with the standing beside every number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tacit.accounting import Account
from tacit.audit import AuditResult
from tacit.reports import words
from tacit.standing import Standing

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {
    Standing.PROVEN: "bold green",
    Standing.ASYMPTOTIC: "yellow",
    Standing.BAYESIAN: "magenta",
    Standing.CLAIMED: "dim",
    Standing.MEASURED: "cyan",
}


def account_table(account: Account) -> Table:
    """Every accountant's answer; bounds are rounded to the safe side, refusals stand in the caption."""
    from rich.table import Table
    from rich.text import Text

    refusals = [f"{name} refused: {why}" for name, why in account.refused]
    caption = Text("\n".join([words.NOT_A_BOUND, *refusals]), style="dim")
    table = Table("accountant", "standing", box=None, caption=caption, caption_justify="left")
    for heading in ("epsilon", "proven lower", "delta", "mu", "advantage"):
        table.add_column(heading, justify="right")
    for result in account.results:
        standing = result.tradeoff.standing
        numbers = [words.leakage(value, standing) for value in (result.epsilon, result.mu, result.advantage)]
        known = result.epsilon_lower if result.epsilon_lower is not None else result.delta_lower
        lower, delta = words.downward(known), words.leakage(result.delta, standing)
        label = Text(standing.value, style=STYLES[standing])
        table.add_row(Text(result.tradeoff.source), label, numbers[0], lower, delta, *numbers[1:])
    return table


def audit_table(audits: Sequence[AuditResult]) -> Table:
    """What each attack found, its lower bounds, and the least leakage it could have found."""
    from rich.table import Table
    from rich.text import Text

    table = Table("attack", "bounds by", "confidence", box=None)
    for heading in ("advantage", "ppv", "epsilon at least", "mu at least", "epsilon it could have found"):
        table.add_column(heading, justify="right")
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


def reproduction_table(title: str, rows: Iterable[Mapping[str, object]]) -> Table:
    """published | ours | difference | tolerance | pass, one row a number; "–" where nothing is published."""
    from rich.table import Table
    from rich.text import Text

    table = Table("quantity", box=None, title=title, title_justify="left")
    for heading in ("published", "ours", "difference", "tolerance"):
        table.add_column(heading, justify="right")
    table.add_column("pass")
    table.add_column("standing")
    marks = {True: Text("pass", style="green"), False: Text("MISS", style="bold red"), None: Text("")}
    for row in rows:
        numbers = [_number(row[name]) for name in ("published", "ours", "difference", "tolerance")]
        standing = Standing(str(row["standing"]))
        label = Text(standing.value, style=STYLES[standing])
        table.add_row(str(row["quantity"]), *numbers, marks[_known(row["pass"])], label)
    return table


def _known(passed: object) -> bool | None:
    return passed if isinstance(passed, bool) else None


def _number(value: object) -> str:
    return words.nearest(value) if isinstance(value, float | int) else "–"


def plain_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """Rows of plain values, one column for every key that any of them has."""
    from rich.table import Table
    from rich.text import Text

    headings = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(box=None)
    for heading in headings:
        table.add_column(Text(heading))
    for row in rows:
        table.add_row(*(Text(words.setting(row[key]) if row.get(key) is not None else "–") for key in headings))
    return table
