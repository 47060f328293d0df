"""Every Python block of the readme and of the pages runs as printed."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    f"{page.relative_to(ROOT)} block {number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[name], name, "exec"), {})


def test_links_of_the_readme_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


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
