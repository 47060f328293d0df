"""What a paper is to `tacit reproduce`: items, each a list of tasks and the rows that their results give.

Training runs of the papers: a preset with a few settings changed, seeded so that a result can be had again.
"""

import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from tacit.standing import Standing
from tacit.sweeps import Task

SIZES = ("quick", "full")

Figures = Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One number of a paper beside ours.

    Attributes:
        paper: the paper, its key.
        item: table or figure of the paper.
        quantity: what it is, in a few words.
        published: the paper's value, or None where none could be recovered or none was published.
        ours: what this library measured or computed.
        tolerance: by how much `ours` may differ from `published`; None for a row that is not compared.
        standing: of `ours` where it is a privacy number; "measured" otherwise.
        repeats: how many training runs `ours` is the mean of; 0 where none has run yet, None where none is needed.
        at_least: the paper says "more than": only a smaller `ours` misses.
    """

    paper: str
    item: str
    quantity: str
    published: float | None
    ours: float | None
    tolerance: float | None = None
    standing: Standing = Standing.MEASURED
    repeats: int | None = None
    at_least: bool = False

    @property
    def difference(self) -> float | None:
        """Ours - published."""
        return None if self.published is None or self.ours is None else self.ours - self.published

    @property
    def passed(self) -> bool | None:
        """Whether the difference is within the tolerance; None where there is nothing to compare, or not yet."""
        if self.published is None or self.tolerance is None or self.repeats == 0:
            return None
        if self.difference is None:
            return False
        return (-self.difference if self.at_least else abs(self.difference)) <= self.tolerance

    def plain(self) -> dict[str, Any]:
        """The row as `tacit reproduce --json` prints it."""
        return {
            "paper": self.paper,
            "item": self.item,
            "quantity": self.quantity,
            "published": self.published,
            "ours": self.ours,
            "difference": self.difference,
            "tolerance": self.tolerance,
            "pass": self.passed,
            "standing": self.standing.value,
            "repeats": self.repeats,
        }


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes:
        name: as in `tacit reproduce PAPER/NAME`.
        title: one line.
        tasks: size ("quick" or "full") -> what has to run.
        rows: (size, values of those tasks in order) -> the rows.
        figures: the same -> SVG drawings by name, where people would rather look.
        partial: `rows` and `figures` take None for the value of a task that has not run yet; otherwise they are asked
            only when every task has.
        version: of what `tasks` compute, raised by hand when that changes: results of another version do not count.
    """

    name: str
    title: str
    tasks: Callable[[str], list[Task]]
    rows: Callable[[str, Sequence[Any]], list[Row]]
    figures: Callable[[str, Sequence[Any]], Figures] = lambda size, values: {}
    partial: bool = False
    version: int = 1

    def versioned(self, size: str) -> list[Task]:
        """The tasks, kept by this item's version and their inputs instead of by the library's source."""
        return [replace(task, version=str(self.version)) for task in self.tasks(size)]


VERDICTS = (
    "reproduced", "reproduced under another reading", "differs, because", "refuted, if", "not comparable", "ours",
)  # fmt: skip
"""What became of a table or figure; "ours" is of items that the paper does not have."""
_GO_ON = ("differs, because", "refuted, if")
KINDS = ("text", "derived", "authors' code", "figure read by eye")
"""Where a published number stands: in the text, computed from numbers of the text, in code, in a drawing."""


@dataclass(frozen=True)
class Verdict:
    """What became of an item.

    Attributes:
        word: one of `VERDICTS`.
        ours: what was measured, a template as of `Paper.reading`.
        why: cause, reading or assumptions, in the same line as the word; may be empty.
    """

    word: str
    ours: str
    why: str

    @property
    def expects_misses(self) -> bool:
        """Whether numbers of the item are said to lie beyond their tolerance, at least in the plain reading."""
        return self.word in (*_GO_ON, "reproduced under another reading")

    @property
    def words(self) -> str:
        """The verdict in one line."""
        if not self.why:
            return self.word
        return f"{self.word} {self.why}" if self.word in _GO_ON else f"{self.word}. {self.why}"


