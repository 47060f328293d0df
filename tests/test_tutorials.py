"""The tutorials: a page is what its script says, pictures have words, and every script runs."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
SCRIPTS = sorted(FOLDER.glob("*.py"))
NAMES = runpy.run_path(str(ROOT / "docs" / "build_tutorials.py"))["NAMES"]


def cells(script: Path) -> list[tuple[str, str]]:
    """Head and source of every cell of a percent script."""
    parts = re.split(r"^# %%(.*)\n", script.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(head.strip(), source.strip()) for head, source in zip(parts[1::2], parts[2::2], strict=True)]


def words(source: str) -> str:
    return "\n".join(re.sub("^# ?", "", line) for line in source.splitlines())


def test_every_tutorial_is_listed_built_and_in_the_navigation():
    assert sorted(NAMES) == [script.stem for script in SCRIPTS]
    assert len(SCRIPTS) >= 12
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"tutorials/{name}.md" in navigation
        assert f"]({name}.md)" in index


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_page_shows_the_cells_of_its_script(script):
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    found = cells(script)
    code = [source for head, source in found if head != "[markdown]"]
    assert re.findall(r"```python\n(.*?)\n```", page, re.DOTALL) == code, (
        "python docs/build_tutorials.py writes the pages"
    )
    for head, source in found:
        if head == "[markdown]":
            assert words(source) in page


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_cell_that_draws_says_in_words_what_is_seen(script):
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    drawn = [head for head, source in cells(script) if "plt.show()" in source]
    assert drawn
    for head in drawn:
        (alternative,) = re.findall(r'^alt="(.{30,})"$', head)
        (file,) = re.findall(rf"!\[{re.escape(alternative)}\]\((.*?)\)", page)
        assert (FOLDER / file).exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_in_an_empty_folder(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
