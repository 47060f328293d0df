"""`tacit check`: whether a privacy statement holds, recomputed here from the file alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import screen
from tacit.serialization import json_text


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="statement.json of anybody.")],
    key: Annotated[str, typer.Option(help="A public key in FILE, or the fingerprint of the key that must sign.")] = "",
    model: Annotated[Path | None, typer.Option(help="The file of the model, to compare with its digest.")] = None,
    slow: Annotated[bool, typer.Option("--slow", help="Recompute numbers that take more than seconds too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the statement and its verdicts as a page to FILE.")] = None,
) -> None:
    """Recompute every number of a statement and answer field by field: valid, not checkable or contradicted.

    Exit code 0 where all is valid, 3 where a field is contradicted, 4 where one is not checkable or the author unknown.
    """
    from tacit.statement import Verdict, check_statement
    from tacit.statement.checking import statement_page
    from tacit.statement.envelope import read_bounded
    from tacit.statement.keys import fingerprint, read_public

    wanted = fingerprint(read_public(Path(key))) if key and Path(key).is_file() else key
    payload, findings = check_statement(read_bounded(file), key=wanted, model=model, slow=slow)
    worst = max((finding.verdict for finding in findings), default=Verdict.VALID)
    if html is not None:
        from tacit.serialization import write_text

        write_text(html, statement_page(payload, findings))
    if json:
        print(json_text({"verdict": worst.words, "findings": [finding.row() for finding in findings]}))
    else:
        for finding in findings:
            style = ("green", "yellow", "yellow", "bold red")[finding.verdict]
            screen().print(f"{finding.verdict.words:16} {finding.field}: {finding.says}", style=style, markup=False)
        for fact in payload.get("facts", []) if worst is not Verdict.CONTRADICTED else []:
            if fact["how"] in ("declared", "assumed"):
                screen().print(f"{fact['how']:16} {fact['says'] or fact['id']}", markup=False)
        screen().print(f"{worst.words}", style="bold", markup=False)
    raise typer.Exit(worst.exit_code)
