"""`tune`: train a preset with random settings a random number of times, keep the best, account for all of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.accounting import EXACT_STEPS, Ledger, accountant, common_facts
from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.data.dataset import rows_fact
from tacit.mechanisms import DiscreteGaussian, Gaussian, Mechanism, Parallel, Selection, TrialLaw, law_of
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.noise.discrete import discrete_gaussian
from tacit.runs import Config, Run, read_config
from tacit.runs.builders import clip_of, dataset_of, stream_of
from tacit.runs.methods import Job, Method, Trained, method_of
from tacit.runs.methods.base import MODEL, Predict, Progress
from tacit.runs.run import train_by
from tacit.runs.run_budget import RunBudget
from tacit.standing import Standing
from tacit.tradeoff import Epsilon, TradeOff
from tacit.training.resolve_plan import resolve_steps
from tacit.tuning.space import Space, space_of
from tacit.tuning.trials import HIDDEN, best_trial

VALIDATION = ("private", "public")
_OWN_COIN = "Each record was set aside for scores by a coin of its own, and the sizes of both parts are public."
_PUBLIC = "The records that scores were computed on are public, and none of them was trained on."
NOTE = "tuning: the best of a secret number of trials"


@dataclass(frozen=True)
class Tuned:
    """A finished search.

    Attributes:
        run: the winner's run: folder, card, account.
        settings: of the winner, as drawn.
        tradeoff: the cost of the whole search, a bracket.
        law: of the number of trials, which itself stays secret.
        noise_multiplier: of every trial.
        score_noise: standard deviation of a score in records; None for public validation data.
    """

    run: Run
    settings: Mapping[str, Any]
    tradeoff: TradeOff
    law: TrialLaw
    noise_multiplier: float
    score_noise: float | None


@dataclass(frozen=True)
class Search:
    """What a search is before any record is read: law, space, and noise solved backwards from the total.

    Attributes:
        law: of the number of trials.
        space: of the settings.
        rate: largest sampling rate of a setting.
        steps: largest number of steps of a setting.
        noise_multiplier: of every trial.
        score_noise: of the scores; None for public validation data.
    """

    law: TrialLaw
    space: Space
    rate: float
    steps: int
    noise_multiplier: float
    score_noise: float | None

    @property
    def mechanism(self) -> Mechanism:
        """The whole search. A setting of a lower rate and of fewer steps is dominated by this trial."""
        training = Gaussian(self.noise_multiplier).poisson(self.rate) * self.steps
        if self.score_noise is None:
            return Selection.of(training, law=self.law)
        return Selection.of(Parallel.of(training, DiscreteGaussian(self.score_noise)), law=self.law)


def tune(
    preset: str | Config,
    space: Mapping[str, Sequence[Any]] | None = None,
    *,
    target: Epsilon,
    trials: float = 20,
    law: str | float | TrialLaw = "logarithmic",
    validation: str = "private",
    validation_share: float = 0.1,
    data_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    budget: str | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> Tuned:
    """Train `preset` with random settings of `space`, K ~ `law` times, and keep the run of the best noisy score.

    The whole search costs `target`: the noise of each trial is solved backwards from it before K is drawn
    (`mechanisms.Selection`). A score counts right answers on records that no trial trains on, with exact discrete
    Gaussian noise; both kinds of records have the same guarantee. Nothing of the other trials is kept, logged or shown,
    K neither. The search counts in full from its beginning: a killed one spent its target.

    Args:
        preset: a preset, a TOML file, or a configuration.
        space: name of a setting -> values to draw from; see `space_of`.
        target: of everything together.
        trials: E K, > 1.
        law: "logarithmic", "geometric", "poisson", or the shape in (-1, 1] of a negative binomial law.
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
    """
    check.instance("target", target, Epsilon, "one such as Epsilon(3.0, 1e-5)")
    check.choice("validation", validation, VALIDATION)
    check.probability("validation_share", validation_share, open_low=True, open_high=True)
    config = _config(preset, {"epsilon": target.epsilon, "delta": target.delta, **(overrides or {})})
    drawn_from, chosen = space_of(config, space), law_of(law, trials=trials)
    aside = validation_share if validation == "private" else 0.0

    def whole(records: int | None) -> Mechanism | None:
        if records is None:
            return None
        kept = max(1, round(records * (1 - aside)))
        return plan_search(config, drawn_from, chosen, target, kept, private=aside > 0).mechanism

    charged = RunBudget.find(config, budget, whole)
    dataset = dataset_of(config, data_dir, on_progress)
    charged.recognise(config, dataset)
    if dataset.task != "classification":
        raise check.fail("preset", "one of a classification, whose scores are counts", dataset.task)
    stream = stream_of(config) or SecureStream()
    split = _Split.of(dataset, validation, validation_share, stream)
    on_progress("noise", 0, 1)
    search = plan_search(config, drawn_from, chosen, target, len(split.training.y_train), private=split.private)
    on_progress("noise", 1, 1)
    method = _Tuning(config, search, split, stream)
    run = train_by(method, config, split.training, charged=charged, data_dir=data_dir, out=out, on_progress=on_progress)
    tradeoff = accountant("pld")(run.card.ledger)
    return Tuned(run, method.settings_drawn, tradeoff, chosen, search.noise_multiplier, search.score_noise)


def plan_search(config: Config, space: Space, law: TrialLaw, target: Epsilon, records: int, *, private: bool) -> Search:
    """The search of which everything together just meets `target`.

    Args:
        config: what trials have in common.
        space: of the settings.
        law: of the number of trials.
        target: of everything together.
        records: of the training part.
        private: whether scores are computed on private records.

    Raises:
        InvalidInput: a batch size is above the number of records, or no noise meets the target.
    """
    sizes = space.values.get("batch_size", (config.batch_size,))
    rate = max(check.real("batch_size", size, low=1, high=records) for size in sizes) / records
    lowest = min(sizes) / records
    epochs = max(space.values.get("epochs", (config.epochs,)))
    steps = resolve_steps(lowest, None, epochs)

    def training(noise: float) -> Mechanism:
        return Selection.of(Gaussian(noise).poisson(rate) * steps, law=law)

    noise = smallest("noise_multiplier", training, target, relation=config.relation).value
    score = None
    if private:
        scored = smallest(
            "score_noise",
            lambda noise: Selection.of(DiscreteGaussian(noise), law=law),
            target,
            relation=config.relation,
        )
        score = scored.value
    return Search(law, space, rate, steps, noise, score)


@dataclass(frozen=True)
class _Split:
    """Training data, and the records that scores are computed on."""

    training: Dataset
    x: np.ndarray
    y: np.ndarray
    private: bool

    @classmethod
    def of(cls, dataset: Dataset, validation: str, share: float, stream: Stream) -> _Split:
        if validation == "public":
            return cls(dataset, dataset.x_test, dataset.y_test, private=False)
        aside = stream.uniform(len(dataset.y_train)) < share
        if not aside.any() or aside.all():
            raise check.fail("validation_share", "one that leaves records for training and for scores", share)
        kept = replace(
            dataset,
            x_train=dataset.x_train[~aside],
            y_train=dataset.y_train[~aside],
            weights=None if dataset.weights is None else dataset.weights[~aside],
            units=None if dataset.units is None else dataset.units[~aside],
            public_facts=(rows_fact(int((~aside).sum()), len(dataset.y_test)), *dataset.public_facts[1:]),
        )
        return cls(kept, dataset.x_train[aside], dataset.y_train[aside], private=True)


class _Tuning(Method[Any]):
    """The search as a training method, so that the winner's folder is that of any other run."""

    resumable: ClassVar[bool] = False
    hides_time: ClassVar[bool] = True

    def __init__(self, config: Config, search: Search, split: _Split, stream: Stream):
        super().__init__(config.method_settings)
        self._search, self._split, self._stream = search, split, stream
        self.settings_drawn: dict[str, Any] = {}

    def train(self, job: Job) -> Trained:
        ledger = job.ledger
        ledger.begin(*common_facts(unit=ledger.unit, secure=self._stream.secure, arithmetic=EXACT_STEPS))
        ledger.assume(HIDDEN)
        ledger.assume(_OWN_COIN if self._split.private else _PUBLIC)
        if isinstance(self._stream, SeededStream):
            ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        # The whole search is in the registry and the file before its first trial: one that is killed has spent it.
        job.write_ahead((self._search.mechanism, 1))
        for part, steps in self._search.mechanism.parts():
            ledger.add(part, steps, NOTE)
        ledger.save(job.folder / "ledger.json")
        job.sign()
        job.on_progress("tuning", 0, 1)
        with tempfile.TemporaryDirectory(prefix="tacit-tune-") as place:
            trials = _Trials(job, self._search, self._split, self._stream, Path(place))
            best = best_trial(self._search.law, self._stream, trials.run, trials.forget)
            if best is None:  # Poisson and no trial: a model that no record entered.
                best = trials.untrained()
            shutil.copyfile(best.folder / MODEL, job.folder / MODEL)
            # Checks of facts are counted: those of the winner alone, since their sum would tell how many trials ran.
            ledger.absorb_marks(best.ledger)
            trials.mark(ledger)
        job.on_progress("tuning", 1, 1)
        self.settings_drawn = best.settings
        winner = best.trained
        told = {"law of trials": str(self._search.law), "P(one trial)": round(self._search.law.once, 3)}
        noise = {"score_noise": self._search.score_noise} if self._search.score_noise else {}
        return replace(winner, settings={**winner.settings, **told, **noise}, config=best.config)

    def nonprivate_baseline(self, job: Job) -> Sequence[Mapping[str, float]]:
        return ()

    def load(self, job: Job) -> Predict:
        return method_of(job.config).load(job)


