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
    from tacit import check
    from tacit.reports import card_markdown, export_card
    from tacit.serialization import json_table

    path = run / "card.json" if run.is_dir() else run
    if not path.is_file():
        raise check.fail("RUN", "the folder of a `tacit train`, with card.json in it", str(run))
    reserve = _reserve(path)
    table = json_table("card.json", path)
    if out is None:
        print(card_markdown(table, reserve=reserve))
    else:
        typer.echo(str(export_card(table, out, reserve=reserve)), err=True)


def _reserve(card: Path) -> str:
    """What must be said beside the numbers of a card that this user's key did not sign as it is."""
    from tacit.runs.run_signature import origin_of_run
    from tacit.signing import Origin

    found = origin_of_run(card.parent).of(card.name)
    if found is Origin.OWN:
        return ""
    return (
        f"This card is {found.value}: its numbers are what its file says, and nothing here shows that a run gave them."
    )
