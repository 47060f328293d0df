"""Trainings and audits that the workbench starts: a process of their own each, watched through a file.

`main(ROOT, JOB)` is the process of one job, which writes its progress into a file and stops where it finds another.
"""

import os
import re
import secrets
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import TacitError
from tacit.runs import preset_names, read_config
from tacit.runs.run_signature import CONFIG
from tacit.serialization import json_table, json_text, write_text
from tacit.workbench.runs import FOLDER, folder_of

_ID = re.compile(r"[0-9a-f]{16}")
_PROCESS = "import sys; from tacit.workbench.jobs import main; sys.exit(main(sys.argv[1], sys.argv[2]))"
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
        name = f"{preset}-{time.strftime('%Y%m%d-%H%M%S')}-{number[:4]}"
        task = {"kind": kind, "preset": preset, "settings": given, "run": name}
    return _launch(root, task, number)


def start_table(root: Path, configuration: Path, name: str) -> str:
    """Start `tacit train` on a configuration that the form of a table wrote; the run is called `name`."""
    task = {"kind": "table", "preset": str(configuration), "settings": {}, "run": name}
    return _launch(root, task, secrets.token_hex(8))


def resume(root: Path, number: str) -> None:
    """Go on with job `number`, which was stopped or killed: from its checkpoint, or anew where it wrote none."""
    job = state(root, number)
    if job["status"] != "stopped" or job["kind"] == "audit":
        raise check.fail("job", "a training that was stopped", f"{job['kind']}, {job['status']}")
    for ending in ("stop", "state"):
        (_home(root, number) / f"{number}.{ending}").unlink(missing_ok=True)
    _launch(root, json_table("job", _home(root, number) / f"{number}.json"), number)


def _launch(root: Path, task: Mapping[str, Any], number: str) -> str:
    home = root / FOLDER
    home.mkdir(parents=True, exist_ok=True)
    write_text(home / f"{number}.json", json_text(task))
    command = [sys.executable, "-c", _PROCESS, str(root.resolve()), number]
    with (home / f"{number}.log").open("wb") as log:
        given: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
        _children[number] = subprocess.Popen(command, **given)
    return number


_children: dict[str, subprocess.Popen[Any]] = {}  # so that a finished child is waited for


def state(root: Path, number: str) -> dict[str, Any]:
    """What job `number` does: task, stage, done, total and status (running, finished, failed or stopped)."""
    home = _home(root, number)
    found: dict[str, Any] = {"job": number, "status": "running", "stage": "starting", "done": 0, "total": 0, "says": ""}
    found |= json_table("job", home / f"{number}.json")
    progress = home / f"{number}.state"
    if progress.is_file():
        found |= json_table("job", progress)
    if found["status"] == "running" and not _alive(number, found.get("process")):
        found["status"] = "stopped"
    return found


def stop(root: Path, number: str) -> None:
    """Ask job `number` to stop; it does so at its next step, keeps its checkpoint and says how to go on."""
    write_text(_home(root, number) / f"{number}.stop", "")


def _home(root: Path, number: str) -> Path:
    if not _ID.fullmatch(number) or not (root / FOLDER / f"{number}.json").is_file():
        raise check.fail("job", "one of the list", number[:20])
    return root / FOLDER


def list_jobs(root: Path) -> list[dict[str, Any]]:
    """The latest twenty jobs, of every server on this folder."""
    paths = sorted((root / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    found = []
    for path in paths[:20]:
        with suppress(TacitError):
            found.append(state(root, path.stem))
    return found


def _alive(number: str, process: object) -> bool:
    child = _children.get(number)
    if child is not None:
        return child.poll() is None
    try:
        if isinstance(process, int):
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # It is somebody else's, and alive.
        return True
    return True


def main(folder: str | Path, number: str) -> int:
    """Run the job; exit code 0, or 1 where it failed, with its sentence in the file."""
    root = Path(folder)
    home = root / FOLDER
    task = json_table("job", home / f"{number}.json")

    def tell(stage: str, done: int, total: int, status: str = "running", says: str = "") -> None:
        if status == "running" and (home / f"{number}.stop").exists():
            raise KeyboardInterrupt
        table: dict[str, Any] = {"stage": stage, "done": done, "total": total, "status": status, "says": says}
        write_text(home / f"{number}.state", json_text(table | {"process": os.getpid()}))

    try:
        tell("starting", 0, 0)
        with check.speaking_to("browser"):
            says = _KINDS[task["kind"]](root, task, tell)
        tell("finished", 1, 1, "finished", says)
        return 0
    except KeyboardInterrupt as error:
        tell("stopped", 0, 0, "stopped", " ".join(str(error).split()) or "stopped before anything was released")
    except TacitError as error:
        tell("failed", 0, 0, "failed", " ".join(str(error).split()))
    except Exception as error:
        tell("failed", 0, 0, "failed", f"tacit failed: {type(error).__name__}.")
        if check.values_shown():
            raise
        # The log is kept, and the message of an unforeseen error may quote the data.
        places = [f"{place.filename}:{place.lineno}" for place in traceback.extract_tb(error.__traceback__)]
        print(f"tacit failed: {type(error).__name__} at {' < '.join(reversed(places))}", file=sys.stderr)
    return 1


def _train(root: Path, task: dict[str, Any], tell: Any) -> str:
    from tacit.runs import resume, train

    folder = root / task["run"]
    if (folder / CONFIG).exists():
        resume(folder, on_progress=tell)
    else:
        train(read_config(task["preset"], task["settings"]), out=folder, on_progress=tell)
    return f"run {task['run']}"


def _audit(root: Path, task: dict[str, Any], tell: Any) -> str:
    from tacit.reports import audit_files
    from tacit.runs import audit_run
    from tacit.runs.run_signature import append

    report = audit_run(root / task["run"], on_progress=tell)
    append(root / task["run"], "audit", audit_files(report, title=task["run"]))
    return "the claim is refuted" if report.refuted else "nothing refutes the claim at 99.9 %"


_KINDS = {"train": _train, "table": _train, "audit": _audit}
