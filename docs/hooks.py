"""Hooks of mkdocs: list the pages of papers and rooms, put tables of stored results and the theory into pages."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import tomllib
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "src" / "tacit_papers"
VERDICTS = (
    "reproduced", "reproduced under another reading", "differs, because", "refuted, if", "not comparable", "ours",
)  # fmt: skip
THEORY = [
    *(ROOT / "src/tacit/accounting/pld" / f"{name}.md" for name in ("THEORY", "PROOFS", "CONSTANTS")),
    ROOT / "src/tacit/judge/THEORY.md",
]
RESULTS = ROOT / "benchmarks" / "results"
# Pages of reference and of papers name every word; a page that explains it is the better first answer of a search.
DETAILS = ("reference/", "papers/")
DETAILS_BOOST = 1e-3  # the theme gives a word of a title 1000 times the weight of one of the text
# The dialog of the theme's search has no name, which axe-core's rule aria-dialog-name asks for.
DIALOG = 'data-md-component="search" role="dialog"'
BESIDE = "../../results/"  # where a page of a paper has its numbers in the repository
# What a preview of a link shows: `tacit account docs/pictures/mnist.json --plot docs/pictures/preview.png` draws it.
PREVIEW = "pictures/preview.png"
PREVIEW_WORDS = "Trade-off curves of one MNIST run by several accountants, and epsilon step by step"


def on_config(config: Any) -> Any:
    """List docs/papers/*.md under Papers, docs/reference/*.md under Rooms; offer other versions where mike builds."""
    if os.environ.get("MIKE_DOCS_VERSION"):  # any other build would ask for a list of versions that is not there
        config.extra["version"] = {"provider": "mike", "default": "latest"}
    found = {"Papers": _pages("papers"), "Rooms": _pages("reference")}
    config.nav = [_filled(entry, found) for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """The stored numbers of the papers are part of the site, at results/PAPER/ITEM.csv."""
    from mkdocs.structure.files import File

    for path in sorted((ROOT / "results").glob("*/*.csv")):
        place = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **given: Any) -> str:
    """Replace each marker by what it stands for, and links to stored numbers by those of the site."""
    if page is not None and page.file.src_uri.startswith(DETAILS):
        page.meta.setdefault("search", {"boost": DETAILS_BOOST})
    for marker, written in MARKERS.items():
        if marker in markdown:
            markdown = markdown.replace(marker, written())
    return markdown.replace(BESIDE, BESIDE.removeprefix("../"))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Name the search dialog, and describe the page to who shows a preview of a link to it."""
    named = output.replace(DIALOG, f'{DIALOG} aria-label="Search"', 1)
    told = {
        "og:title": f"{page.title} - {config.site_name}",
        "og:description": config.site_description,
        "og:type": "article",
        "twitter:card": "summary_large_image",
    }
    if config.site_url:  # a picture of a preview has an absolute address
        picture = f"{config.site_url.rstrip('/')}/{PREVIEW}"
        told |= {"og:url": page.canonical_url, "og:image": picture, "og:image:alt": PREVIEW_WORDS}
    tags = "".join(f'<meta property="{name}" content="{escape(str(words))}">' for name, words in told.items())
    return named.replace("</head>", f"{tags}</head>", 1)


def compared() -> str:
    """What `python -m benchmarks.compare show` prints, and where it was measured."""
    found = json.loads((RESULTS / "compare.json").read_text(encoding="utf-8"))
    table = runpy.run_path(str(ROOT / "benchmarks" / "compare" / "table.py"))["table"]
    return f"{table(found)}\n\nMeasured on {found['machine']}."


def low_order_bits() -> str:
    """The stored cases of training and of input perturbation: certified epsilon and what the lowest bits show."""
    cases = json.loads((RESULTS / "low_order_bits.json").read_text(encoding="utf-8"))["cases"]
    lines = ["| release | certified epsilon | found in the lowest bits |", "|---|---:|---:|"]
    for name, case in cases.items():
        if name.startswith(("training", "input")):
            certified = "none: floats" if case["certified"] is None else f"{case['certified']:.2f}"
            lines.append(f"| {name} | {certified} | {case['measured']:.2f} |")
    return "\n".join(lines)


def with_formulas(markdown: str) -> str:
    """The text with $...$ and $$...$$ as MathML, which browsers draw without a script; code is left alone."""
    joined = re.sub(r"(?<=[^\n])\n\$", " $", markdown)  # A line that begins with <math would be a block of HTML.
    parts = re.split(r"(`[^`\n]*`)", joined)
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
    """A table with one row for each paper: what became of its items, those complete at full size, rows that pass."""
    words = [word.partition(",")[0] for word in VERDICTS]
    columns = ["paper", *words, "complete at full size", "numbers within tolerance"]
    head = f"| {' | '.join(columns)} |\n|---{'|---:' * (len(columns) - 1)}|"
    return "\n".join([head, *(_line(folder) for folder in sorted(results.iterdir()) if folder.is_dir())])


def _pages(folder: str) -> list[str]:
    return sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md"))


def _filled(entry: Any, found: dict[str, list[str]]) -> Any:
    """A section of the navigation with its pages, and those within it; any other entry as it is."""
    if not isinstance(entry, dict):
        return entry
    return {name: found.get(name) or [_filled(each, found) for each in pages] for name, pages in entry.items()}


def _line(folder: Path) -> str:
    items = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    complete = sum(item["size"] == "full" and item["runs"] == item["tasks"] for item in items)
    compared = [row["pass"] for item in items for row in _rows(folder / f"{item['item']}.csv") if row["pass"]]
    passed = f"{compared.count('true')} of {len(compared)}" if compared else "nothing to compare"
    name = f"[{folder.name}](papers/{folder.name}.md)" if _page(folder.name).exists() else folder.name
    summary = PAPERS / folder.name.replace("-", "_") / "summary.toml"
    outcomes = [outcome for outcome, *_ in tomllib.loads(summary.read_text(encoding="utf-8"))["outcomes"].values()]
    counts = " | ".join(str(outcomes.count(outcome)) for outcome in VERDICTS)
    return f"| {name} | {counts} | {complete} of {len(outcomes)} | {passed} |"


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _page(key: str) -> Path:
    return ROOT / "docs" / "papers" / f"{key}.md"


# A line of a page -> what is written in its place.
MARKERS: dict[str, Callable[[], str]] = {
    "<!-- papers -->": lambda: overview(ROOT / "results"),
    "<!-- theory -->": lambda: with_formulas("\n\n".join(file.read_text(encoding="utf-8") for file in THEORY)),
    "<!-- compare -->": compared,
    "<!-- low-order bits -->": low_order_bits,
}
