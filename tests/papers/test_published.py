"""published.toml: every tolerance has its reason and is no wider than its number, and what is not compared says why."""

import csv
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tacit_papers
from tacit_papers import PAPERS
from tacit_papers.base import KINDS

FILES = {
    path.parent.name.replace("_", "-"): path for path in Path(tacit_papers.__file__).parent.glob("*/published.toml")
}
RESULTS = Path(__file__).parents[2] / "results"


def tables_with_tolerance(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if "tolerance" in value:
            yield path, value
        for name, inner in value.items():
            yield from tables_with_tolerance(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from tables_with_tolerance(inner, path)


def published_rows(key: str) -> list[tuple[str, dict[str, str]]]:
    files = [path for path in sorted((RESULTS / key).glob("*.csv")) if not path.name.endswith(".runs.csv")]
    read = [(path.stem, row) for path in files for row in csv.DictReader(path.open(encoding="utf-8"))]
    return [(item, row) for item, row in read if row["published"]]


NOTES = Path(__file__).parents[3] / "shared" / "methods"


def numbers_of(value: Any, path: str = "", line: int | None = None) -> Iterator[tuple[str, float, int | None]]:
    """Every number of a paper's file by its path, with the line that its cell names; tolerances are left out."""
    if isinstance(value, dict):
        line = value.get("line", line)
        for name, inner in value.items():
            ours = not path and name in ("places", "reasons", "not_compared", "choices")
            if "tolerance" not in name and name not in ("line", "derived") and not ours:
                yield from numbers_of(inner, f"{path}.{name}" if path else name, None if value.get("derived") else line)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers_of(inner, path, line)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value), line


def within(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}.")


def place_of(path: str, places: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The place with the longest path that holds a number."""
    holding = (each for each in places if within(path, each["path"]))
    return max(holding, key=lambda each: len(each["path"]), default=None)


@pytest.mark.parametrize("key", PAPERS)
def test_every_published_number_has_a_place_of_a_known_kind(key):
    table = tomllib.loads(FILES[key].read_text(encoding="utf-8"))
    found = {path for path, *_ in numbers_of(table) if not any(within(path, each) for each in table["choices"])}
    assert [path for path in found if place_of(path, table["places"]) is None] == []
    assert {each["kind"] for each in table["places"]} <= set(KINDS)
    named = {item for each in table["places"] for item in each["items"]}
    assert {item for item, _ in published_rows(key)} <= named <= {item.name for item in PAPERS[key].items}


@pytest.mark.parametrize("key", PAPERS)
@pytest.mark.skipif(not NOTES.is_dir(), reason="the notes on the papers are not beside this checkout")
def test_a_number_of_the_text_stands_at_its_place(key):
    table = tomllib.loads(FILES[key].read_text(encoding="utf-8"))
    missing = []
    for path, value, line in numbers_of(table):
        place = place_of(path, table["places"])
        if place is None or place["kind"] == "derived" or any(within(path, each) for each in table["choices"]):
            continue
        first, last = place["lines"] if line is None else (line, line)
        lines = (NOTES / place["file"]).read_text(encoding="utf-8").splitlines()[first - 1 : last]
        printed = {float(each) for each in re.findall(r"\d*\.?\d+(?:e-?\d+)?", " ".join(lines))}
        if not any(math.isclose(value, each * unit) for each in printed for unit in (1, 0.01)):
            missing.append((path, value, f"{place['file']}:{first}"))
    assert not missing


@pytest.mark.parametrize("key", PAPERS)
def test_a_place_is_a_few_lines_and_a_cell_names_its_own(key):
    """A number is easily found somewhere in twenty lines of numbers."""
    table = tomllib.loads(FILES[key].read_text(encoding="utf-8"))
    assert [each for each in table["places"] if not 0 <= each["lines"][1] - each["lines"][0] <= 8] == []
    cells = [cell for _, cell in tables_with_tolerance(table) if "value" in cell]
    assert all("line" in cell for cell in cells)


def test_every_paper_has_its_numbers_in_a_file():
    assert FILES.keys() == PAPERS.keys()


@pytest.mark.parametrize("key", PAPERS)
def test_every_tolerance_has_a_reason_and_every_reason_a_tolerance(key):
    numbers = tomllib.loads(FILES[key].read_text(encoding="utf-8"))
    paths = {path for path, _ in tables_with_tolerance(numbers)}
    reasons = numbers.get("reasons", {})
    assert [path for path in paths if not any(path == each or path.startswith(f"{each}.") for each in reasons)] == []
    assert [each for each in reasons if not any(path == each or path.startswith(f"{each}.") for path in paths)] == []
    assert all(isinstance(words, str) and words for words in reasons.values())


@pytest.mark.parametrize("key", PAPERS)
def test_no_tolerance_of_a_cell_is_wider_than_its_value(key):
    numbers = tomllib.loads(FILES[key].read_text(encoding="utf-8"))
    cells = [cell for _, cell in tables_with_tolerance(numbers) if "value" in cell]
    assert [cell for cell in cells if not 0 < cell["tolerance"] <= abs(cell["value"])] == []


@pytest.mark.parametrize("key", PAPERS)
def test_no_tolerance_of_a_stored_row_is_wider_than_its_number(key):
    """A distance is compared with 0, which no tolerance is narrower than."""
    compared = [row for _, row in published_rows(key) if row["tolerance"] and float(row["published"])]
    assert [row for row in compared if float(row["tolerance"]) > abs(float(row["published"]))] == []


@pytest.mark.parametrize("key", PAPERS)
def test_a_published_number_without_tolerance_says_why_it_is_not_compared(key):
    reasons = tomllib.loads(FILES[key].read_text(encoding="utf-8")).get("not_compared", {})
    bare = {item for item, row in published_rows(key) if not row["tolerance"]}
    names = {item.name for item in PAPERS[key].items}
    assert bare <= reasons.keys() <= names
    assert all(isinstance(words, str) and words for words in reasons.values())


def test_the_leads_of_table_2_are_derived_from_its_columns_and_those_over_a_random_mask_reproduced():
    table = tomllib.loads(FILES["lottery-ticket"].read_text(encoding="utf-8"))["table_2"]
    for data, lead in table["lead"].items():
        assert math.isclose(lead, table["winning"][data] - table["random"][data])
    leads = [row for _, row in published_rows("lottery-ticket") if "ahead of the random mask" in row["quantity"]]
    assert len(leads) == 5
    assert sorted(row["pass"] for row in leads) == ["", "", "true", "true", "true"]
    derived = [row for item, row in published_rows("lottery-ticket") if item == "random-ticket"]
    assert all("derived" in row["quantity"] for row in [*leads, *derived])


ROOT = Path(__file__).parents[2]
CLAIMS = re.compile(r"Kang|Triastcyn|Gondara|Bu et al|PaperInput|published mask|the tickets are the paper")


def test_a_refutation_of_a_paper_carries_its_assumption_in_the_same_line():
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    lines = [(path.name, line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    refuted = [(name, line) for name, line in lines if CLAIMS.search(line) and re.search(r"\brefute[ds]\b", line)]
    assert len(refuted) >= 5
    assert [each for each in refuted if not re.search(r"\b(if|where|since)\b", each[1])] == []
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| claim |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) >= 4
    assert [row for row in rows if ", if " not in row.split(" | ")[0]] == []
