"""`tacit card`: the card of a run for other readers: Markdown, PDF, or the claim table of NIST SP 800-226."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished `tacit train`, or its card.json.", metavar="RUN")],
    out: Annotated[
        Path | None,
        typer.Option(help="Write FILE.md, FILE.pdf (needs the extra pdf) or FILE.json (claims of NIST SP 800-226)."),
    ] = None,
) -> None:
    """Export the card of RUN; without --out print it as Markdown."""
    from tacit.reports import card_markdown, export_card
    from tacit.runs.open_run import open_run
    from tacit.runs.run_signature import CARD

    opened = open_run(run if run.is_dir() or run.name != CARD else run.parent)
    opened.needs(CARD)
    table, reserve = opened.card, opened.reserve.replace("This run", "This card", 1)
    if out is None:
        print(card_markdown(table, reserve=reserve))
    else:
        typer.echo(str(export_card(table, out, reserve=reserve)), err=True)
