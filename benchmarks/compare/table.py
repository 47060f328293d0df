"""The stored comparison as a Markdown table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LIBRARIES = ("tacit", "opacus", "dp-accounting", "jax-privacy", "diffprivlib", "riskcal")
STORED = Path(__file__).parents[1] / "results" / "compare.json"
# Rows of the README, the last of which a peer wins.
SHORT = (
    "width between lower and upper end of that epsilon",
    "central limit theorem: epsilon below what leaks, of 8 settings",
    "shuffled batches, accounted as Poisson samples",
    "linear regression at epsilon 1, two records",
    "seconds: a private step, 256 records",
    "private random forest",
)


def table(found: dict[str, Any], rows: tuple[str, ...] | None = None) -> str:
    """The stored cells as a Markdown table; columns of libraries that none of the rows has are left out."""
    chosen = {row: found["rows"][row] for row in rows or found["rows"]}
    columns = [library for library in LIBRARIES if any(library in cells for cells in chosen.values())]
    lines = [
        "| | " + " | ".join(f"{library} {found['versions'][library]}" for library in columns) + " |",
        "|---|" + "---|" * len(columns),
        *(
            f"| {row} | " + " | ".join(cells.get(library, "-").replace("|", "/") for library in columns) + " |"
            for row, cells in chosen.items()
        ),
    ]
    return "\n".join(lines)
