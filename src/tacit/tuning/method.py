"""A search as a training method, so that the winner's folder is that of any other run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.accounting import EXACT_RELEASE, Ledger, common_facts
from tacit.mechanisms import Gaussian, Parallel
from tacit.noise import SeededStream, Stream
from tacit.noise.choice import Scores, choose
from tacit.noise.discrete import discrete_gaussian
from tacit.runs import Config
from tacit.runs.methods import Job, Method, Trained, method_of
from tacit.runs.methods.base import Predict
from tacit.runs.resumption import trained_from, trained_table
from tacit.runs.run_signature import MODEL
from tacit.runs.validation import holdout_of
from tacit.serialization import write_bytes
from tacit.standing import Standing
from tacit.training.holdout import OWN_COIN as HELD_BY_COIN
from tacit.tuning.asked import Parts
from tacit.tuning.plan import FixedTrials, RandomTrials, Search
from tacit.tuning.space import frozen
from tacit.tuning.trials import HIDDEN, SearchFile, SearchState, Trial, best_trial, chosen_trial

OWN_COIN = "Each record was set aside for scores by a coin of its own, and the sizes of both parts are public."
"""The assumption behind private scores."""
PUBLIC = "The records that scores were computed on are public, and none of them was trained on."
"""The assumption behind public scores."""
INTERRUPTED = "The search was interrupted for reasons that followed neither the records nor the results of a trial."
"""The assumption behind a search that went on after it was stopped: the trial at work is lost, and made anew."""
_TRIAL = "trial-"
"""How the folder of the trial at work begins; one that was killed left no weights in it."""
_NOTES = {
    RandomTrials: "tuning: the best of a secret number of trials",
    FixedTrials: "tuning: all trials, and a private choice",
}


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
    hides_time: ClassVar[bool] = True
    divides_records: ClassVar[bool] = True

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
        kept = SearchFile(job.folder, self._stream)
        if job.resume:
            self._state = kept.restore()
            for lost in job.folder.glob(f"{_TRIAL}*"):
                shutil.rmtree(lost)
        else:
            kept.save(self._state)
        # The whole search is in the registry and the file before its first trial: one that is killed has spent it. One
        # that goes on finds both there.
        job.write_ahead((self._search.mechanism, 1))
        for part, steps in self._search.mechanism.parts():
            ledger.add(part, steps, _NOTES[type(self._search)])
        ledger.save(job.folder / "ledger.json")
        job.sign()
        job.on_progress("tuning", 0, 1)
        winner = self._winner(job, kept)
        job.on_progress("tuning", 1, 1)
        # Checks of facts are counted: those of the winner alone, since their sum would tell how many trials ran.
        ledger.absorb_marks(winner.ledger)
        self._mark(ledger)
        write_bytes(job.folder / MODEL, winner.model)
        self.settings_drawn = {name: frozen(value) for name, value in winner.settings.items()}
        config = replace(self._config_of_trials(job), **self.settings_drawn)
        trained = trained_from(winner.trained, method_of(config).load(replace(job, config=config)))
        return replace(trained, settings={**trained.settings, **self._search.told}, config=config)

    def nonprivate_baseline(self, job: Job) -> Sequence[Mapping[str, float]]:
        """Nothing: the records set aside would be trained on."""
        return ()

    def load(self, job: Job) -> Predict:
        """The network of the winner."""
        return method_of(job.config).load(job)

    def _assumptions(self, resumed: bool) -> list[str]:
        hidden = [HIDDEN] if isinstance(self._search, RandomTrials) else []
        held = [] if self._parts.held is None else [HELD_BY_COIN]
        return [*hidden, OWN_COIN if self._search.private else PUBLIC, *held, *([INTERRUPTED] if resumed else [])]

    def _winner(self, job: Job, kept: SearchFile) -> Trial:
        search, standings = self._search, self._state.standings

        def save() -> None:
            kept.save(self._state)

        if isinstance(search, FixedTrials):
            return chosen_trial(standings, lambda: self._trial(job), self._choose(job, search), _forget, save)
        best = best_trial(standings, self._stream, lambda: self._trial(job), _forget, save)
        if best is None:
            raise check.fail("law", "one that makes at least one trial", "Poisson without a trial", "Its cost counts.")
        return best

    def _choose(self, job: Job, search: FixedTrials) -> Any:
        def chosen(counts: list[float]) -> int:
            scores = Scores(np.array(counts), 1.0, monotone=True)
            relation = job.ledger.relation
            return choose(scores, search.choice_epsilon, self._stream, relation=relation, method=search.method)

        return chosen

    def _config_of_trials(self, job: Job) -> Config:
        config, held = job.config, self._search.held
        sections = dict(config.sections)
        if held is not None:
            sections["validation"] = held.settings(config.section("validation"))
        noise = self._search.noise_multiplier
        return replace(config, epsilon=None, noise_multiplier=noise, unsafe_seed=None, sections=sections)

    def _trial(self, job: Job) -> tuple[float, Trial]:
        """Train with one setting, and score it; nothing of it is left but what is returned."""
        settings = self._search.space.draw(self._stream)
        seed = None if self._stream.secure else int(self._stream.bits(1)[0] >> np.uint64(33))
        config = replace(self._config_of_trials(job), unsafe_seed=seed, **settings)
        ledger = Ledger(relation=job.ledger.relation)
        holdout = None if self._parts.held is None else holdout_of(config, self._parts.held)
        with tempfile.TemporaryDirectory(prefix=_TRIAL, dir=job.folder) as place:
            alone = replace(job, config=config, folder=Path(place), ledger=ledger, holdout=holdout, **_ALONE)
            method = method_of(config)
            method.check(alone)
            trained = method.train(alone)
            model = (Path(place) / MODEL).read_bytes()
        self._check_cost(ledger)
        self._state.unsafe |= dict.fromkeys(ledger.unsafe, ledger.standing)
        self._state.missing |= {fact.id: fact.says for fact in ledger.facts.assumed}
        return self._score(trained.predict), Trial(settings, trained_table(trained), ledger, model)

    def _score(self, predict: Predict) -> float:
        right = self._parts.scored.right(predict)
        noise = self._search.score_noise if isinstance(self._search, RandomTrials) else None
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

    def _mark(self, ledger: Ledger) -> None:
        """Write into `ledger` what weakens the guarantee of any trial."""
        for switch, standing in self._state.unsafe.items():
            ledger.mark_unsafe(switch, standing)
        for name, says in self._state.missing.items():
            ledger.facts.missing(name, says)


def _forget(trial: Trial) -> None:
    """Drop the only reference to a trial: its folder is gone already."""


def _unreserved(ledger: Ledger) -> None:
    """The search is reserved as a whole."""


def _silent(stage: str, done: int, total: int) -> None:
    """Progress of single trials tells how many there are."""


def _nothing() -> None:
    """Folders of trials are not signed: they never leave the search."""


_ALONE: dict[str, Any] = {
    "on_progress": _silent,
    "sign": _nothing,
    "reserve": _unreserved,
    "checkpoints": False,
    "resume": False,
}
"""What a trial's job tells nobody."""