@dataclass(frozen=True)
class Summary:
    """What a paper says, and what became of each of its items.

    Attributes:
        says: the paper's own claims, in words.
        verdicts: name of an item -> what became of it.
        kinds: name of an item -> the `KINDS` of its published numbers.
    """

    says: str = ""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """A paper by its key, with everything of it that is recomputed, and what a reader should make of it.

    `reading` is a Jinja template whose numbers come from the stored rows: see `tacit_papers.page`.
    """

    key: str
    title: str
    items: tuple[Item, ...]
    reading: str = ""
    summary: Summary = field(default_factory=Summary)


def unpublished_rows(
    paper: str, item: str, prefix: str, value: Mapping[str, Any], columns: Mapping[str, tuple[str, Standing]]
) -> list[Row]:
    """Rows of numbers that a paper does not state, one for each column of a task's value.

    Args:
        paper: key of the paper.
        item: name of the item.
        prefix: first words of every quantity.
        value: value of a task, with a number for every column.
        columns: name in `value` -> the other words of the quantity, and its standing.
    """
    return [
        Row(paper, item, f"{prefix}{words}", None, value[name], standing=standing)
        for name, (words, standing) in columns.items()
    ]


def published(package: str) -> dict[str, Any]:
    """The published numbers and tolerances beside the code that recomputes them (published.toml)."""
    return tomllib.loads(resources.files(package).joinpath("published.toml").read_text(encoding="utf-8"))


def reading(package: str) -> str:
    """What a reader should make of the paper: the template reading.md beside the code."""
    return resources.files(package).joinpath("reading.md").read_text(encoding="utf-8")


def summary(package: str) -> Summary:
    """The summary beside the code (summary.toml), with the kinds of the published numbers (published.toml)."""
    table = tomllib.loads(resources.files(package).joinpath("summary.toml").read_text(encoding="utf-8"))
    kinds: dict[str, str] = {}
    for place in published(package)["places"]:
        for item in place["items"]:
            found = kinds.get(item, "").split("; ") if item in kinds else []
            kinds[item] = "; ".join(dict.fromkeys([*found, place["kind"]]))
    return Summary(table["says"], {name: Verdict(*each) for name, each in table["outcomes"].items()}, kinds)


def history(
    preset: str, seed: int, private: bool, settings: dict[str, Any], *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Test results ("test") after every epoch of a run, private or not; the noise is seeded, hence nothing is private.

    `settings` override those of the preset; the initial weights are drawn from `seed` too, unless they name init_seed.

    Args:
        preset: of `tacit train`.
        seed: of the noise and, unless `settings` name init_seed, of the weights.
        private: whether to train with privacy.
        settings: that override those of the preset.
        data_dir: folder of the data files.
    """
    from tacit.accounting import Ledger
    from tacit.runs import read_config
    from tacit.runs.builders import dataset_of
    from tacit.runs.methods import Job, method_of

    given = _with_tuples(settings)
    config = read_config(preset, {"init_seed": seed} | given | {"unsafe_seed": seed})
    method = method_of(config)
    with tempfile.TemporaryDirectory() as folder:
        dataset, ledger = dataset_of(config, data_dir), Ledger(relation=config.relation)
        job = Job(config, dataset, ledger, Path(folder), data_dir=data_dir)
        rows = method.train(job).history if private else method.nonprivate_baseline(job)[0]
    return {"test": [row["test"] for row in rows]}


def _with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, in sections too: tasks are kept as JSON, which has no tuples."""
    kinds = {list: tuple, dict: _with_tuples}
    return {key: kinds.get(type(value), lambda same: same)(value) for key, value in settings.items()}


def history_task(preset: str, seed: int, *, seconds: float, private: bool = True, **settings: Any) -> Task:
    """The task whose value is `history`.

    Args:
        preset: of `tacit train`.
        seed: of the noise and the weights.
        seconds: expected duration.
        private: whether to train with privacy.
        settings: that override those of the preset.
    """
    given = {"preset": preset, "seed": seed, "private": private, "settings": settings}
    return Task(f"{__name__}:history", given, seconds, reads_data=True)
