"""One page for each paper, generated from the stored results: no number in it is typed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit import atomic
from tacit.papers.base import Paper
from tacit.papers.registry import PAPERS


def write_pages(results: str | os.PathLike[str], docs: str | os.PathLike[str], keys: Iterable[str]) -> list[Path]:
    """Write DOCS/KEY.md and its figures from what `Reproduced.save` left in RESULTS/KEY; returns the pages."""
    return [_write_page(PAPERS[key], Path(results) / key, Path(docs)) for key in keys]


def _write_page(paper: Paper, results: Path, docs: Path) -> Path:
    stored = {item.name: results / f"{item.name}.json" for item in paper.items}
    items = [json.loads(path.read_text(encoding="utf-8")) for path in stored.values() if path.exists()]
    for item in items:
        for figure in item["figures"]:
            (docs / paper.key).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(results / f"{figure}.svg", docs / paper.key / f"{figure}.svg")
    page = docs / f"{paper.key}.md"
    atomic.write_text(page, page_text(paper, items))
    return page


def page_text(paper: Paper, items: Sequence[Mapping[str, Any]]) -> str:
    """The page in Markdown."""
    parts = [f"# {paper.title}", paper.reading, _legend()]
    for item in items:
        parts += [f"## {item['title']} (`{item['item']}`)", _table(item["rows"]), _origin(item)]
        parts += [f"![{figure}]({paper.key}/{figure}.svg)" for figure in item["figures"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def _legend() -> str:
    return (
        "A dash means that the paper has no such number, or that it could not be recovered. `standing` says how far a "
        "privacy number can be trusted; a row without a tolerance is shown, not compared."
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "| quantity | published | ours | difference | tolerance | pass | standing |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *(_line(row) for row in rows)])


def _line(row: Mapping[str, Any]) -> str:
    marks = {True: "yes", False: "**no**", None: ""}
    numbers = [_number(row[name]) for name in ("published", "ours", "difference", "tolerance")]
    return f"| {row['quantity']} | {' | '.join(numbers)} | {marks[row['pass']]} | {row['standing']} |"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value or "–")


def _origin(item: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in item["versions"].items())
    return (
        f"{item['size'].capitalize()} size, {len(item['runs'])} tasks, {item['task_seconds']:.0f} s in all "
        f"on {item['machine']}. `{item['command']}`; {versions}."
    )
