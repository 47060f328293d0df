"""`tune`: train a preset with settings of a space, keep one of the trials, account for all of them.

A search as a training method, so that the winner's folder is that of any other run.
"""

import shutil
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.accounting import EXACT_RELEASE, Ledger, accountant, common_facts
from tacit.data import Dataset
from tacit.mechanisms import Gaussian, Parallel, law_of
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.noise.discrete import Scores, choose, discrete_gaussian
from tacit.runs import Config, Run, read_config
from tacit.runs.builders import clip_of, dataset_of, no_progress, stream_of
from tacit.runs.held_out import holdout_of
from tacit.runs.methods import Job, Method, Trained, method_of
from tacit.runs.methods.base import Baseline, Predict, Progress, trained_from, trained_table
from tacit.runs.open_run import open_run
from tacit.runs.run import train_by
from tacit.runs.run_budget import NONE, RunBudget, read_budget
from tacit.runs.run_signature import MODEL
from tacit.runs.settings import Folder
from tacit.serialization import tuples, write_bytes
from tacit.standing import Standing
from tacit.tradeoff import Epsilon, TradeOff
from tacit.training.holdout import OWN_COIN as HELD_BY_COIN
from tacit.tuning import search_state
from tacit.tuning.plan import RANDOM_TRIALS, Asked, Candidates, Parts, Search, space_of
from tacit.tuning.search_state import SearchState


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
    data_dir: Folder | None = None,
    out: Folder | None = None,
    overrides: Mapping[str, Any] | None = None,
    budget: str | None = None,
    on_progress: Progress = no_progress,
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
    if selection == RANDOM_TRIALS:
        count = law_of(law, trials=trials)
    else:
        count = round(check.real("trials", trials, low=2))
        check.that(count == trials, "trials", "a whole number for a selection by choice", trials)
    holdout = config.section("validation")
    asked = Asked(space_of(config, space), target, count, selection, validation, validation_share, holdout)
    charged = RunBudget.find(config, budget, lambda records: asked.whole(config, records))
    dataset = _data(config, charged, data_dir, on_progress)
    stream = stream_of(config) or SecureStream()
    aside, held = asked.draw_parts(len(dataset.y_train), stream)
    standings = search_state.Standings(asked.draw_trials(stream))
    state = SearchState(asked.table(), search_state.digest_of(dataset), aside, standings, held)
    given = {"charged": charged, "data_dir": data_dir, "out": out, "on_progress": on_progress}
    return _run(asked, state, config, dataset, stream, **given)


