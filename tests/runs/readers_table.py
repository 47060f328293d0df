"""What each reader of a run says after each kind of change: python -m tests.runs.readers_table prints the table.

A cell is "refused FILE" (exit code 3, the file that was changed), "refused" (exit code 2, its form), "stated" (the word
that stands in place of every standing), "consistent" (the same after `tacit verify`), "no number" of the readers that
repeat none, or what was said instead, which a test fails on.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tacit.errors import Changed, InvalidInput
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import CARD, EXECUTION, SIGNATURE
from tests.runs.reissued import edit, reissue
from tests.runs.test_one_gate import CHANGES, ESCAPE, OTHER_KEY, READERS, SETTINGS, read_by, said

WITHOUT_NUMBERS = ("export", "resume")
"""Readers that repeat no number: a received run is copied, and a finished one has nothing to go on with."""


def unsigned(run: Path) -> None:
    """Take the signature away."""
    (run / SIGNATURE).unlink()


def huge(run: Path) -> None:
    """A number of 400 digits in the card, and ten million threads."""
    rows = json.loads((run / EXECUTION).read_text())["records"]
    edit(run / EXECUTION, records=[row | {"threads": 10**7} for row in rows])
    edit(run / CARD, records=10**400)
    reissue(run)


def deep(run: Path) -> None:
    """A list ten thousand deep in the card."""
    text = (run / CARD).read_text().replace('"records": 1438', f'"records": {"[" * 10_000}{"]" * 10_000}', 1)
    (run / CARD).write_text(text)
    (run / SIGNATURE).unlink()


def escape(run: Path) -> None:
    """A text that acts on a terminal."""
    edit(run / CARD, dataset=f"x{ESCAPE}")
    reissue(run)


def kinds(other: Path) -> dict[str, Callable[[Path], None]]:
    """Every kind of change; "foreign" is another key, which the caller sets."""
    own = {name: lambda run, change=change: change(run, other) for name, (_, change) in CHANGES.items()}
    more = {"unsigned": unsigned, "foreign": lambda run: None, "huge": huge, "deep": deep, "escape": escape}
    return own | more


def _listed(run: Path) -> str:
    row = next(
        row for row in json.loads(said("runs", "list", run.parent, "--json")[1])["runs"] if row["run"] == run.name
    )
    if row["state"] in ("changed", "unreadable"):
        return "refused"
    return str(row["standing"])


def _loaded(run: Path) -> str:
    from tacit.runs import load

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            load(run)
        except Changed as error:
            return f"refused {error.file}"
        except InvalidInput:
            return "refused"
    return "stated" if any("numbers are what its files say" in str(each.message) for each in told) else "loaded"


def _in_the_workbench(run: Path) -> str:
    from tacit.workbench.runs import list_runs

    rows = [row for row in list_runs(run.parent) if row["name"] == run.name]
    if not rows or rows[0]["origin"].startswith("changed"):
        return "refused"
    return "stated" if "stated" in rows[0]["guarantee"] else rows[0]["guarantee"]


def _by_command(name: str, run: Path) -> str:
    code, text = read_by(name, run)
    if code == 3:
        told = re.findall(r"^([\w.]+): (?!signed by this user's key)", text, re.MULTILINE)
        file = re.search(r"([\w.]+) must be", text)
        return f"refused {file.group(1) if file else told[-1] if told else ''}".strip()
    if code == 2:
        return "refused"
    if "stated" in text or "numbers are what its files say" in text:
        return "stated"
    if "consistent with its ledger" in text:
        return "consistent"
    return "no number" if name in WITHOUT_NUMBERS and "proven" not in text else f"exit code {code}"


def table(honest: Path, home: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(reader, what it says by kind of change), for every reader."""
    readers: dict[str, Callable[[Path], str]] = {
        name: lambda run, name=name: _by_command(name, run) for name in READERS
    }
    readers |= {"list": _listed, "load": _loaded, "workbench": _in_the_workbench, "open_run": _opened}
    for name, reader in readers.items():
        cells = {}
        for kind, change in kinds(honest / "other").items():
            place = home / name / kind.replace(" ", "-")
            run = shutil.copytree(honest / "run", place / "run")
            change(run)
            before = os.environ.get("TACIT_KEY")
            if kind == "foreign":
                os.environ["TACIT_KEY"] = OTHER_KEY
            try:
                cells[kind] = reader(run)
            finally:
                if kind == "foreign":
                    os.environ.pop("TACIT_KEY") if before is None else os.environ.update(TACIT_KEY=before)
            shutil.rmtree(place)
        yield name, cells


def _opened(run: Path) -> str:
    try:
        return open_run(run).word or "own"
    except Changed as error:
        return f"refused {error.file}"
    except InvalidInput:
        return "refused"


def main() -> None:
    """Train two small runs, change copies of them, and print the table as Markdown."""
    from tacit.runs import read_config, train

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with contextlib.redirect_stdout(io.StringIO()):
            for name, noise in (("run", 2.0), ("other", 3.0)):
                train(read_config("digits", SETTINGS | {"noise_multiplier": noise}), out=home / "honest" / name)
        head = ["reader", *kinds(home)]
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        for name, cells in table(home / "honest", home / "copies"):
            print(f"| {name} | " + " | ".join(cells.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