@dataclass(frozen=True)
class _Trial:
    folder: Path
    settings: dict[str, Any]
    config: Config
    trained: Trained
    ledger: Ledger


class _Trials:
    """Runs single trials in folders of their own and wipes those that are beaten."""

    def __init__(self, job: Job, search: Search, split: _Split, stream: Stream, place: Path):
        self._job, self._search, self._split, self._stream, self._place = job, search, split, stream, place
        self._count = 0
        self._unsafe: dict[str, Standing] = {}
        self._missing: dict[str, str] = {}

    def run(self) -> tuple[float, _Trial]:
        """Train with one setting and score it."""
        self._count += 1
        settings = self._search.space.draw(self._stream)
        config = replace(
            self._job.config, epsilon=None, noise_multiplier=self._search.noise_multiplier, unsafe_seed=self._seed()
        )
        config = replace(config, **settings)
        folder = self._place / str(self._count)
        folder.mkdir()
        ledger = Ledger(relation=self._job.ledger.relation)
        job = replace(self._job, config=config, folder=folder, ledger=ledger, **_ALONE)
        method = method_of(config)
        method.check(job)
        trained = method.train(job)
        self._check_cost(ledger)
        self._unsafe |= dict.fromkeys(ledger.unsafe, ledger.standing)
        self._missing |= {fact.id: fact.says for fact in ledger.facts.assumed}
        kept = replace(config, unsafe_seed=None)
        return self._score(trained.predict), _Trial(folder, settings, kept, trained, ledger)

    def mark(self, ledger: Ledger) -> None:
        """Write into `ledger` what weakens the guarantee of any trial."""
        for switch, standing in self._unsafe.items():
            ledger.mark_unsafe(switch, standing)
        for name, says in self._missing.items():
            ledger.facts.missing(name, says)

    def forget(self, trial: _Trial) -> None:
        """Wipe a trial that is not the best."""
        shutil.rmtree(trial.folder)

    def untrained(self) -> _Trial:
        """A trial of no steps: the initial weights, which are public."""
        raise check.fail("law", "one that makes at least one trial", "Poisson without a trial", "Its cost counts.")

    def _seed(self) -> int | None:
        return None if self._stream.secure else int(self._stream.bits(1)[0] >> np.uint64(33))

    def _score(self, predict: Predict) -> float:
        right = int(np.count_nonzero(predict(self._split.x).argmax(axis=1) == self._split.y))
        if self._search.score_noise is None:
            return float(right)
        return float(right + discrete_gaussian(self._stream, Fraction(self._search.score_noise) ** 2))

    def _check_cost(self, ledger: Ledger) -> None:
        """Every step was one that the planned trial dominates: the same noise, no higher rate, no more steps."""
        steps = 0
        for part, times in ledger.mechanism.parts():
            steps += times
            rate = getattr(part, "sample_rate", 1.0)
            if part != Gaussian(self._search.noise_multiplier).poisson(rate) or rate > self._search.rate:
                raise check.fail("trial", "one of Poisson-subsampled Gaussian steps within the planned cost", str(part))
        if steps > self._search.steps:
            raise check.fail("trial", f"one of at most {self._search.steps} steps", steps)


def _config(preset: str | Config, overrides: Mapping[str, Any]) -> Config:
    if isinstance(preset, Config):
        config = replace(preset, noise_multiplier=None, **overrides)
    else:
        config = read_config(check.text("preset", preset), overrides)
    if config.method != "gradient":
        raise check.fail("method", "gradient, whose trials can be planned alike", config.method)
    for name in ("sampling", "noise"):
        if name in config.sections:
            raise check.fail(
                f"[{name}]", "absent in a search, whose trials sample by Poisson at one noise", "a section"
            )
    if clip_of(config).mechanism(1.0, False) != Gaussian(1.0):
        raise check.fail("clipping", "a fixed one, whose steps are Gaussian", clip_of(config).type)
    return config


def _unreserved(ledger: Ledger) -> None:
    """The search is reserved as a whole."""


def _silent(stage: str, done: int, total: int) -> None:
    """Progress of single trials tells how many there are."""


def _nothing() -> None:
    """Folders of trials are not signed: they never leave the search."""


_ALONE: dict[str, Any] = {"on_progress": _silent, "sign": _nothing, "reserve": _unreserved}
"""What a trial's job tells nobody."""
