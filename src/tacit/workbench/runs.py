"""The runs in a folder: listed, filtered, compared; what is left of every data set's budget.

Trade-off curves as SVG, drawn on the server in a millisecond; colours follow the page.

Trainings and audits that the workbench starts: a process of their own each, watched through a file.

`main(ROOT, JOB)` is the process of one job, which writes its progress into a file.
"""

from __future__ import annotations

import html
import os
import re
import secrets
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.budget.export import totals
from tacit.budget.registry import find_registry
from tacit.budget.totals import left_in_words
from tacit.errors import Changed, Refused, TacitError
from tacit.reports import words
from tacit.reports.exports import card_markdown
from tacit.runs import preset_names, read_config
from tacit.runs.open_run import open_run
from tacit.serialization import json_table, json_text, write_text

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
        origin: whether this user's key signed the run as it is, or why nothing of it is read.
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
        except Changed as error:
            row = RunRow(folder.name, "", "", "none", "–", f"changed: {error.file} {error.why}")
        except (TacitError, OSError):
            continue
        text = f"{row.name} {row.dataset} {row.model}".lower()
        if all(word in text for word in query.lower().split()):
            found.append(row)
    return found


def _row(folder: Path) -> RunRow:
    run = open_run(folder)
    best, card = run.best, run.own_card
    guarantee = "none"
    if best:
        bound = words.leakage(float(best["epsilon"]), best["standing"])
        guarantee = f"ε {bound}, δ {best['delta']:g}, {best['standing']}"
    test = card["metrics"].get("test")
    return RunRow(
        folder.name,
        str(card["dataset"]),
        str(card["model"]),
        guarantee,
        words.measured(test, str(card["measure"])) if isinstance(test, int | float) else "–",
        run.reserve or "signed by this user",
    )


def page_of(folder: Path, name: str) -> str:
    """The page `name` of the run; of a received run its card as plain text, with the word of its origin."""
    run = open_run(folder)
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise check.fail("page", "one that the run has", name)
    if not run.word:
        return path.read_text(encoding="utf-8")
    from markupsafe import escape

    text = card_markdown(run.card, reserve=run.reserve)
    return f"<!DOCTYPE html><title>{escape(folder.name)}</title><pre>{escape(text)}</pre>"


def curve_of(folder: Path) -> tuple[Ledger, np.ndarray] | None:
    """The run's ledger and its certified type II errors at `ALPHA`, by `pld`; None where that does not apply."""
    ledger = open_run(folder).ledger
    curve = _curve(ledger.hash, ledger)
    return None if curve is None else (ledger, curve)


_CURVES: dict[str, np.ndarray | None] = {}  # by the hash of the ledger


def _curve(hash: str, ledger: Ledger) -> np.ndarray | None:
    if hash not in _CURVES:
        try:
            _CURVES[hash] = accountant("pld")(ledger).curve.beta(ALPHA)
        except Refused:
            _CURVES[hash] = None
    return _CURVES[hash]


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


_SIZE, _MARGIN = 360, 44
DASHES = ("", "8 4", "2 3", "10 3 2 3", "5 5", "1 5")
"""Dash pattern of each curve, so that none is told by its colour alone."""


def tradeoff_svg(curves: Sequence[tuple[str, np.ndarray]]) -> str:
    """Type I against type II errors; `curves` are (label, type II errors at `ALPHA`), drawn with `DASHES` in order."""
    parts = [_axes()]
    for index, (_, beta) in enumerate(curves):
        points = " ".join(f"{_x(a):.1f},{_y(b):.1f}" for a, b in zip(ALPHA, beta, strict=True))
        dash = DASHES[index % len(DASHES)]
        parts.append(
            f'<polyline class="curve curve-{index % len(DASHES)}" points="{points}" stroke-dasharray="{dash}"/>'
        )
    names = ", ".join(label for label, _ in curves)
    told = html.escape(f"Certified trade-off curves of {names}: type I against type II error.")
    return f'<svg viewBox="0 0 {_SIZE} {_SIZE}" role="img" aria-label="{told}">{"".join(parts)}</svg>'


def swatch_svg(index: int) -> str:
    """The line of curve `index`, for a legend."""
    dash = DASHES[index % len(DASHES)]
    line = f'<polyline class="curve curve-{index % len(DASHES)}" points="0,5 40,5" stroke-dasharray="{dash}"/>'
    return f'<svg class="swatch" viewBox="0 0 40 10" aria-hidden="true">{line}</svg>'


def _axes() -> str:
    low, high = _MARGIN, _SIZE - 12
    foot = _SIZE - low
    lines = f'<path class="axis" d="M{low} 12V{foot}H{high}"/><path class="guess" d="M{low} 12L{high} {foot}"/>'
    marks = []
    for value in (0, 0.5, 1):
        marks.append(f'<text x="{_x(value):.0f}" y="{_SIZE - low + 16}" text-anchor="middle">{value:g}</text>')
        marks.append(f'<text x="{low - 6}" y="{_y(value) + 4:.0f}" text-anchor="end">{value:g}</text>')
    across = f'<text x="{(low + high) / 2}" y="{_SIZE - 8}" text-anchor="middle">type I error (false alarms)</text>'
    middle = (_SIZE - low) / 2
    turned = f'text-anchor="middle" transform="rotate(-90 12 {middle})"'
    up = f'<text x="12" y="{middle}" {turned}>type II error (missed)</text>'
    return lines + "".join(marks) + across + up


