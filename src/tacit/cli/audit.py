"""`tacit audit`: attack the model of an earlier run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.console import ShowValues
from tacit.serialization import json_text

if TYPE_CHECKING:
    from tacit.audit import Report

REFUTED = 3
"""Exit code of a refuted claim."""


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished `tacit train`.", metavar="RUN")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this attack (repeatable), e.g. lira_offline. By default white_box, where the run can be "
            "repeated, and those of its settings."
        ),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Confidence of every bound, in (0, 1).")] = None,
    runs: Annotated[int, typer.Option(help="Number of runs to attack: RUN and repetitions with fresh noise.")] = 1,
    shadows: Annotated[int, typer.Option(help="Number of shadow models, for attacks that need them.")] = 32,
    canaries: Annotated[int, typer.Option(help="Number of canaries of the white-box audit.")] = 2000,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Run the model's own code that RUN names; shows its file and hash.")
    ] = False,
    show_values: ShowValues = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Attack the model of RUN and write the results there: audit.html and audit.json.

    Exit code 3 where the claim is refuted at 99.9 %, 0 otherwise.
    """
    from tacit.cli.console import progress_bars
    from tacit.reports import audit_table_of, write_audit
    from tacit.runs import audit_run

    with progress_bars() as on_progress:
        report = audit_run(
            run,
            data_dir=data_dir,
            attacks=attack,
            confidence=confidence,
            runs=runs,
            shadows=shadows,
            canaries=canaries,
            trust_code=trust_code,
            on_progress=on_progress,
        )
    page = write_audit(report, run, title=run.resolve().name)
    if json:
        print(json_text(audit_table_of(report)))
    else:
        _print(report, page)
    if report.refuted:
        raise typer.Exit(REFUTED)


def _print(report: "Report", page: Path) -> None:
    from tacit.cli.console import screen
    from tacit.reports import audit_table, words
    from tacit.reports.audit_page import audited_sentence, finding_table, overlap_table

    console = screen()
    console.print(audited_sentence(report), style="bold")
    console.print(audit_table(report.results))
    if report.findings:
        console.print(finding_table(report.findings))
    for name, rows in report.overlaps.items():
        console.print(overlap_table(name, rows))
    for statement in dict.fromkeys(result.statement for result in report.results):
        console.print(statement, style="dim")
    together = words.together(report.confidences)
    if together:
        console.print(together, style="dim")
    for name, passed in report.monitors.items():
        console.print(f"{name} monitor: {'passed' if passed else 'failed'}", style="dim" if passed else "bold red")
    for sentence in report.refusals:
        console.print(f"The releases of the repeated run refute the claim: {sentence}", style="bold red")
    for attack in report.refuted_by or ():
        console.print(f"{attack} refutes the claim at 99.9 %.", style="bold red")
    console.print(str(page), style="dim", soft_wrap=True)
