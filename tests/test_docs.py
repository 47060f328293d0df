"""Every Python block of the readme and of the pages runs as printed; links, pictures and stored tables are in order."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pages.commands import blocks

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tacit"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The blocks of a tutorial are cells of one notebook: tests/test_tutorials.py.
SINGLE = tuple(page for page in PAGES if page.parent.name != "tutorials")
KINDS = ("Tutorials", "How-to", "Explanation", "Reference")
BLOCKS = {
    f"{part.page} block {number}": part.text
    for page in SINGLE
    for number, part in enumerate(blocks("python", pages=(page,)))
    if part.reason is None and not part.file
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[name], name, "exec"), {})


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"])
def test_links_outside_of_the_site_exist(name):
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_where_is_table_names_files_and_definitions_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*[?:] \| (`.*`) \| (`.*`) \|$", page, flags=re.MULTILINE)
    assert len(rows) >= 10
    for files, names in rows:
        text = "".join((SOURCE / file).read_text(encoding="utf-8") for file in re.findall("`(.*?)`", files))
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", text, flags=re.MULTILINE), name


def test_paths_in_the_contributing_guide_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:tests|src|docs|examples)/[\w./]+)`", text):
        assert (ROOT / path).exists() or "NAME" in path, path
    for path in re.findall(r"\| `([a-z_]+/[\w/]+\.py)`", text):
        assert (SOURCE / path).exists() or path.startswith(("tests", "examples", "src")) or "NAME" in path, path


def test_the_site_is_built_so_that_a_broken_link_fails():
    """mkdocs counts warnings only where they are logged, which --quiet prevents."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for rule in ("not_found", "anchors", "absolute_links", "unrecognized_links"):
        assert f"    {rule}: warn" in config
    (build,) = re.findall(r"^.*mkdocs build.*$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert "--strict" in build
    assert "--quiet" not in build


def test_every_room_has_a_page_of_reference():
    rooms = {
        room["name"] for room in tomllib.loads((ROOT / "src/tacit/layers.toml").read_text(encoding="utf-8"))["room"]
    }
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")}
    assert set(pages) == rooms
    assert all(f"::: tacit.{name}\n" in text for name, text in pages.items())


def test_the_sweep_of_the_page_is_one(tmp_path):
    from tacit.sweeps.grid import read_grid

    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "noise.toml").write_text(text)
    assert len(read_grid(tmp_path / "noise.toml").tasks) == 6


def test_the_site_lists_every_page_of_a_paper():
    hooks = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "hooks.py")))
    config = hooks.on_config(SimpleNamespace(nav=["index.md", {"Papers": []}]))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "papers").glob("*.md")}
    assert set(config.nav[1]["Papers"]) == pages
    assert "papers/gaussian-dp.md" in pages
    index = hooks.on_page_markdown((ROOT / "docs" / "index.md").read_text(encoding="utf-8"), None)
    assert "| [gaussian-dp](papers/gaussian-dp.md) |" in index


def test_the_navigation_keeps_four_kinds_of_pages_apart():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    navigation = text[text.index("\nnav:\n") :]
    assert tuple(re.findall(r"^  - (\S+):$", navigation, flags=re.MULTILINE)) == KINDS
    listed = re.findall(r"- (\S+\.md)$", navigation, flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    filled = ("papers/", "reference/")
    names = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]]
    assert sorted(listed) == sorted(name for name in names if not name.startswith(filled))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_picture_has_alternative_text(page):
    text = page.read_text(encoding="utf-8")
    for alternative, target in re.findall(r"!\[(.*?)\]\((.*?)\)", text):
        assert len(alternative.split()) >= 3, target
        assert (page.parent / target).exists(), target
    for tag in re.findall(r"<img [^>]*>", text):
        assert re.search(r'alt="[^"]{10,}"', tag), tag


def test_the_table_of_the_readme_is_the_stored_comparison_and_a_peer_is_ahead_in_a_row():
    parts = runpy.run_path(str(ROOT / "benchmarks" / "compare" / "table.py"))
    found = json.loads(parts["STORED"].read_text(encoding="utf-8"))
    assert parts["table"](found, parts["SHORT"]) in (ROOT / "README.md").read_text(encoding="utf-8")
    assert found["rows"]["private random forest"] == {"tacit": "no such class", "diffprivlib": "runs"}
    assert "not installed" not in found["versions"].values()


def test_markers_in_the_pages_are_replaced_by_stored_results():
    hooks = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "hooks.py")))
    for name, words in {
        "compare": "| private k-means |",
        "floating_point": "| training step, noise 2, floats |",
    }.items():
        page = (ROOT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8")
        assert words in hooks.on_page_markdown(page, None)


def test_the_readme_is_short_and_names_a_command_for_each_refuted_claim():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    table = text[text.index("| claim |") : text.index("Every privacy number")]
    rows = [row for row in table.splitlines()[2:] if row.startswith("|")]
    assert len(rows) >= 4
    for row in rows:
        assert re.search(r"`(tacit|python -m tacit)[^`]*` \|$", row), row
