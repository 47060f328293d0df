"""What the pages print as a command or as code, in order, and why some of it is not run.

A page says so by a comment that the reader of the site does not see: `<!-- not run: REASON -->` by itself holds for the
block after it, behind a command in a sentence for that command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
PROGRAMS = ("tacit", "python", "pip", "pytest", "mkdocs", "mike", "jupytext", "torchrun", "ruff", "pyright")
# Commands that no test runs as they stand, by what they begin with -> the reason, and what covers them.
FAMILIES = {
    r"pip install|python -m venv": "changes the environment; .ci/run installs, and the extras are those of pyproject",
    r"(python -m )?pytest|ruff|pyright": "a part of .ci/run",
    r"python docs/build_tutorials.py": "writes pages; .ci/run runs it with --check",
    r"(python -m benchmarks\.|python benchmarks/)(?!.*(show|--table))": "hours at most, stored in benchmarks/results",
    r"python -m tests\.": "minutes, stored in benchmarks/results; the tests run a part",
    r"tacit reproduce (improved-accounting$|.*--full|.*--quick)": "hours at most; .ci/run runs all at reduced size",
    r"python (examples|docs/tutorials)/": "tests/test_examples.py and tests/test_tutorials.py run every script",
    r"tacit train (mnist|fashion_mnist|kmnist|imdb) --epsilon": "minutes; tests/runs/test_recipes.py trains small ones",
    r"jupytext": "docs/build_tutorials.py makes the same notebook by the same library",
    r"(tacit|mkdocs) serve": "a server that does not end; tests/workbench and tests/test_site.py ask one",
}
_MARK = re.compile(r"<!-- not run: (.+?) -->")
_FORM = re.compile(r"\.\.\.|\||\b[A-Z]{2,}\b|\bN\b|\bmodule:function\b")


@dataclass(frozen=True)
class Part:
    """A fenced block, or the lines between two blank ones.

    Args:
        page: of the part, from the root of the repository on.
        language: of the fence, None for prose.
        file: the name behind the language, of a block that is the content of a file.
        text: without the fence.
        reason: why it is not run, if a comment says so.
    """

    page: str
    language: str | None
    file: str
    text: str
    reason: str | None


@dataclass(frozen=True)
class Command:
    """A command line of a page; `reason` says why no test runs it, `in_block` whether it stands in a fence."""

    page: str
    text: str
    in_block: bool
    reason: str | None

    @property
    def is_form(self) -> bool:
        """Whether it names a command or its arguments in a sentence, and is nothing that one could type."""
        words = self.text.split()
        named = words[0] == "tacit" and all(word.startswith("-") or word.isalpha() for word in words[1:])
        return not self.in_block and (bool(_FORM.search(self.text)) or (named and self.text not in WHOLE))


# Commands of sentences that need no arguments and are meant to be typed.
WHOLE = ("tacit train --help",)


def parts(page: Path) -> Iterator[Part]:
    """The parts of a page in order, comments left out."""
    name = page.relative_to(ROOT).as_posix()
    blocks = re.findall(
        r"^ *```(\S*) ?(.*)\n((?:.*\n)*?) *```$|((?:^(?! *```).*\S.*\n?)+)",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    reason = None
    for language, file, code, prose in blocks:
        alone = _MARK.fullmatch(prose.strip())
        if not alone:
            yield Part(name, None if prose else language, file, prose or code, reason)
        reason = alone[1] if alone else None


def blocks(*languages: str, pages: tuple[Path, ...] = PAGES) -> list[Part]:
    """The fenced blocks of these languages on all pages, or on some."""
    return [part for page in pages for part in parts(page) if part.language in languages]


def commands(pages: tuple[Path, ...] = PAGES) -> list[Command]:
    """Every command on the pages, in order."""
    return [each for page in pages for part in parts(page) for each in _commands(part)]


def page(name: str) -> Path:
    """The file of a page: `page("claims")` is docs/claims.md."""
    return ROOT / "docs" / f"{name}.md"


def typed(name: str) -> list[str]:
    """The commands in the blocks of docs/NAME.md that a test of that page has to run, in order."""
    return [each.text for each in commands((page(name),)) if each.in_block and each.reason is None]


def _commands(part: Part) -> Iterator[Command]:
    if part.language is None:
        for code, mark in re.findall(r"`([^`]+)`(?:\s*<!-- not run: (.+?) -->)?", part.text):
            text = " ".join(code.split())
            if text.split(" ")[0] in PROGRAMS and " " in text:
                yield _command(part, text, in_block=False, reason=mark or part.reason)
    elif part.language in ("sh", "console"):
        for line in part.text.replace("\\\n", " ").splitlines():
            if part.language == "sh" or line.startswith("$ "):
                text = " ".join(re.sub(r"\s+# .*$", "", line.removeprefix("$ ")).split())
                if text:
                    yield _command(part, text, in_block=True, reason=part.reason)


def _command(part: Part, text: str, *, in_block: bool, reason: str | None) -> Command:
    family = next((why for pattern, why in FAMILIES.items() if re.match(pattern, text)), None)
    return Command(part.page, text, in_block, reason or family)