def resume_tuning(
    folder: Folder,
    *,
    data_dir: Folder | None = None,
    unsafe_seed: int | None = None,
    trust_code: bool = False,
    on_progress: Progress = no_progress,
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
    state = search_state.stopped_state(place)
    asked = Asked.of(state.arguments)
    config = open_run(place).config({"unsafe_seed": unsafe_seed}, trust_code=trust_code)
    named = read_budget(place)
    charged = RunBudget.find(config, NONE if named is None else named["dataset"], goes_on=True)
    dataset = _data(config, charged, data_dir, on_progress)
    if search_state.digest_of(dataset) != state.records:
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


def _data(config: Config, charged: RunBudget, data_dir: Folder | None, on_progress: Progress) -> Dataset:
    dataset = dataset_of(config, data_dir, on_progress)
    charged.recognise(config, dataset)
    if dataset.task != "classification":
        raise check.fail("preset", "one of a classification, whose scores are counts", dataset.task)
    return dataset


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


PUBLIC = "The records that scores were computed on are public, and none of them was trained on."
"""The assumption behind public scores."""
INTERRUPTED = "The search was interrupted for reasons that followed neither the records nor the results of a trial."
"""The assumption behind a search that went on after it was stopped: the trial at work is lost, and made anew."""
_TRIAL = "trial-"
"""How the folder of the trial at work begins; one that was killed left no weights in it."""
_RANDOM, _FIXED = "tuning: the best of a secret number of trials", "tuning: all trials, and a private choice"


class SearchMethod(Method[Any]):
    """All trials of a search, of which the winner's model is left.

    Args:
        config: what trials have in common.
        search: as planned.
        parts: the records, by what trials do with them.
        stream: source of all randomness but that of the trainings.
        state: where the search begins, or goes on.
    """

    keeps_checkpoints: ClassVar[bool] = True
    resumed_by: ClassVar[str] = "tacit tune --resume"
    is_search: ClassVar[bool] = True

    def __init__(self, config: Config, search: Search, parts: Parts, stream: Stream, state: SearchState):
        super().__init__(config.method_settings)
        self._search, self._parts, self._stream, self._state = search, parts, stream, state
        self.settings_drawn: dict[str, Any] = {}

    def train(self, job: Job) -> Trained:
        """Make what is left of the trials, and keep the winner."""
        ledger = job.ledger
        ledger.begin(*common_facts(unit=ledger.unit, secure=self._stream.secure, arithmetic=EXACT_RELEASE))
        for sentence in self._assumptions(job.resume):
            ledger.assume(sentence)
        if isinstance(self._stream, SeededStream):
            ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        if job.resume:
            self._state = search_state.stopped_state(job.folder)  # Once more, now that no other process works here.
            if isinstance(self._stream, SeededStream) and self._state.stream is not None:
                self._stream.restore(self._state.stream)
            for lost in job.folder.glob(f"{_TRIAL}*"):
                shutil.rmtree(lost)
        # Anew at once where it goes on, so that a copy of the folder cannot go on as well.
        search_state.save_state(self._state, job.folder, self._stream)
        # The whole search is in the registry and the file before its first trial: one that is killed has spent it. One
        # that goes on finds both there.
        job.write_ahead((self._search.mechanism, 1))
        for part, steps in self._search.mechanism.parts():
            ledger.add(part, steps, _FIXED if self._search.asked.is_choice else _RANDOM)
        ledger.save(job.folder / "ledger.json")
        job.sign()
        job.on_progress("tuning", 0, 1)
        winner = self._winner(job)
        job.on_progress("tuning", 1, 1)
        # Checks of facts are counted: those of the winner alone, since their sum would tell how many trials ran.
        ledger.absorb_marks(Ledger.from_spec(winner.ledger))
        # What weakens the guarantee of any trial.
        for switch, standing in self._state.unsafe.items():
            ledger.mark_unsafe(switch, Standing(standing))
        for name, says in self._state.missing.items():
            ledger.facts.missing(name, says)
        write_bytes(job.folder / MODEL, b64decode(winner.model))
        self.settings_drawn = tuples(winner.settings)
        config = replace(self._config_of_trials(job), **self.settings_drawn)
        trained = trained_from(winner.trained, method_of(config).load(replace(job, config=config)))
        return replace(trained, settings={**trained.settings, **self._search.told}, config=config)

    def nonprivate_baseline(self, job: Job) -> Baseline:
        """Nothing: the records set aside would be trained on."""
        return (), None

    def load(self, job: Job) -> Predict:
        """The network of the winner."""
        return method_of(job.config).load(job)

    def _assumptions(self, resumed: bool) -> list[str]:
        asked, held = self._search.asked, [] if self._parts.held is None else [HELD_BY_COIN]
        hidden = [] if asked.is_choice else [search_state.HIDDEN]
        return [*hidden, search_state.OWN_COIN if asked.private else PUBLIC, *held, *([INTERRUPTED] if resumed else [])]

    def _winner(self, job: Job) -> search_state.Trial:
        standings, asked, cost = self._state.standings, self._search.asked, self._search.score_cost
        save = partial(search_state.save_state, self._state, job.folder, self._stream)

        def chosen(counts: list[float]) -> int:
            assert cost is not None
            scores, relation = Scores(np.array(counts), 1.0, monotone=True), job.ledger.relation
            return choose(scores, cost, self._stream, relation=relation, method=asked.selection)

        if asked.is_choice:
            return search_state.chosen_trial(standings, lambda: self._trial(job), chosen, save)
        best = search_state.best_trial(standings, self._stream, lambda: self._trial(job), save)
        if best is None:
            raise check.fail("law", "one that makes at least one trial", "Poisson without a trial", "Its cost counts.")
        return best

    def _config_of_trials(self, job: Job) -> Config:
        config, held, noise = job.config, self._search.held, self._search.noise_multiplier
        own = {} if held is None else {"validation": held.settings(config.section("validation"))}
        sections = {**config.sections, **own}
        return replace(config, epsilon=None, noise_multiplier=noise, unsafe_seed=None, sections=sections)

    def _trial(self, job: Job) -> tuple[float, search_state.Trial]:
        """Train with one setting, and score it; nothing of it is left but what is returned."""
        settings = self._search.asked.space.draw(self._stream)
        seed = None if self._stream.secure else int(self._stream.bits(1)[0] >> np.uint64(33))
        config = replace(self._config_of_trials(job), unsafe_seed=seed, **settings)
        ledger = Ledger(relation=job.ledger.relation)
        holdout = None if self._parts.held is None else holdout_of(config, self._parts.held)
        with tempfile.TemporaryDirectory(prefix=_TRIAL, dir=job.folder) as place:
            # A job that tells nobody: progress, signatures and reservations are those of the whole search.
            alone = Job(config, job.dataset, ledger, Path(place), data_dir=job.data_dir, checkpoints=False)
            alone = replace(alone, measures_test=job.measures_test, holdout=holdout)
            method = method_of(config)
            method.check(alone)
            trained = method.train(alone)
            model = b64encode((Path(place) / MODEL).read_bytes()).decode()
        self._check_cost(ledger)
        self._state.unsafe |= dict.fromkeys(ledger.unsafe, ledger.standing.value)
        self._state.missing |= {fact.id: fact.says for fact in ledger.facts.assumed}
        return self._score(trained.predict), search_state.Trial(settings, trained_table(trained), ledger.spec(), model)

    def _score(self, predict: Predict) -> float:
        right = self._parts.right(predict)
        noise = None if self._search.asked.is_choice else self._search.score_cost
        return float(right if noise is None else right + discrete_gaussian(self._stream, Fraction(noise) ** 2))

    def _check_cost(self, ledger: Ledger) -> None:
        """Every step was one that the planned training dominates: the same noise, no higher rate, no more steps."""
        steps, training = 0, ledger.mechanism
        if self._search.held is not None:
            # One entry holds the whole trial, as that of any run with private validation.
            ((beside, once),) = ledger.mechanism.parts()
            if not isinstance(beside, Parallel) or once != 1 or len(beside.branches) != 2:
                raise check.fail("trial", "one training beside one holdout", str(ledger.mechanism))
            training, told = beside.branches
            self._search.held.check_cost(told)
        for part, times in training.parts():
            steps += times
            rate = getattr(part, "sample_rate", 1.0)
            if part != Gaussian(self._search.noise_multiplier).poisson(rate) or rate > self._search.rate:
                raise check.fail("trial", "one of Poisson-subsampled Gaussian steps within the planned cost", str(part))
        if steps > self._search.steps:
            raise check.fail("trial", f"one of at most {self._search.steps} steps", steps)