def _x(alpha: float) -> float:
    return _MARGIN + float(alpha) * (_SIZE - 12 - _MARGIN)


def _y(beta: float) -> float:
    return 12 + (1 - float(beta)) * (_SIZE - _MARGIN - 12)


FOLDER = ".workbench"
"""Folder of the jobs' files, beside the runs."""
_ID = re.compile(r"[0-9a-f]{16}")
_PROCESS = "import sys; from tacit.workbench.runs import main; sys.exit(main(sys.argv[1], sys.argv[2]))"
_SETTINGS = ("epsilon", "noise_multiplier", "epochs")


def start(root: Path, form: Mapping[str, str]) -> str:
    """Start the job that the form asks for; returns its identifier.

    Presets and runs of the list alone are taken: a form names no file and no code.
    """
    kind = check.choice("kind", form.get("kind"), ("train", "audit"))
    number = secrets.token_hex(8)
    if kind == "audit":
        task = {"kind": kind, "run": folder_of(root, form.get("run", "")).name}
    else:
        preset = check.choice("preset", form.get("preset"), preset_names())
        given = {name: check.read_real(name, form[name].strip()) for name in _SETTINGS if form.get(name, "").strip()}
        read_config(preset, given)
        task = {
            "kind": kind,
            "preset": preset,
            "settings": given,
            "run": f"{preset}-{time.strftime('%Y%m%d-%H%M%S')}-{number[:4]}",
        }
    home = root / FOLDER
    home.mkdir(parents=True, exist_ok=True)
    write_text(home / f"{number}.json", json_text(task))
    with (home / f"{number}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(root.resolve()), number],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _children[number] = process
    return number


_children: dict[str, subprocess.Popen[bytes]] = {}  # so that a finished child is waited for


def state(root: Path, number: str) -> dict[str, Any]:
    """What job `number` does: task, stage, done, total and status (running, finished, failed or stopped)."""
    if not _ID.fullmatch(number) or not (root / FOLDER / f"{number}.json").is_file():
        raise check.fail("job", "one of the list", number[:20])
    home = root / FOLDER
    found: dict[str, Any] = {"job": number, "status": "running", "stage": "starting", "done": 0, "total": 0, "says": ""}
    found |= json_table("job", home / f"{number}.json")
    progress = home / f"{number}.state"
    if progress.is_file():
        found |= json_table("job", progress)
    if found["status"] == "running" and not _alive(number, found.get("process")):
        found["status"] = "stopped"
    return found


def list_jobs(root: Path) -> list[dict[str, Any]]:
    """The latest twenty jobs, of every server on this folder."""
    paths = sorted((root / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    found = []
    for path in paths[:20]:
        try:
            found.append(state(root, path.stem))
        except TacitError:
            continue
    return found


def _alive(number: str, process: object) -> bool:
    child = _children.get(number)
    if child is not None:
        return child.poll() is None
    if not isinstance(process, int):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(folder: str | Path, number: str) -> int:
    """Run the job; exit code 0, or 1 where it failed, with its sentence in the file."""
    root = Path(folder)
    home = root / FOLDER
    task = json_table("job", home / f"{number}.json")

    def tell(stage: str, done: int, total: int, status: str = "running", says: str = "") -> None:
        table: dict[str, Any] = {"stage": stage, "done": done, "total": total, "status": status, "says": says}
        write_text(home / f"{number}.state", json_text(table | {"process": os.getpid()}))

    tell("starting", 0, 0)
    try:
        says = _train(root, task, tell) if task["kind"] == "train" else _audit(root, task, tell)
    except TacitError as error:
        tell("failed", 0, 0, "failed", " ".join(str(error).split()))
        return 1
    except Exception as error:
        tell("failed", 0, 0, "failed", f"tacit failed: {type(error).__name__}.")
        if check.values_shown():
            raise
        # The log is kept, and the message of an unforeseen error may quote the data.
        places = [f"{place.filename}:{place.lineno}" for place in traceback.extract_tb(error.__traceback__)]
        print(f"tacit failed: {type(error).__name__} at {' < '.join(reversed(places))}", file=sys.stderr)
        return 1
    tell("finished", 1, 1, "finished", says)
    return 0


def _train(root: Path, task: dict[str, Any], tell: Any) -> str:
    from tacit.runs import read_config, train

    train(read_config(task["preset"], task["settings"]), out=root / task["run"], on_progress=tell)
    return f"run {task['run']}"


def _audit(root: Path, task: dict[str, Any], tell: Any) -> str:
    from tacit.runs import audit_run
    from tacit.runs.audits import keep_audit

    report = audit_run(root / task["run"], on_progress=tell)
    keep_audit(report, root / task["run"], title=task["run"])
    return "the claim is refuted" if report.refuted else "nothing refutes the claim at 99.9 %"
