"""Folders of runs: which there are, what each says of itself, and what may be cleaned away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput, TacitError
from tacit.locking import locked
from tacit.runs.methods.base import CHECKPOINT, MODEL
from tacit.runs.run_signature import PREPROCESSING, SIGNATURE, SIGNED, origin_of_run
from tacit.serialization import json_table
from tacit.signing import Origin
from tacit.standing import Standing

EXPORTED = (MODEL, PREPROCESSING, "card.json", "card.html", "ledger.json", "config.json", SIGNATURE)
"""What an export copies: the model with its preprocessing, and what it cost."""


@dataclass(frozen=True)
class RunFolder:
    """One folder that holds a run.

    Attributes:
        path: of the folder.
        state: "finished", "stopped" (it can go on), "begun" (nothing was released) or "unreadable".
        origin: what its signature says.
        card: content of card.json; empty unless the run is finished.
    """

    path: Path
    state: str
    origin: str
    card: dict[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """What a list shows: test result, and the smallest epsilon of the best standing."""
        best = best_guarantee(self.card)
        return {
            "run": self.path.name,
            "state": self.state,
            "dataset": self.card.get("dataset"),
            "model": self.card.get("model"),
            "test": (self.card.get("metrics") or {}).get("test"),
            "epsilon": best.get("epsilon"),
            "delta": best.get("delta"),
            "standing": best.get("standing"),
            "signature": self.origin,
        }


def best_guarantee(card: dict[str, Any]) -> dict[str, Any]:
    """The guarantee of the best standing with the smallest epsilon on a card; empty where there is none."""
    order = [standing.value for standing in Standing]
    rows = [row for row in card.get("guarantees") or [] if isinstance(row, dict) and row.get("standing") in order]
    return min(rows, key=lambda row: (order.index(row["standing"]), float(row.get("epsilon", "inf"))), default={})


def run_folder(path: Path) -> RunFolder:
    """The run in the folder `path`; raises `InvalidInput` where it holds none."""
    if not (path / "config.json").is_file():
        raise check.fail("RUN", "the folder of a `tacit train`, with config.json in it", str(path))
    try:
        found = origin_of_run(path)
        origin = "changed since it was signed" if found.changed() else found.signature.value
        if (path / "card.json").is_file():
            return RunFolder(path, "finished", origin, json_table("card.json", path / "card.json"))
        begun = (path / "ledger.json").is_file() or (path / CHECKPOINT).is_file()
        return RunFolder(path, "stopped" if begun else "begun", origin, {})
    except (TacitError, KeyError, TypeError, ValueError):
        return RunFolder(path, "unreadable", "", {})


def runs_in(home: Path) -> list[RunFolder]:
    """The runs in the folders of `home`, by name; `home` itself where it is one."""
    if not home.is_dir():
        raise check.fail("folder", "one that exists", str(home), "Runs go to runs/ unless --out says otherwise.")
    return [run_folder(path) for path in _folders(home)]


def _folders(home: Path) -> Iterator[Path]:
    if (home / "config.json").is_file():
        yield home
    yield from sorted(path for path in home.iterdir() if (path / "config.json").is_file() and not path.is_symlink())


def compared(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """One row for each run: what a list shows, metrics, and the settings in which the runs differ.

    Raises `InvalidInput` for fewer than two runs, or one that is not finished.
    """
    if len(runs) < 2:
        raise check.fail("RUNS", "two at least", len(runs))
    for run in runs:
        if run.state != "finished":
            raise check.fail("RUN", "a finished run", str(run.path), f"This one is {run.state}.")
    settings = [dict(run.card.get("settings") or {}) for run in runs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    differ = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    metrics = [dict(run.card.get("metrics") or {}) for run in runs]
    measured = list(dict.fromkeys(name for each in metrics for name in each if name != "test"))
    return [
        run.row
        | {name: each.get(name) for name in measured}
        | {"settings": {name: setting.get(name) for name in differ}}
        for run, each, setting in zip(runs, metrics, settings, strict=True)
    ]


def export_run(run: RunFolder, out: Path) -> list[Path]:
    """Copies of the model, its preprocessing, card and ledger in the new folder `out`, with their signature.

    Raises `InvalidInput` where the run is not finished, was changed, or `out` is there already.
    """
    if run.state != "finished":
        raise check.fail("RUN", "a finished run", str(run.path), f"This one is {run.state}.")
    changed = origin_of_run(run.path).changed()
    if changed:
        raise InvalidInput(f"RUN must be as the run wrote it; got {', '.join(changed)} changed. See `tacit verify`.")
    if out.exists():
        raise check.fail("out", "a folder that is not there yet", str(out))
    out.mkdir(parents=True)
    names = [name for name in dict.fromkeys((*EXPORTED, *SIGNED)) if (run.path / name).is_file()]
    for name in names:
        shutil.copyfile(run.path / name, out / name)
    return [out / name for name in names]


def cleanable(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs that released nothing: begun, without ledger or checkpoint.

    A stopped run stays, because its ledger says what was spent; so does a finished one.
    """
    return [run for run in runs if run.state == "begun" and run.origin != Origin.EDITED.value]


def clean(run: RunFolder) -> None:
    """Remove the folder of a run that released nothing; raises `InvalidInput` where it is in use or did since."""
    with locked("RUN", run.path):
        if run_folder(run.path).state != "begun":
            raise check.fail("RUN", "a run that released nothing", str(run.path))
        for name in ("config.json", SIGNATURE):
            (run.path / name).unlink(missing_ok=True)
    left = [path for path in run.path.iterdir() if not path.name.endswith(".lock")]
    if not left:
        shutil.rmtree(run.path)
