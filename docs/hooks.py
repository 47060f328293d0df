"""What mkdocs cannot know by itself: the pages of papers and rooms, and how stored results stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MARK = "<!-- papers -->"


def on_config(config: Any) -> Any:
    """List docs/papers/*.md under Papers and docs/reference/*.md under Reference."""
    found = {"Papers": _pages("papers"), "Reference": _pages("reference")}
    config.nav = [_filled(entry, found) for entry in config.nav]
    return config


def on_page_markdown(markdown: str, page: Any, **given: Any) -> str:
    """Put the table of the papers in the place of its mark."""
    return markdown.replace(MARK, overview(ROOT / "results")) if MARK in markdown else markdown


def overview(results: Path) -> str:
    """One row for each paper with stored results: its items, those of full size, and the rows compared."""
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
    full = sum(item["size"] == "full" and len(item["runs"]) == item.get("tasks", len(item["runs"])) for item in items)
    compared = [row["pass"] for item in items for row in item["rows"] if row["pass"] is not None]
    passed = f"{sum(compared)} of {len(compared)}" if compared else "nothing to compare"
    name = f"[{folder.name}](papers/{folder.name}.md)" if _page(folder.name).exists() else folder.name
    return f"| {name} | {len(items)} | {full} | {passed} |"


def _page(key: str) -> Path:
    return ROOT / "docs" / "papers" / f"{key}.md"
