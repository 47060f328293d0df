"""`python -m tacit.workbench.worker ROOT JOB`: one job of the workbench, which writes its progress into a file."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import TacitError
from tacit.serialization import json_table, json_text, write_text
from tacit.workbench.jobs import FOLDER


def main(root: Path, number: str) -> int:
    """Run the job; exit code 0, or 1 where it failed, with its sentence in the file."""
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
