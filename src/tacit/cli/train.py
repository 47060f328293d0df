"""`tacit train`: from data to a privacy card, one command for every method."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit import check
from tacit.cli.completion import presets
from tacit.cli.console import Interrupted, ShowValues
from tacit.cli.flags import with_settings
from tacit.serialization import json_text

if TYPE_CHECKING:
    from tacit.runs import Run


@with_settings
def command(
    *,
    preset: Annotated[
        str | None,
        typer.Argument(
            help="A preset (digits, mnist, ...), CONFIG.toml or folder of images by class; none with --resume.",
            autocompletion=presets,
        ),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the stopped run in this folder.", metavar="RUN")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/NAME-DATE-TIME by default.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Data set of the registry that is charged; by default the one with these records."),
    ] = None,
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="Charge no registry: across runs the number is only claimed.")
    ] = False,
    recipe: Annotated[
        str,
        typer.Option(help="auto (the best one known where only --epsilon is given), best, or paper: the preset's own."),
    ] = "auto",
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="With --resume: run the model's own code that RUN names.")
    ] = False,
    show_values: ShowValues = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every accountant and attack, too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
    overrides: Mapping[str, Any],
) -> None:
    """Train privately, account, attack and write card.html, card.json, ledger.json and model.safetensors."""
    from tacit.cli.budget import total_sentence
    from tacit.reports import card_table
    from tacit.runs import leave

    try:
        if (resume or preset) and _followed(preset, resume, data_dir, trust_code, recipe, overrides):
            return
        run = _trained(preset, resume, data_dir, out, trust_code, recipe, (budget, no_budget), overrides)
    except KeyboardInterrupt as stop:
        if stop.args:
            raise Interrupted(str(stop)) from None
        raise
    leave()
    if json:
        print(json_text(card_table(run.card)))
        return
    from tacit.cli.console import screen
    from tacit.reports import account_table, audit_table
    from tacit.reports.summary import summary
    from tacit.reports.words import OUTSIDE

    console = screen()
    if verbose:
        console.print(account_table(run.account, run.card.ledger))
        console.print(audit_table(run.audits))
        console.print(OUTSIDE, style="dim")
    for line in (*summary(run.card), total_sentence(run.budget)):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    more = "" if verbose else "; tacit account RUN lists every accountant, and --verbose prints them at the end"
    console.print(f"Card: {run.folder / 'card.html'} (tacit statement RUN signs a statement{more})", soft_wrap=True)


def _followed(
    preset: str | None,
    resume: Path | None,
    data_dir: Path | None,
    trust_code: bool,
    recipe: str,
    overrides: Mapping[str, Any],
) -> bool:
    """Whether this is a process of torchrun other than rank 0, and has taken part in the training."""
    if int(os.environ.get("RANK") or 0) == 0:
        return False
    from tacit import runs
    from tacit.runs.open_run import open_run

    if resume is None:
        assert preset is not None
        config = runs.recipe_config(preset, overrides, recipe)
    else:
        given = {"unsafe_seed": overrides.get("unsafe_seed")}
        config = open_run(resume).config(given, trust_code=trust_code)
    runs.join(config)
    runs.follow(config, data_dir=data_dir, resumed=resume)
    runs.leave()
    return True


def _trained(
    preset: str | None,
    resume: Path | None,
    data_dir: Path | None,
    out: Path | None,
    trust_code: bool,
    recipe: str,
    charged: tuple[str | None, bool],
    overrides: Mapping[str, Any],
) -> Run:
    from tacit import runs
    from tacit.cli.budget import charged_name
    from tacit.cli.console import progress_bars

    with progress_bars() as on_progress:
        if resume is not None:
            budget, no_budget = charged
            given = {**overrides, "budget": budget, "no_budget": no_budget or None}
            seed = _only_a_seed(preset, out, given)
            return runs.resume(
                resume, data_dir=data_dir, unsafe_seed=seed, trust_code=trust_code, on_progress=on_progress
            )
        if preset is not None:
            config = runs.recipe_config(preset, overrides, recipe)
            name = charged_name(*charged)
            return runs.train(config, data_dir=data_dir, out=out, budget=name, on_progress=on_progress)
    hint = "Name a preset such as digits, a CONFIG.toml, or a stopped run by --resume."
    raise check.fail("PRESET", "given unless --resume is", None, hint)


def _only_a_seed(preset: str | None, out: Path | None, overrides: Mapping[str, Any]) -> int | None:
    """The seed of a seeded run to resume; any other setting is the stored one."""
    flat = {name: value for name, value in overrides.items() if not isinstance(value, Mapping)}
    flat |= {
        f"{name}.{key}": value
        for name, table in overrides.items()
        if isinstance(table, Mapping)
        for key, value in table.items()
    }
    given = [name for name, value in (flat | {"PRESET": preset, "out": out}).items() if value is not None]
    for name in given:
        if name != "unsafe_seed":
            raise check.fail(
                name, "left out with --resume", flat.get(name, preset or out), "The run keeps its settings."
            )
    return overrides.get("unsafe_seed")
