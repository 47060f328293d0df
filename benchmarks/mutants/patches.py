"""The catalogue of privacy bugs: search-and-replace patches of `src/tacit`, kept as TOML by room."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "patches"
PACKAGE = Path(__file__).parents[2] / "src" / "tacit"


@dataclass(frozen=True)
class Patch:
    """One bug.

    Attributes:
        name: unique in the catalogue.
        file: below the package.
        old: text that occurs in it exactly once.
        new: what stands there instead.
        breaks: the bug in a sentence.
        releases: what is released differently; empty where only a claim or a check is wrong.
        scenario: the run of `product.SCENARIOS` that takes the patched path.
        engines: the engines that take it.
        threads: numbers of torch threads to run it with.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    releases: str
    scenario: str = "plain"
    engines: tuple[str, ...] = ("eager",)
    threads: tuple[int, ...] = (1,)

    def apply(self, package: Path) -> None:
        """Write the bug into a copy of the package; raises `ValueError` where the code has moved on."""
        path = package / self.file
        path.write_text(self.patched(path.read_text(encoding="utf-8")), encoding="utf-8")

    def patched(self, text: str) -> str:
        """`text` of the file with the bug."""
        count = text.count(unescaped(self.old))
        if count != 1:
            raise ValueError(f"{self.name}: the old text must occur once in {self.file}; got {count} times.")
        return text.replace(unescaped(self.old), unescaped(self.new))


def unescaped(text: str) -> str:
    """Line breaks of a TOML literal string, which are written as in Python."""
    return text.replace("\\n", "\n")


def patches() -> tuple[Patch, ...]:
    """Every patch, by room and in the order of the files."""
    return tuple(_read())


def _read() -> Iterator[Patch]:
    for path in sorted(FOLDER.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["patch"]:
            lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
            yield Patch(**(row | lists))
