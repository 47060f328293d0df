"""`tacit train`: from data to a privacy card, one command for every method."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.plain import json_text


def command(
    preset: Annotated[str, typer.Argument(help="A preset (digits, adult, mnist, ...) or CONFIG.toml.")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the original data files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; runs/NAME-DATE-TIME by default.")] = None,
    method: Annotated[str | None, typer.Option(help="How to train privately.")] = None,
    dataset: Annotated[str | None, typer.Option(help="A name that `tacit data` lists.")] = None,
    model: Annotated[str | None, typer.Option(help="linear, mlp or convnet.")] = None,
    hidden: Annotated[list[int] | None, typer.Option(help="Width of an mlp's hidden layer (repeatable).")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adam.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd, in [0, 1).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected size of a Poisson batch.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Expected passes over the data.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Bound on one record's gradient norm.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise std / clip_norm.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Calibrate the noise to this epsilon instead.")] = None,
    delta: Annotated[float | None, typer.Option(help="delta of the guarantee, below 1/n.")] = None,
    relation: Annotated[str | None, typer.Option(help="add_remove, replace_one or zero_out.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Attack to run (repeatable).")] = None,
    confidence: Annotated[float | None, typer.Option(help="Of the attacks' bounds, in (0, 1).")] = None,
    init_seed: Annotated[int | None, typer.Option(help="Public seed of the initial weights.")] = None,
    unsafe_seed: Annotated[int | None, typer.Option(help="Seed the noise: reproducible, not private.")] = None,
    strict: Annotated[bool | None, typer.Option("--strict", help="Leaks of private data are errors.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Train privately, account, attack and write card.html, card.json, ledger.json and model.safetensors."""
    from tacit.cli.progress import progress_bars
    from tacit.reports import card_table
    from tacit.runs import read_config, train

    config = read_config(
        preset,
        {
            "method": method,
            "dataset": dataset,
            "model": model,
            "hidden": tuple(hidden) if hidden else None,
            "optimizer": optimizer,
            "momentum": momentum,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "epochs": epochs,
            "clip_norm": clip_norm,
            "noise_multiplier": noise_multiplier,
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "attacks": tuple(attack) if attack else None,
            "confidence": confidence,
            "init_seed": init_seed,
            "unsafe_seed": unsafe_seed,
            "strict": strict,
        },
    )
    with progress_bars() as on_progress:
        run = train(config, data_dir=data_dir, out=out, on_progress=on_progress)
    if json:
        print(json_text(card_table(run.card)))
        return
    from rich.console import Console

    from tacit.reports import account_table, audit_table

    console = Console()
    metrics = run.card.metrics
    console.print(f"{run.card.dataset}, {run.card.model}: test accuracy {metrics['test']:.2%}, ", end="")
    console.print(f"without privacy {metrics['nonprivate_test']:.2%}")
    console.print(account_table(run.account))
    console.print(audit_table(run.audits))
    console.print(f"Card: {run.folder / 'card.html'}", soft_wrap=True)
