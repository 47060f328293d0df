"""One page for each paper, generated from the stored results: no number in it is typed.

A page has three parts: what the paper says, what we measured with pictures first, and what follows, the reading of the
paper. The reading (`Paper.reading`) is a Jinja template. `{{ ours("table-1", "quantity") }}` and `published(...)`
stand for a number of a stored row, "not run" where the row or its number is missing; `ran("table-1", "quantity")` says
whether it is there, and `passed("table-1")` how many compared rows of an item lie within their tolerance, as "3 of 4".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tacit.serialization import write_text
from tacit_papers.base import Paper
from tacit_papers.registry import PAPERS
from tacit_papers.stored import read_item, values_of

_MOST_ROWS = 24


def write_pages(results: str | os.PathLike[str], docs: str | os.PathLike[str], keys: Iterable[str]) -> list[Path]:
    """Write DOCS/KEY.md and its figures from what `Reproduced.save` left in RESULTS/KEY; returns the pages.

    A figure whose stored runs are not those that this version plans stays as it is in DOCS/KEY.
    """
    return [_write_page(PAPERS[key], Path(results) / key, Path(docs)) for key in keys]


def _write_page(paper: Paper, results: Path, docs: Path) -> Path:
    places = [(item, results / f"{item.name}.json") for item in paper.items]
    stored = [(item, read_item(path)) for item, path in places if path.exists()]
    for item, found in stored:
        values = values_of(item, found) if found["figures"] else None
        for name, svg in item.figures(found["size"], values).items() if values else ():
            write_text(docs / paper.key / f"{name}.svg", svg)
    page = docs / f"{paper.key}.md"
    write_text(page, page_text(paper, [found for _, found in stored]))
    return page


def page_text(paper: Paper, items: Sequence[Mapping[str, Any]]) -> str:
    """The page in Markdown."""
    parts = [f"# {paper.title}", "## What the paper says", paper.summary.says.strip()]
    parts += ["## What we measured", _overview(paper, items), _legend()]
    for item in items:
        parts.append(f"### {_capital(item['title'])} (`{item['item']}`)")
        parts += [
            f"![{alternative(item['title'], figure)}]({paper.key}/{figure}.svg)\n\n*{figure}*"
            for figure in item["figures"]
        ]
        parts += [_table(item["rows"]), _origin(item)]
    parts += ["## What follows", reading(paper.reading, items)]
    return "\n\n".join(part for part in parts if part) + "\n"


def alternative(title: str, figure: str) -> str:
    """What a picture shows, in words, for who cannot see it: the title of its item and the name of the figure.

    Example:
        >>> alternative("coverage", "figure-1_mnist")
        'Drawing of coverage: figure 1 mnist'
    """
    words = figure.replace("-", " ").replace("_", " ")
    return f"Drawing of {title.replace('[', '(').replace(']', ')')}: {words}"


def reading(template: str, items: Sequence[Mapping[str, Any]]) -> str:
    """The text with the numbers of the stored rows put in."""
    from jinja2 import Environment, StrictUndefined

    rows = {(item["item"], row["quantity"]): row for item in items for row in item["rows"]}

    def number(item: str, quantity: str, column: str) -> str:
        value = rows.get((item, quantity), {}).get(column)
        return "not run" if value is None else _number(value)

    def ran(item: str, quantity: str) -> bool:
        return rows.get((item, quantity), {}).get("ours") is not None

    def passed(name: str) -> str:
        return next((_passed(item["rows"]) for item in items if item["item"] == name), "not run")

    words = Environment(undefined=StrictUndefined, autoescape=False).from_string(template)
    columns = {name: partial(number, column=name) for name in ("ours", "published", "difference")}
    return words.render(**columns, ran=ran, passed=passed)


def _overview(paper: Paper, items: Sequence[Mapping[str, Any]]) -> str:
    """One row for each item of the paper, those that have not run included."""
    found = {item["item"]: item for item in items}
    lines = ["| item | outcome | why | size | runs done | within tolerance |", "|---|---|---|---|---|---|"]
    for name, (outcome, why) in paper.summary.outcomes.items():
        state = "not run | | "
        if name in found:
            item = found[name]
            state = f"{item['size']} | {len(item['runs'])} of {item['tasks']} | {_passed(item['rows'])}"
        lines.append(f"| `{name}` | {outcome} | {why} | {state} |")
    return "\n".join(lines)


def _passed(rows: Sequence[Mapping[str, Any]]) -> str:
    compared = [row["pass"] for row in rows if row["pass"] is not None]
    return f"{sum(compared)} of {len(compared)}" if compared else "nothing to compare"


def _legend() -> str:
    return (
        "A dash means that the paper has no such number, or that it could not be recovered. `standing` says how far a "
        "privacy number can be trusted; a row without a tolerance is not compared. `repeats` is how many "
        "training runs a number is the mean of, 0 where none has been run yet."
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows; of a long item those that the paper states, the rest folded; those not run yet are only counted."""
    waiting = [row for row in rows if row["published"] is None and row.get("repeats") == 0]
    if waiting:
        return "\n\n".join(
            [_table([row for row in rows if row not in waiting]), f"{len(waiting)} more are not run yet."]
        )
    stated = [row for row in rows if row["published"] is not None]
    others = [row for row in rows if row["published"] is None]
    if len(rows) <= _MOST_ROWS:
        return _rows(rows)
    summary = f"{len(others)} {'more ' if stated else ''}numbers, without a published value"
    folded = f'<details markdown="1"><summary>{summary}</summary>\n\n{_rows(others)}\n\n</details>'
    return "\n\n".join([*([_rows(stated)] if stated else []), folded])


_COMPARISON = ("published", "difference", "tolerance", "pass")


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table, without the columns of the comparison where nothing is published."""
    columns = ["quantity", "published", "ours", "difference", "tolerance", "pass", "standing", "repeats"]
    if all(row["published"] is None for row in rows):
        columns = [name for name in columns if name not in _COMPARISON]
    if all(row.get("repeats") is None for row in rows):
        columns.remove("repeats")
    sides = ["---" if name in ("quantity", "pass", "standing") else "---:" for name in columns]
    lines = [columns, sides, *([_cell(name, row.get(name)) for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(name: str, value: Any) -> str:
    """One cell; a bar would end it."""
    if name == "pass":
        return {True: "yes", False: "**no**", None: ""}[value]
    if name == "repeats":
        return "" if value is None else str(value)
    return _number(value).replace("|", "\\|")


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value or "–")


def _origin(item: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in item["versions"].items())
    return (
        f"{item['size'].capitalize()} size, {len(item['runs'])} of {item['tasks']} runs done"
        f"{_engines(item['runs'])}; {item['task_seconds']:.0f} s in all, the last on {item['finished']}, on "
        f"{item['machine']}. `{item['command']}`; {versions}."
    )


def _engines(runs: Sequence[Mapping[str, Any]]) -> str:
    """Which engines trained, where they are not the eager one: they add in another order, and nothing else differs."""
    settings = [run["settings"] | run["settings"].get("settings", {}) for run in runs]
    found = sorted({each["engine"] for each in settings if each.get("engine", "eager") != "eager"})
    return f" (training engine: {', '.join(found)})" if found else ""
