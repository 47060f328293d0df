"""Hooks of mkdocs: list the pages of papers and rooms, and put a table of the stored results into the index."""

from __future__ import annotations

import csv
import json
import re
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "<!-- papers -->"
THEORY = ROOT / "src" / "tacit" / "accounting" / "pld" / "THEORY.md"
THEORY_PLACEHOLDER = "<!-- theory -->"


def on_config(config: Any) -> Any:
    """List docs/papers/*.md under Papers and docs/reference/*.md under Reference."""
    found = {"Papers": _pages("papers"), "Reference": _pages("reference")}
    config.nav = [_filled(entry, found) for entry in config.nav]
    return config


def on_page_markdown(markdown: str, page: Any, **given: Any) -> str:
    """Replace the placeholders by the table of the papers and by the theory, with formulas as MathML."""
    if THEORY_PLACEHOLDER in markdown:
        markdown = markdown.replace(THEORY_PLACEHOLDER, with_formulas(THEORY.read_text(encoding="utf-8")))
    return markdown.replace(PLACEHOLDER, overview(ROOT / "results")) if PLACEHOLDER in markdown else markdown


def with_formulas(markdown: str) -> str:
    """The text with $...$ and $$...$$ as MathML, which browsers draw without a script; code is left alone."""
    parts = re.split(r"(`[^`\n]*`)", markdown)
    return "".join(part if part.startswith("`") else _formulas(part) for part in parts)


def _formulas(text: str) -> str:
    text = re.sub(r"\$\$(.+?)\$\$", lambda found: _mathml(found[1], "block"), text, flags=re.DOTALL)
    return re.sub(r"\$(.+?)\$", lambda found: _mathml(found[1], "inline"), text, flags=re.DOTALL)


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert  # Only a build of the site needs it.

    source = " ".join(formula.split())
    found = convert(source, display=display).replace("\n", "")
    return found.replace("<math ", f'<math aria-label="{escape(source)}" ', 1)


def overview(results: Path) -> str:
    """A table with one row for each paper: its items, those complete at full size, and the compared rows that pass."""
    head = "| paper | tables and figures | complete at full size | numbers within tolerance |\n|---|---:|---:|---:|"
    return "\n".join([head, *(_line(folder) for folder in sorted(results.iterdir()) if folder.is_dir())])


def _pages(folder: str) -> list[str]:
    return sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md"))


def _filled(entry: Any, found: dict[str, list[str]]) -> Any:
    """A section of the navigation with its pages; any other entry as it is."""
    names = [name for name in found if isinstance(entry, dict) and name in entry]
    return {names[0]: found[names[0]]} if names else entry


def _line(folder: Path) -> str:
    items = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    complete = sum(item["size"] == "full" and item["runs"] == item["tasks"] for item in items)
    compared = [row["pass"] for item in items for row in _rows(folder / f"{item['item']}.csv") if row["pass"]]
    passed = f"{compared.count('true')} of {len(compared)}" if compared else "nothing to compare"
    name = f"[{folder.name}](papers/{folder.name}.md)" if _page(folder.name).exists() else folder.name
    return f"| {name} | {len(items)} | {complete} | {passed} |"


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _page(key: str) -> Path:
    return ROOT / "docs" / "papers" / f"{key}.md"
