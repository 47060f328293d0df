"""`tacit tune`: private selection over settings, its whole cost stated."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit import check
from tacit.cli.console import ShowValues
from tacit.errors import InvalidInput
from tacit.serialization import json_text

_BEGUN = (
    "Tuning {preset}: the noise of a trial is solved from the total, then a secret number of trials is trained. How "
    "many, and how far each is, is not shown."
)


def command(
    preset: Annotated[str, typer.Argument(help="A preset (adult, har, mnist, ...) or CONFIG.toml.")],
    trials: Annotated[float, typer.Option(help="Mean number of trials, above 1; the number itself stays secret.")] = 20,
    epsilon: Annotated[float, typer.Option("--epsilon", "--total-epsilon", help="Of everything together.")] = 3.0,
    delta: Annotated[float | None, typer.Option(help="Of everything together; the preset's by default.")] = None,
    law: Annotated[str, typer.Option(help="logarithmic, geometric, poisson, or a shape in (-1, 1].")] = "logarithmic",
    space: Annotated[
        Path | None, typer.Option(help="TOML file with a list of values for each setting to search.")
    ] = None,
    validation: Annotated[
        str, typer.Option(help="private: a part of the training records; public: the test records, declared public.")
    ] = "private",
    validation_share: Annotated[float, typer.Option(help="Probability with which a record is set aside.")] = 0.1,
    epochs: Annotated[float | None, typer.Option(help="Expected passes of each trial.")] = None,
    unsafe_seed: Annotated[int | None, typer.Option(help="Repeatable search, not private.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the winner's run.")] = None,
    budget: Annotated[str | None, typer.Option(help="Data set of the registry that the search is charged to.")] = None,
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="Charge no registry: across runs the number is only claimed.")
    ] = False,
    show_values: ShowValues = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a preset with random settings a random number of times; keep the best, and nothing of the others."""
    print(_BEGUN.format(preset=preset), file=sys.stderr, flush=True)  # Before slow imports.
    from tacit.cli.budget import charged_name, total_sentence
    from tacit.cli.console import progress_bars, screen
    from tacit.reports import account_table
    from tacit.runs import read_config
    from tacit.tradeoff import Epsilon
    from tacit.tuning import tune

    at = read_config(preset, {}).delta if delta is None else delta
    given = {"epochs": epochs, "unsafe_seed": unsafe_seed}
    with progress_bars() as on_progress:
        tuned = tune(
            preset,
            None if space is None else _lists(space),
            target=Epsilon(epsilon, at),
            trials=trials,
            law=_law(law),
            validation=validation,
            validation_share=validation_share,
            data_dir=data_dir,
            out=out,
            overrides={name: value for name, value in given.items() if value is not None},
            budget=charged_name(budget, no_budget),
            on_progress=on_progress,
        )
    card, total = tuned.run.card, tuned.tradeoff.epsilon(at)
    lower = tuned.tradeoff.floor.epsilon(at) if tuned.tradeoff.floor is not None else None
    if json:
        table = {
            "settings": dict(tuned.settings),
            "test": card.metrics["test"],
            "epsilon": float(total),
            "epsilon_lower": total.interval[0],
            "delta": at,
            "standing": tuned.tradeoff.standing.value,
            "scope": card.ledger.scope,
            "law": str(tuned.law),
            "noise_multiplier": tuned.noise_multiplier,
            "score_noise": tuned.score_noise,
            "folder": str(tuned.run.folder),
        }
        print(json_text(table))
        return
    console = screen()
    console.print(f"Winner: {', '.join(f'{name} {value}' for name, value in tuned.settings.items())}")
    console.print(f"{card.dataset}: test {card.metrics['test']:.4f} (outside of the guarantee)")
    console.print(
        f"The whole search: epsilon {float(total):.4f} at delta {at:g}, {tuned.tradeoff.standing.value}; an attack "
        f"reaches {lower:.4f}. Noise multiplier {tuned.noise_multiplier:.4f} in each trial."
    )
    console.print(f"Trials: {tuned.law}; exactly one with probability {tuned.law.once:.2f}. Their number stays secret.")
    console.print(account_table(tuned.run.account, card.ledger))
    console.print(total_sentence(tuned.run.budget), soft_wrap=True)
    console.print(f"Card: {tuned.run.folder / 'card.html'}", soft_wrap=True)


def _law(given: str) -> str | float:
    """A name, or a shape."""
    try:
        return float(given)
    except ValueError:
        return given


def _lists(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise check.fail("space", "a file that exists", str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"space must be a TOML file; got {str(path)!r}. {error}") from None
