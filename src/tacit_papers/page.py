"""One page of one screen for each paper, generated from the stored results: no number of ours in it is typed.

A page has what the paper says, one table with the row of the paper, ours, the verdict and the evidence, and the reading
of the paper. `Verdict.ours` and the reading (`Paper.reading`) are Jinja templates.
`{{ ours("table-1", "quantity") }}` and `published(...)` stand for a number of a stored row, "not run" where the row or
its number is missing; `passed("table-1")` says how many compared rows of an item are within tolerance, as "3 of 4".
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tacit.serialization import write_text
from tacit_papers.base import Paper
from tacit_papers.reproduce import PAPERS
from tacit_papers.stored import read_item, values_of


def write_pages(results: str | os.PathLike[str], docs: str | os.PathLike[str], keys: Iterable[str]) -> list[Path]:
    """Write DOCS/KEY.md and its figures from what `Reproduced.save` left in RESULTS/KEY; returns the pages.

    A figure whose stored runs are not those that this version plans stays as it is in DOCS/KEY.
    """
    return [_write_page(PAPERS[key], Path(results) / key, Path(docs)) for key in keys]


def _write_page(paper: Paper, results: Path, docs: Path) -> Path:
    stored = stored_items(paper, results.parent)
    for item in paper.items:
        found = next((each for each in stored if each["item"] == item.name), None)
        values = values_of(item, found) if found is not None and found["figures"] else None
        for name, svg in item.figures(found["size"], values).items() if found is not None and values else ():
            write_text(docs / paper.key / f"{name}.svg", svg)
    page = docs / f"{paper.key}.md"
    write_text(page, page_text(paper, stored))
    return page


def page_text(paper: Paper, items: Sequence[Mapping[str, Any]]) -> str:
    """The page in Markdown."""
    parts = [f"# {paper.title}", paper.summary.says.strip(), _overview(paper, items), _LEGEND]
    return "\n\n".join([*parts, reading(paper.reading, items).strip()]) + "\n"


def overview(paper: Paper, items: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """One row for each item of the paper, those that have not run included.

    Args:
        paper: the paper.
        items: stored items, as `read_item` gives them.

    Returns:
        Rows with the keys "item", "row of the paper", "kind" of its published numbers, "ours" and "verdict".
    """
    titles = {item.name: _capital(item.title) for item in paper.items}
    return [
        {
            "item": name,
            "row of the paper": titles[name],
            "kind": paper.summary.kinds.get(name, ""),
            "ours": reading(verdict.ours, items),
            "verdict": reading(verdict.words, items),
        }
        for name, verdict in paper.summary.verdicts.items()
    ]


def stored_items(paper: Paper, results: Path) -> list[dict[str, Any]]:
    """The items of a paper that lie in RESULTS/KEY, in the paper's order."""
    places = [results / paper.key / f"{item.name}.json" for item in paper.items]
    return [read_item(path) for path in places if path.exists()]


def reading(template: str, items: Sequence[Mapping[str, Any]]) -> str:
    """The text with the numbers of the stored rows put in."""
    from jinja2 import Environment, StrictUndefined

    rows = {(item["item"], row["quantity"]): row for item in items for row in item["rows"]}

    def number(item: str, quantity: str, column: str) -> str:
        value = rows.get((item, quantity), {}).get(column)
        return "not run" if value is None else _number(value)

    def passed(name: str) -> str:
        return next((_passed(item["rows"]) for item in items if item["item"] == name), "not run")

    words = Environment(undefined=StrictUndefined, autoescape=False).from_string(template)
    columns = {name: partial(number, column=name) for name in ("ours", "published", "difference")}
    return words.render(**columns, passed=passed)


_LEGEND = (
    "Linked numbers stand beside tolerance, standing and runs; `published.toml` has the place of every published one "
    "([how to compute them again](../reproduce.md))."
)


def _overview(paper: Paper, items: Sequence[Mapping[str, Any]]) -> str:
    """The table, each item with the state of its runs and links to its numbers and drawings."""
    found = {item["item"]: item for item in items}
    lines = ["| row of the paper | published in | ours | verdict | evidence |", "|---|---|---|---|---|"]
    for row in overview(paper, items):
        state = "not run"
        if row["item"] in found:
            item = found[row["item"]]
            drawn = [f"[drawing {place}]({paper.key}/{name}.svg)" for place, name in enumerate(item["figures"], 1)]
            left = "" if len(item["runs"]) == item["tasks"] else f" of {item['tasks']}"
            runs = f"{item['size']}, {len(item['runs'])}{left} runs"
            numbers = f"[numbers](../../results/{paper.key}/{row['item']}.csv)"
            state = ", ".join([numbers, runs, *drawn])
        title = f"{row['row of the paper']} (`{row['item']}`)"
        word = paper.summary.verdicts[row["item"]].word
        cells = (title, row["kind"], row["ours"], f"**{word}**{row['verdict'].removeprefix(word)}", state)
        lines.append(f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |")
    return "\n".join(lines)


def _passed(rows: Sequence[Mapping[str, Any]]) -> str:
    compared = [row["pass"] for row in rows if row["pass"] is not None]
    return f"{sum(compared)} of {len(compared)}" if compared else "nothing to compare"


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value or "–")
