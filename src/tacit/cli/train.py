"""`tacit train`: from data to a privacy card, one command for every method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.flags import with_settings
from tacit.plain import json_text


@with_settings
def command(
    *,
    preset: Annotated[str, typer.Argument(help="A preset (digits, adult, mnist, ...) or CONFIG.toml.")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the original data files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; runs/NAME-DATE-TIME by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
    overrides: Mapping[str, Any],
) -> None:
    """Train privately, account, attack and write card.html, card.json, ledger.json and model.safetensors."""
    from tacit.cli.progress import progress_bars
    from tacit.reports import card_table
    from tacit.runs import read_config, train

    config = read_config(preset, overrides)
    with progress_bars() as on_progress:
        run = train(config, data_dir=data_dir, out=out, on_progress=on_progress)
    if json:
        print(json_text(card_table(run.card)))
        return
    from rich.console import Console

    from tacit.reports import account_table, audit_table
    from tacit.reports.words import MEASURES, measured

    console, card = Console(), run.card
    found, twin = (measured(card.metrics.get(name), card.measure) for name in ("test", "nonprivate_test"))
    name = MEASURES[card.measure]
    console.print(f"{card.dataset}, {card.model}: {name[0].lower()}{name[1:]} {found}, without privacy {twin}")
    console.print(account_table(run.account))
    console.print(audit_table(run.audits))
    console.print(f"Card: {run.folder / 'card.html'}", soft_wrap=True)
