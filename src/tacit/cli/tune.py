"""`tacit tune`: private selection over settings, its whole cost stated."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.cli.console import interruptible, progress_bars, screen
from tacit.serialization import json_text, toml_table

if TYPE_CHECKING:
    from tacit.tuning import Tuned

_BEGUN = (
    "Tuning {search}: the noise of a trial is solved from the total before the first of them. How many trials there "
    "are, and how far each is, is not shown."
)


def tune_command(
    preset: str | None = None,
    *,
    resume: Path | None = None,
    trials: float = 20,
    epsilon: float = 3.0,
    delta: float | None = None,
    law: str = "logarithmic",
    selection: str = "random_trials",
    space: Path | None = None,
    validation: str = "private",
    validation_share: float = 0.1,
    epochs: float | None = None,
    unsafe_seed: int | None = None,
    data_dir: Path | None = None,
    out: Path | None = None,
    trust_code: bool = False,
    budget: str | None = None,
    no_budget: bool = False,
    show_values: bool = False,
    json: bool = False,
) -> None:
    """Train a preset with random settings a random number of times; keep the best, and nothing of the others.

    Args:
        preset: A preset (adult, har, mnist, ...) or CONFIG.toml; none with --resume.
        resume (RUN): Resume the stopped search in this folder.
        trials: Mean number of trials, above 1; the number itself stays secret.
        epsilon (--epsilon, --total-epsilon): Of everything together.
        delta: Of everything together; the preset's by default.
        law: logarithmic, geometric, poisson, or a shape in (-1, 1].
        selection: random_trials; exponential or permute_and_flip: exactly so many trials, and a choice.
        space: TOML file with a list of values for each setting to search.
        validation: private: a part of the training records; public: the test records, declared public.
        validation_share: Probability with which a record is set aside.
        epochs: Expected passes of each trial.
        unsafe_seed: Repeatable search, not private.
        out: Folder of the winner's run.
        trust_code: With --resume: run the model's own code that RUN names.
        budget: Data set of the registry that the search is charged to.
        data_dir: Folder of the data files.
        no_budget: Charge no registry: across runs the number is only claimed.
        show_values: Error messages may quote values of the data.
        json: Print JSON.
    """
    print(_BEGUN.format(search=resume or preset), file=sys.stderr, flush=True)  # Before slow imports.
    from tacit.cli.budget import charged_name
    from tacit.runs import read_config
    from tacit.tradeoff import Epsilon
    from tacit.tuning import resume_tuning, tune

    if (preset is None) == (resume is None):
        raise check.fail("preset", "given, or --resume RUN", preset)
    with interruptible(), progress_bars() as on_progress:
        given: dict[str, Any] = {"data_dir": data_dir, "on_progress": on_progress}
        if resume is not None:
            tuned = resume_tuning(resume, unsafe_seed=unsafe_seed, trust_code=trust_code, **given)
        else:
            assert preset is not None
            at = read_config(preset, {}).delta if delta is None else delta
            overrides = {"epochs": epochs, "unsafe_seed": unsafe_seed}
            tuned = tune(
                preset,
                None if space is None else toml_table("space", space),
                target=Epsilon(epsilon, at),
                trials=trials,
                law=float(law) if check.is_number(law) else law,
                selection=selection,
                validation=validation,
                validation_share=validation_share,
                out=out,
                overrides={name: value for name, value in overrides.items() if value is not None},
                budget=charged_name(budget, no_budget),
                **given,
            )
    if json:
        print(json_text(_table(tuned)))
    else:
        _show(tuned)


def _table(tuned: Tuned) -> dict[str, Any]:
    card, search = tuned.run.card, tuned.search
    total = tuned.tradeoff.epsilon(tuned.target.delta)
    return {
        "settings": dict(tuned.settings),
        "test": card.metrics["test"],
        "epsilon": float(total),
        "epsilon_lower": total.interval[0],
        "delta": tuned.target.delta,
        "standing": tuned.tradeoff.standing.value,
        "scope": card.ledger.scope,
        "search": search.told,
        "noise_multiplier": search.noise_multiplier,
        "folder": str(tuned.run.folder),
    }


def _show(tuned: Tuned) -> None:
    from tacit.cli.budget import total_sentence
    from tacit.reports import account_table
    from tacit.standing import downward, upward

    console, card, search, at = screen(), tuned.run.card, tuned.search, tuned.target.delta
    total = tuned.tradeoff.epsilon(at)
    console.print(f"Winner: {', '.join(f'{name} {value}' for name, value in tuned.settings.items())}")
    found, told = card.metrics["test"], card.held_out
    outside = " (outside of the guarantee)" if told.get("test") == "exact" else ""
    console.print(f"{card.dataset}: test {'not measured' if found is None else f'{found:.4f}{outside}'}")
    console.print(told.get("says", ""), soft_wrap=True)
    console.print(
        f"The whole search: epsilon {upward(float(total), 5)} at delta {at:g}, {tuned.tradeoff.standing.value}; an "
        f"attack reaches {downward(total.interval[0], 5)}. Noise multiplier {upward(search.noise_multiplier, 5)} in "
        "each trial."
    )
    console.print(f"Trials: {search}")
    console.print(account_table(tuned.run.account, card.ledger))
    console.print(total_sentence(tuned.run.budget), soft_wrap=True)
    console.print(f"Card: {tuned.run.folder / 'card.html'}", soft_wrap=True)
