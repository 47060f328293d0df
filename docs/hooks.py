"""What mkdocs cannot know by itself: which papers have a page, and how their stored results stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MARK = "<!-- papers -->"


def on_config(config: Any) -> Any:
    """List docs/papers/*.md under Papers."""
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "papers").glob("*.md"))
    config.nav = [{"Papers": pages} if "Papers" in entry else entry for entry in config.nav]
    return config


def on_page_markdown(markdown: str, page: Any, **given: Any) -> str:
    """Put the table of the papers in the place of its mark."""
    return markdown.replace(MARK, overview(ROOT / "results")) if MARK in markdown else markdown


def overview(results: Path) -> str:
    """One row for each paper with stored results: its items, those of full size, and the rows compared."""
    head = "| paper | tables and figures | complete at full size | numbers within tolerance |\n|---|---:|---:|---:|"
    return "\n".join([head, *(_line(folder) for folder in sorted(results.iterdir()) if folder.is_dir())])


def _line(folder: Path) -> str:
    items = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    full = sum(item["size"] == "full" and len(item["runs"]) == item.get("tasks", len(item["runs"])) for item in items)
    compared = [row["pass"] for item in items for row in item["rows"] if row["pass"] is not None]
    passed = f"{sum(compared)} of {len(compared)}" if compared else "nothing to compare"
    name = f"[{folder.name}](papers/{folder.name}.md)" if _page(folder.name).exists() else folder.name
    return f"| {name} | {len(items)} | {full} | {passed} |"


def _page(key: str) -> Path:
    return ROOT / "docs" / "papers" / f"{key}.md"
