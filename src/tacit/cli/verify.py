"""`tacit verify`: where the files of a run came from, and whether they are as they were written."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.serialization import json_text


def command(
    path: Annotated[Path, typer.Argument(help="Folder of a run, or a ledger.json.", metavar="RUN|SPEC")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What the signatures of RUN or SPEC say; exit code 3 where a file was changed or an older one was put back."""
    rows, of = _of_run(path) if path.is_dir() else _of_ledger(path)
    if json:
        print(json_text({"of": of, "files": [{"file": name, "is": found} for name, found, _ in rows]}))
    else:
        for name, found, _ in rows:
            print(f"{name}: {found}")
        meaning = {
            "run": "Its numbers are those of a run: this user's key signed what the run wrote.",
            "spec": "Its numbers are what the files say: nothing shows that a run gave them.",
        }
        print(meaning[of])
        if of == "run" and (said := _rounding(path)):
            print(said)
    if any(refused for *_, refused in rows):
        raise typer.Exit(3)


def _of_run(folder: Path) -> tuple[list[tuple[str, str, bool]], str]:
    from tacit import check
    from tacit.runs.run_signature import SIGNATURE, SIGNED, origin_of_run
    from tacit.signing import Origin

    if not (folder / "config.json").is_file():
        raise check.fail("RUN", "the folder of a `tacit train`, with config.json in it", str(folder))
    origin = origin_of_run(folder)
    rows = [(SIGNATURE, origin.signature.value, origin.signature.refused)]
    for name in [name for name in SIGNED if (folder / name).is_file() or name in origin.files]:
        found = origin.of(name)
        rows.append((name, found.value, found.refused))
    named = all(origin.of(name) is Origin.OWN for name in ("config.json", "ledger.json", "card.json"))
    return rows, "run" if named and not any(refused for *_, refused in rows) else "spec"


def _rounding(path: Path) -> str:
    from tacit.accounting import Ledger
    from tacit.reports.facts import rounding_of

    return rounding_of(Ledger.load(path / "ledger.json" if path.is_dir() else path))


def _of_ledger(path: Path) -> tuple[list[tuple[str, str, bool]], str]:
    from tacit.accounting import Ledger

    ledger = Ledger.load(path)
    return [(path.name, ledger.origin.value, ledger.origin.refused)], "run" if ledger.is_evidence else "spec"
