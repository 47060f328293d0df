"""Terminal tables of an audit beyond the attacks themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.attacks import Overlap
from tacit.audit import Finding
from tacit.reports import words

if TYPE_CHECKING:
    from rich.table import Table


def finding_table(findings: Sequence[Finding]) -> Table:
    """Lower bounds on epsilon by estimators that give no point, and in the caption what each rests on."""
    from rich.table import Table
    from rich.text import Text

    caption = Text("\n".join(f"{found.estimator}: valid when {found.valid_when}" for found in findings), style="dim")
    table = Table("attack", "bounds by", box=None, caption=caption, caption_justify="left")
    for heading in ("epsilon at least", "mu at least", "mu it could have found"):
        table.add_column(heading, justify="right")
    for found in findings:
        numbers = (words.downward(found.epsilon_lower, 3), words.downward(found.mu_lower, 3))
        table.add_row(
            Text(found.attack),
            found.estimator,
            *numbers,
            words.upward(found.detectable_mu, 3),
        )
    return table


def overlap_table(name: str, rows: Sequence[Overlap]) -> Table:
    """Who is flagged in at least k runs, beside what fair coins would flag."""
    from rich.table import Table

    table = Table("runs", title=name, box=None, title_justify="left")
    for heading in ("members", "non-members", "PPV", "share by coins"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            f">= {row.runs}",
            f"{row.members:,}",
            f"{row.non_members:,}",
            words.nearest(row.ppv, 3),
            words.nearest(row.chance, 3),
        )
    return table
