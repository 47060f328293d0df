"""`tune`: train a preset with settings of a space, keep one of the trials, account for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import accountant
from tacit.data import Dataset
from tacit.mechanisms import Gaussian, law_of
from tacit.noise import SecureStream, Stream
from tacit.runs import Config, Run, read_config
from tacit.runs.builders import clip_of, dataset_of, stream_of
from tacit.runs.methods.base import Progress
from tacit.runs.open_run import open_run
from tacit.runs.run import train_by
from tacit.runs.run_budget import NONE, RunBudget, read_budget
from tacit.tradeoff import Epsilon, TradeOff
from tacit.tuning.asked import Asked, Parts
from tacit.tuning.method import SearchMethod
from tacit.tuning.plan import RANDOM_TRIALS, Search
from tacit.tuning.space import Candidates, space_of
from tacit.tuning.trials import SearchState, Standings, digest_of, stopped_state


@dataclass(frozen=True)
class Tuned:
    """A finished search.

    Attributes:
        run: the winner's run: folder, card, account.
        settings: of the winner, as drawn.
        tradeoff: the cost of the whole search, a bracket.
        search: as it was planned: noise of every trial, and how the winner was selected.
        target: of everything together.
    """

    run: Run
    settings: Mapping[str, Any]
    tradeoff: TradeOff
    search: Search
    target: Epsilon


def tune(
    preset: str | Config,
    space: Mapping[str, Sequence[Any]] | Candidates | None = None,
    *,
    target: Epsilon,
    trials: float = 20,
    law: str | float = "logarithmic",
    selection: str = RANDOM_TRIALS,
    validation: str = "private",
    validation_share: float = 0.1,
    data_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    budget: str | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> Tuned:
    """Train `preset` with random settings of `space` and keep one of the trials; everything together costs `target`.

    By `selection` "random_trials" a secret number K ~ `law` of trials is made and the best noisy score wins: the noise
    of each trial is solved backwards from the target before K is drawn (`mechanisms.Selection`). By "exponential" or
    "permute_and_flip" exactly `trials` trainings compose, and their winner is a private choice; up to three trials that
    is the cheaper way. A score counts right answers on records that no trial trains on; a trained-on record and one set
    aside have the same guarantee. Nothing of the other trials is kept, logged or shown, K neither.

    With a [validation] section every trial stops early or chooses its checkpoint by a private holdout. The holdout is
    the same for all trials, none of its records is trained or scored on, and what all trials tell of it costs `target`,
    or the smaller epsilon of the section.

    The search counts in full from its beginning: a killed one spent its target, and `resume_tuning` goes on with it at
    no further cost.

    Args:
        preset: a preset, a TOML file, or a configuration.
        space: name of a setting -> values to draw from, or whole `Candidates`; see `space_of`.
        target: of everything together.
        trials: E K, > 1; for a selection by choice the number of trials, a whole one of at least 2.
        law: "logarithmic", "geometric", "poisson", or the shape in (-1, 1] of a negative binomial law.
        selection: "random_trials", "exponential" or "permute_and_flip".
        validation: "private" sets training records aside; "public" uses the test records, declared public.
        validation_share: in (0, 1), the probability with which a record is set aside.
        data_dir: folder of the original data files.
        out: folder of the winner's run.
        overrides: settings of every trial that differ from the preset's.
        budget: data set of the registry (`tacit budget`) that the whole search is charged to; "-" for none. By default
            the one that the records are recognised as.
        on_progress: called with (stage, done, total); it is told nothing of single trials.

    Raises:
        BudgetExceeded: the search would cross a cap; where a data set is named, before any record is read.
        InvalidInput: an argument breaks its rule, or the configuration is none whose trials can be compared: a
            classification by method "gradient" with Poisson sampling and constant noise.
        KeyboardInterrupt: with the command that goes on as its message.
    """
    check.instance("target", target, Epsilon, "one such as Epsilon(3.0, 1e-5)")
    config = _config(preset, {"epsilon": target.epsilon, "delta": target.delta, **(overrides or {})})
    if validation == "public":  # Which declares the test records public.
        config = replace(config, test_records="public")
    count = law_of(law, trials=trials) if selection == RANDOM_TRIALS else _whole_number(trials)
    holdout = config.section("validation")
    asked = Asked(space_of(config, space), target, count, selection, validation, validation_share, holdout)
    charged = RunBudget.find(config, budget, lambda records: asked.whole(config, records))
    dataset = _data(config, charged, data_dir, on_progress)
    stream = stream_of(config) or SecureStream()
    aside = asked.draw_aside(len(dataset.y_train), stream)
    held = asked.draw_held(aside, stream)
    trials_drawn = Standings(asked.draw_trials(stream))
    state = SearchState(asked.table(), digest_of(dataset), aside, trials_drawn, held=held)
    given = {"charged": charged, "data_dir": data_dir, "out": out, "on_progress": on_progress}
    return _run(asked, state, config, dataset, stream, **given)


def resume_tuning(
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    unsafe_seed: int | None = None,
    trust_code: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> Tuned:
    """Go on with the search in `folder`, which was stopped, to the card of its winner; it costs nothing further.

    The number of trials, the records set aside and the best trial so far are those of the sealed file in the folder,
    which is this user's alone. The trial that was lost is forgotten and made anew; that has the law of a search that
    was not stopped as long as what stopped it followed neither the records nor a result, which the ledger then assumes.

    Args:
        folder: of the search.
        data_dir: folder of the data files.
        unsafe_seed: of a seeded search, whose seed is kept nowhere.
        trust_code: run the code that a received folder names as its model.
        on_progress: as for `tune`.

    Raises:
        InvalidInput: there is no such search, its file or its records were changed, or an earlier version of the file
            was put back.
    """
    place = Path(folder)
    state = stopped_state(place)
    asked = Asked.of(state.arguments)
    config = open_run(place).config({"unsafe_seed": unsafe_seed}, trust_code=trust_code)
    named = read_budget(place)
    charged = RunBudget.find(config, NONE if named is None else named["dataset"], goes_on=True)
    dataset = _data(config, charged, data_dir, on_progress)
    if digest_of(dataset) != state.records:
        raise check.fail("the data", "the records that the search began with", "others")
    stream = stream_of(config) or SecureStream()
    given = {"charged": charged, "data_dir": data_dir, "out": place, "resume": True, "on_progress": on_progress}
    return _run(asked, state, config, dataset, stream, **given)


def _run(asked: Asked, state: SearchState, config: Config, dataset: Dataset, stream: Stream, **given: Any) -> Tuned:
    """Make the trials of `state` that are left; `given` are further arguments of `train_by`."""
    given["on_progress"]("noise", 0, 1)
    parts = Parts.of(dataset, public=not asked.private, aside=state.aside, held=state.held)
    search = asked.plan(config, len(parts.training.y_train))
    given["on_progress"]("noise", 1, 1)
    method = SearchMethod(config, search, parts, stream, state)
    run = train_by(method, config, parts.training, **given)
    return Tuned(run, method.settings_drawn, accountant("pld")(run.card.ledger), search, asked.target)


def _data(
    config: Config, charged: RunBudget, data_dir: str | os.PathLike[str] | None, on_progress: Progress
) -> Dataset:
    dataset = dataset_of(config, data_dir, on_progress)
    charged.recognise(config, dataset)
    if dataset.task != "classification":
        raise check.fail("preset", "one of a classification, whose scores are counts", dataset.task)
    return dataset


def _whole_number(trials: float) -> int:
    whole = check.real("trials", trials, low=2)
    if whole != round(whole):
        raise check.fail("trials", "a whole number for a selection by choice", trials)
    return round(whole)


def _config(preset: str | Config, overrides: Mapping[str, Any]) -> Config:
    if isinstance(preset, Config):
        config = replace(preset, noise_multiplier=None, **overrides)
    else:
        config = read_config(check.text("preset", preset), overrides)
    if config.method != "gradient":
        raise check.fail("method", "gradient, whose trials can be planned alike", config.method)
    if config.features != "none":
        raise check.fail("features", "none in a search", config.features)
    for name in ("sampling", "noise"):
        if name in config.sections:
            rule = "absent in a search, whose trials sample by Poisson at one noise and are scored alike"
            raise check.fail(f"[{name}]", rule, "a section")
    if clip_of(config).mechanism(1.0, False) != Gaussian(1.0):
        raise check.fail("clipping", "a fixed one, whose steps are Gaussian", clip_of(config).type)
    return config
