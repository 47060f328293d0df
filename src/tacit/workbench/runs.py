"""The runs in a folder: listed, filtered, compared; what is left of every data set's budget."""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tacit import __version__, check
from tacit.accounting import Ledger, accountant
from tacit.budget.registry import find_registry
from tacit.budget.totals import left_in_words, total_table
from tacit.errors import Changed, Refused, TacitError
from tacit.reports import card_markdown, words
from tacit.runs.open_run import open_run
from tacit.serialization import json_table, json_text, write_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A folder's name that the workbench takes: no separators, no leading dot."""
FOLDER = ".workbench"
"""Folder of what the workbench keeps, beside the runs."""
ALPHA = np.concatenate([[0.0], np.geomspace(1e-4, 1e-2, 16), np.linspace(0.02, 1.0, 50)])
"""Type I errors of a drawn curve."""
MOST_COMPARED = 6
"""Runs of one picture: as many as there are line styles that a reader tells apart."""
SORTS = {
    "date": "date, newest first",
    "name": "name",
    "epsilon": "epsilon, smallest first",
    "test": "test result, highest first",
}
"""Orders of the list."""
_KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["name"],
    "epsilon": lambda row: row["epsilon"],
    "test": lambda row: math.inf if row["result"] is None else -row["result"],
}
LONGEST_NOTE = 300
PAGES = {"card.html": "text/html", "audit.html": "text/html", "statement.json": "application/json"}
"""Files of a run that the workbench serves."""


def folder_of(root: Path, name: str) -> Path:
    """The folder of run `name` directly in `root`; raises `InvalidInput` for every other name, links included."""
    found = root / name
    if not NAME.fullmatch(name) or found.is_symlink() or not (found / "card.json").is_file():
        raise check.fail("run", "the name of a run in the list", name)
    return found


def list_runs(root: Path, *, query: str = "", sort: str = "date") -> list[dict[str, Any]]:
    """Runs in `root` whose name, data set, model or note holds every word of `query`; `sort` is one of `SORTS`."""
    check.choice("sort", sort, SORTS)
    found = []
    for card in sorted(root.glob("*/card.json"), key=lambda path: path.lstat().st_mtime, reverse=True):
        try:
            row = run_row(root, card.parent.name)
        except (TacitError, OSError):
            continue
        text = " ".join(row[name] for name in ("name", "dataset", "model", "note")).lower()
        if all(word in text for word in query.lower().split()):
            found.append(row)
    # Sorting is stable: rows that are alike stay in the order of their dates.
    return found if sort == "date" else sorted(found, key=_KEYS[sort])


def run_row(root: Path, name: str) -> dict[str, Any]:
    """The run `name` as the list shows it, with this user's note; of a changed one, what was changed.

    `epsilon` and `result` are the numbers that rows are sorted by.
    """
    folder = folder_of(root, name)
    written, note = datetime.fromtimestamp((folder / "card.json").stat().st_mtime), _note_file(root, name)
    row = {"name": name, "date": f"{written:%Y-%m-%d %H:%M}", "note": note.read_text("utf-8") if note.is_file() else ""}
    row |= {"dataset": "", "model": "", "guarantee": "none", "test": "–", "epsilon": math.inf, "result": None}
    try:
        run = open_run(folder)
    except Changed as error:
        return row | {"origin": f"changed: {error.file} {error.why}"}
    card = run.own_card
    if best := run.best:
        epsilon, standing = float(best["epsilon"]), best["standing"]
        told = f"ε {words.leakage(epsilon, standing)}, δ {best['delta']:g}, {standing}"
        row |= {"epsilon": epsilon, "guarantee": told}
    test = card["metrics"].get("test")
    if isinstance(test, int | float):
        row |= {"result": float(test), "test": words.measured(test, str(card["measure"]))}
    named = {"dataset": str(card["dataset"]), "model": str(card["model"])}
    return row | named | {"origin": run.reserve or "signed by this user"}


def keep_note(root: Path, name: str, note: str) -> None:
    """Keep a note about run `name` beside the runs: the signed files of the run stay as they are."""
    folder_of(root, name)
    told = check.printable("note", " ".join(note.split()))
    check.that(len(told) <= LONGEST_NOTE, "note", f"of at most {LONGEST_NOTE} characters", f"{len(told)}")
    write_text(_note_file(root, name), told)


def _note_file(root: Path, name: str) -> Path:
    return root / FOLDER / "notes" / f"{name}.txt"


def pages_of(root: Path, name: str) -> list[str]:
    """Which of `PAGES` the run `name` has."""
    folder = folder_of(root, name)
    return [page for page in PAGES if (folder / page).is_file() and not (folder / page).is_symlink()]


def page_of(folder: Path, name: str) -> str:
    """The page `name` of the run; of a received run its card as plain text, with the word of its origin."""
    run = open_run(folder)
    path = folder / name
    check.that(not path.is_symlink() and path.is_file(), "page", "one that the run has", name)
    if not run.word or name == "statement.json":  # Whoever gets a statement checks its signature.
        return path.read_text(encoding="utf-8")
    from markupsafe import escape

    text = card_markdown(run.card, reserve=run.reserve)
    name = escape(folder.name)
    return (
        f'<!DOCTYPE html><html lang="en"><meta name="viewport" content="width=device-width"><title>{name}</title>'
        f'<main><h1>{name}</h1><pre style="white-space: pre-wrap; overflow-wrap: anywhere">{escape(text)}</pre></main>'
    )


def curve_of(folder: Path) -> np.ndarray | None:
    """The run's certified type II errors at `ALPHA`, by `pld`; None where that does not apply.

    A curve takes a second and is kept beside the runs, by the hash of its ledger.
    """
    ledger = open_run(folder).ledger
    kept = folder.parent / FOLDER / "curves" / f"{ledger.hash}.json"
    table = json_table("curve", kept) if kept.is_file() else {}
    if table.get("version") != __version__:
        table = {"version": __version__, "beta": _curve(ledger)}
        write_text(kept, json_text(table))
    return None if table["beta"] is None else np.array(table["beta"])


_drawing = Lock()


def _curve(ledger: Ledger) -> list[float] | None:
    try:
        return accountant("pld")(ledger).curve.beta(ALPHA).tolist()
    except Refused:
        return None


def draw_ahead(root: Path, names: Sequence[str]) -> None:
    """Compute the curves of these runs, so that they are there once somebody compares; one thread at a time."""
    if _drawing.acquire(blocking=False):
        try:
            for name in names:
                with suppress(TacitError, OSError):
                    curve_of(folder_of(root, name))
        finally:
            _drawing.release()


def budgets() -> list[dict[str, Any]]:
    """What is spent and left of every data set of the registry; empty where the project has none."""
    registry = find_registry()
    if registry is None:
        return []
    known = [registry.dataset(name).known for name in registry.names]
    left = [[left_in_words(each, cap) for cap in each.caps.values()] or ["No cap is set."] for each in known]
    return [total_table(each) | {"left": told} for each, told in zip(known, left, strict=True)]


def points_of(beta: np.ndarray) -> str:
    """The curve of type II errors at `ALPHA` as points of the picture, whose axes are from (44, 316) to (348, 12)."""
    return " ".join(f"{44 + 304 * a:.1f},{12 + 304 * (1 - b):.1f}" for a, b in zip(ALPHA, beta, strict=True))
