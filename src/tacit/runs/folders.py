"""Folders of runs: which there are, what each says of itself, and what may be cleaned away.

`write_statement`: the signed privacy statement of a finished run of this user.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import Changed, TacitError
from tacit.locking import locked
from tacit.runs.open_run import OpenedRun, ledger_at, open_run
from tacit.runs.run_signature import CONFIG, MODEL, SIGNATURE, SIGNED, STATEMENT, append, digest_of
from tacit.serialization import write_bytes
from tacit.statement import Subject
from tacit.statement.document import read_bounded
from tacit.statement.subject import plain_name
from tacit.statement.writing import signed_statement

_NUMBERS = ("epsilon", "delta", "standing")
_DELTA = 1e-5  # of the statement of a ledger


def run_row(run: OpenedRun, card: Mapping[str, Any]) -> dict[str, Any]:
    """What a list shows of a run: test result, and the smallest epsilon of the best standing.

    Args:
        run: that is shown.
        card: `own_card` of it, or `card` where all its numbers are recomputed.
    """
    told = {"test": (card.get("metrics") or {}).get("test"), **{name: run.best.get(name) for name in _NUMBERS}}
    named = {"run": run.folder.name, "state": run.state, "dataset": card.get("dataset"), "model": card.get("model")}
    return named | told | {"signature": run.seal.signature.value}


def _listed(path: Path) -> dict[str, Any]:
    """The row of a list, which has one number of each run, and a line for one that is refused."""
    try:
        run = open_run(path)
        return run_row(run, run.own_card)
    except Changed as error:
        state, why = "changed", f"{error.file} {error.why}"
    except TacitError as error:
        state, why = "unreadable", str(error)[:200]
    empty = dict.fromkeys(("dataset", "model", "test", *_NUMBERS))
    return {"run": path.name, "state": state} | empty | {"signature": why}


def runs_in(home: Path) -> dict[Path, dict[str, Any]]:
    """The rows of the runs in the folders of `home`, by name; `home` itself where it is one."""
    check.that(home.is_dir(), "folder", "one that exists", str(home), "Runs go to runs/ unless --out says otherwise.")
    return {path: _listed(path) for path in _folders(home)}


def _folders(home: Path) -> Iterator[Path]:
    if (home / CONFIG).is_file():
        yield home
    yield from sorted(path for path in home.iterdir() if (path / CONFIG).is_file() and not path.is_symlink())


def compared(runs: Sequence[OpenedRun]) -> list[dict[str, Any]]:
    """One row for each run: what a list shows, metrics, and the settings in which the runs differ.

    Raises `InvalidInput` for fewer than two runs, or one that is not finished.
    """
    check.that(len(runs) >= 2, "RUNS", "two at least", len(runs))
    for run in runs:
        _check_finished(run)
    settings, metrics = ([run.card.get(part) or {} for run in runs] for part in ("settings", "metrics"))
    names = dict.fromkeys(name for each in settings for name in each)
    differ = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    measured = dict.fromkeys(name for each in metrics for name in each if name != "test")
    rows = []
    for run, each, setting in zip(runs, metrics, settings, strict=True):
        told = {name: each.get(name) for name in measured}
        rows.append(run_row(run, run.card) | told | {"settings": {name: setting.get(name) for name in differ}})
    return rows


def _check_finished(run: OpenedRun) -> None:
    check.that(run.state == "finished", "RUN", "a finished run", str(run.folder), f"This one is {run.state}.")


def export_run(run: OpenedRun, out: Path) -> list[Path]:
    """Copies of the model, its preprocessing, card and ledger in the new folder `out`, with their signature.

    Raises `InvalidInput` where the run is not finished, or `out` is there already.
    """
    _check_finished(run)
    _ = run.numbers  # That of a card which its ledger does not give is refused.
    check.that(not out.exists(), "out", "a folder that is not there yet", str(out))
    out.mkdir(parents=True)
    names = [name for name in (*SIGNED, SIGNATURE) if (run.folder / name).is_file()]
    return [Path(shutil.copyfile(run.folder / name, out / name)) for name in names]


def clean(path: Path) -> None:
    """Remove the folder of a run that released nothing; raises `InvalidInput` where it is in use or did since."""
    with locked("RUN", path):
        check.that(open_run(path).state == "begun", "RUN", "a run that released nothing", str(path))
        for name in (CONFIG, SIGNATURE):
            (path / name).unlink(missing_ok=True)
    if all(each.name.endswith(".lock") for each in path.iterdir()):
        shutil.rmtree(path)


def write_statement(
    source: Path,
    out: Path | None = None,
    *,
    about: Mapping[str, Any] | None = None,
    deltas: Sequence[float] = (),
    model: Path | None = None,
) -> Path:
    """Write the statement of a run or of a ledger, and return its path; a later one takes the next number.

    Args:
        source: folder of a finished run of this user, whole; or the file of a ledger, such as that of an estimator's
            fit, as `Ledger.save` writes it, or a SPEC of mechanisms.
        out: file to write; `statement.json` in the folder, or beside the ledger, by default.
        about: what is stated of its subject, by the names of `tacit.statement.Subject`, in place of what the card of a
            run says; of a ledger, the data set among them.
        deltas: at which epsilon is bounded besides the delta of the card; 1e-5 by default for a ledger.
        model: of a ledger: file of the model, whose digest is stated.

    Raises:
        InvalidInput: the run is not finished, it or the ledger came from somebody else, or no data set is named.
        Changed: a file of the run was changed.
    """
    if source.is_dir():
        run = open_run(source)
        if run.word or not run.own_card:
            got = "one that was received" if run.word else "one that is not finished"
            raise check.fail("RUN", "a finished run of this user", got, "Its author writes its statement.")
        card, ledger, path = run.own_card, run.ledger, out or source / STATEMENT
        stated = {"dataset": plain_name(card["dataset"]), **(card.get("about") or {}), **(about or {})}
        given = {"audits": card["audits"], "checked": card.get("checked"), "model": run.seal.found.get(MODEL, "")}
        given["deltas"] = sorted({float(run.best["delta"]), *deltas})
        # Two runs of one configuration have the same ledger.
        kind, of = "run", f"{ledger.hash} {given['model']}"
    else:
        ledger, word = ledger_at(source)
        path, stated = out or source.with_name(STATEMENT), about or {}
        check.that(not word, "LEDGER", "that of a fit of this user", word, "Its author writes its statement.")
        if not stated.get("dataset"):
            raise check.fail("dataset", "named for a ledger, which does not know it", None, "Add --dataset NAME.")
        given = {"deltas": sorted(set(deltas)) or (_DELTA,), "model": "" if model is None else digest_of(model)}
        check.that(model is None or given["model"], "model", "a file", str(model))
        kind, of = "ledger", ledger.hash
    earlier = read_bounded(path) if path.exists() else b""
    content = signed_statement(kind, of, Subject(**stated), ledger, earlier=earlier, **given)
    if path.resolve() == (source / STATEMENT).resolve():
        append(source, "statement", {STATEMENT: content})
    else:
        write_bytes(path, content)
    return path
