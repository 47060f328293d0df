"""The runs in a folder: listed, filtered, compared; what is left of every data set's budget."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.budget.export import totals
from tacit.budget.registry import find_registry
from tacit.budget.totals import left_in_words
from tacit.errors import Refused, TacitError
from tacit.reports import words
from tacit.reports.exports import check_card
from tacit.runs.run_signature import origin_of_run
from tacit.serialization import json_table
from tacit.signing import Origin
from tacit.standing import Standing

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A folder's name that the workbench takes: no separators, no leading dot."""
ALPHA = np.concatenate([[0.0], np.geomspace(1e-4, 1e-2, 16), np.linspace(0.02, 1.0, 50)])
"""Type I errors of a drawn curve."""
MOST_COMPARED = 6
"""Runs of one picture: as many as there are line styles that a reader tells apart."""


@dataclass(frozen=True)
class RunRow:
    """One run as the list shows it.

    Attributes:
        name: of its folder.
        dataset: as its card says.
        model: as its card says.
        guarantee: epsilon, delta and standing in words.
        test: its test result in words.
        origin: whether this user's key signed the card as it is.
    """

    name: str
    dataset: str
    model: str
    guarantee: str
    test: str
    origin: str


def folder_of(root: Path, name: str) -> Path:
    """The folder of run `name` directly in `root`; raises `InvalidInput` for every other name, links included."""
    found = root / name
    if not NAME.fullmatch(name) or found.is_symlink() or not (found / "card.json").is_file():
        raise check.fail("run", "the name of a run in the list", name)
    return found


def list_runs(root: Path, *, query: str = "") -> list[RunRow]:
    """Runs in `root`, newest first, whose name, data set or model holds every word of `query`."""
    if not root.is_dir():
        return []
    found = []
    for folder in sorted(root.iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True):
        try:
            row = _row(folder_of(root, folder.name))
        except (TacitError, OSError):
            continue
        text = f"{row.name} {row.dataset} {row.model}".lower()
        if all(word in text for word in query.lower().split()):
            found.append(row)
    return found


def _row(folder: Path) -> RunRow:
    card = json_table("card.json", folder / "card.json")
    check_card(card)
    order = [standing.value for standing in Standing]

    def rank(row: dict[str, Any]) -> tuple[int, float]:
        standing = row.get("standing")
        return order.index(standing) if standing in order else len(order), _number(row.get("epsilon"))

    best = min(card["guarantees"], key=rank, default=None)
    guarantee = "none"
    if best is not None:
        guarantee = (
            f"ε {words.upward(_number(best.get('epsilon')))}, δ {_number(best.get('delta')):g}, {best.get('standing')}"
        )
    origin = origin_of_run(folder).of("card.json")
    test = card["metrics"].get("test")
    return RunRow(
        folder.name,
        str(card.get("dataset", "")),
        str(card.get("model", "")),
        guarantee,
        words.measured(test, str(card.get("measure"))) if isinstance(test, int | float) else "–",
        "signed by this user" if origin is Origin.OWN else origin.value,
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("inf")


def curve_of(folder: Path) -> tuple[Ledger, np.ndarray] | None:
    """The run's ledger and its certified type II errors at `ALPHA`, by `pld`; None where that does not apply."""
    path = folder / "ledger.json"
    return _curve(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _curve(path: Path, _: int) -> tuple[Ledger, np.ndarray] | None:
    ledger = Ledger.load(path)
    try:
        return ledger, accountant("pld")(ledger).curve.beta(ALPHA)
    except Refused:
        return None


def budgets() -> list[dict[str, Any]]:
    """What is spent and left of every data set of the registry; empty where the project has none."""
    registry = find_registry()
    if registry is None:
        return []
    found = []
    for name in registry.names:
        dataset = registry.dataset(name)
        table = totals(dataset)
        left = [left_in_words(dataset.known, cap) for cap in dataset.caps]
        found.append(table | {"left": left or ["No cap is set."]})
    return found
