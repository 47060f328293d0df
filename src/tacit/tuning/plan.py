"""What a search is before any record is read: its space, its number of trials, and noise solved from the total.

What each trial of a search tells of private validation records of its own, by the [validation] of the trials.

The arguments of a search, and what follows from them before and after the number of records is known.

The parts of a search's records: those that trials train on, score on, and set aside as their holdout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tacit import check
from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.mechanisms import Compose, DiscreteGaussian, Gaussian, Mechanism, Parallel, Selection, TrialLaw
from tacit.mechanisms.selection import law_from_spec
from tacit.noise import Stream, discrete
from tacit.noise.discrete import choice_mechanism, uniform_integer
from tacit.runs import Config
from tacit.runs.methods.base import Predict
from tacit.runs.settings import NO_VALIDATION, ValidationSettings
from tacit.serialization import tuples
from tacit.tradeoff import Epsilon
from tacit.training.holdout import NOISY, epoch_ends
from tacit.training.plan import resolve_steps
from tacit.tuning.search_state import draw_trials


@dataclass(frozen=True)
class TrialHoldout:
    """What a trial tells of its holdout.

    Attributes:
        checkpoint: "noisy", "exponential" or "permute_and_flip".
        cost: standard deviation of the noise of each count, or epsilon of the choice.
        looks: most epochs of a setting, each of which tells a noisy count.
    """

    checkpoint: str
    cost: float
    looks: int

    @property
    def mechanism(self) -> Mechanism:
        """What one trial tells; a setting of fewer epochs is dominated by it."""
        if self.checkpoint == NOISY:
            return DiscreteGaussian(self.cost) * self.looks
        return choice_mechanism(self.cost, method=self.checkpoint)

    def settings(self, given: ValidationSettings) -> ValidationSettings:
        """The [validation] of one trial: with the cost that was solved from the total of all."""
        noisy = self.checkpoint == NOISY
        return replace(given, noise=self.cost if noisy else None, epsilon=None if noisy else self.cost)

    def check_cost(self, told: Compose) -> None:
        """Raise `InvalidInput` unless `told`, of a trial's ledger, is what was planned, with no more looks."""
        steps = sum(times for _, times in told.parts())
        if steps > self.looks or told != Compose.of((replace(self, looks=steps).mechanism, 1)):
            raise check.fail("trial", f"one whose holdout tells at most {self.mechanism}", str(told))


RANDOM_TRIALS = "random_trials"
"""The selection by the best of a secret number of trials."""
SELECTIONS = (RANDOM_TRIALS, *discrete.METHODS)
"""How the winner of a search is selected."""


@dataclass(frozen=True)
class Search:
    """A search that is planned: its arguments, and the noise that their total allows.

    Attributes:
        asked: the arguments.
        rate: largest sampling rate of a setting.
        steps: largest number of steps of a setting.
        noise_multiplier: of every trial.
        held: what a trial tells of its holdout; None without [validation].
        score_cost: standard deviation of a score in records, or epsilon of the choice; None for public scores.
    """

    asked: Asked
    rate: float
    steps: int
    noise_multiplier: float
    held: TrialHoldout | None
    score_cost: float | None

    @property
    def training(self) -> Mechanism:
        """One training. A setting of a lower rate and of fewer steps is dominated by it."""
        return Gaussian(self.noise_multiplier).poisson(self.rate) * self.steps

    @property
    def mechanism(self) -> Mechanism:
        """The whole search: trainings, and of other records what they tell of their holdout, and the scores.

        The best of a secret number of trials is a `mechanisms.Selection`; a fixed number of them is paid for whole, and
        so is the choice among them.
        """
        trials, cost = self.asked.trials, self.score_cost
        trial = [self.training, *(() if self.held is None else (self.held.mechanism,))]
        if isinstance(trials, int):
            assert cost is not None
            return Parallel.of(*(each * trials for each in trial), choice_mechanism(cost, method=self.asked.selection))
        trial += [] if cost is None else [DiscreteGaussian(cost)]
        return Selection.of(trial[0] if len(trial) == 1 else Parallel.of(*trial), law=trials)

    @property
    def told(self) -> dict[str, float | str]:
        """What the card says of it: law or number of trials, and the noise of scores or the choice."""
        trials, held, told = self.asked.trials, self.held, dict[str, Any]()
        if isinstance(trials, int):
            told |= {"trials": trials, "selection": self.asked.selection, "choice_epsilon": self.score_cost}
        else:
            told |= {"law of trials": str(trials), "P(one trial)": round(trials.once, 3)}
            told |= {} if self.score_cost is None else {"score_noise": self.score_cost}
        if held is not None:
            told["validation_noise" if held.checkpoint == NOISY else "checkpoint_epsilon"] = held.cost
        return told

    def __str__(self) -> str:
        trials = self.asked.trials
        if isinstance(trials, int):
            return f"{trials}, all of them paid for; the winner by {self.asked.selection}."
        return f"{trials}; exactly one with probability {trials.once:.2f}. Their number stays secret."


@dataclass(frozen=True)
class Parts:
    """The parts, no record in two of them; the same for all trials, so that a record pays for one of them.

    Attributes:
        training: what trials train on.
        scored: inputs and classes of what scores are computed on.
        held: the holdout of every trial; None without [validation].
    """

    training: Dataset
    scored: tuple[np.ndarray, np.ndarray]
    held: Dataset | None

    @classmethod
    def of(cls, dataset: Dataset, *, public: bool, aside: Sequence[int], held: Sequence[int] | None) -> Parts:
        """The parts of `dataset`: scores on its public test records, or on those `aside`.

        Args:
            dataset: with all training records.
            public: whether scores are computed on the test records.
            aside: rows for scores.
            held: rows for the holdout, none of those aside.
        """
        rows = np.arange(len(dataset.y_train))
        private = dataset.x_train[list(aside)], dataset.y_train[list(aside)]
        scored = (dataset.x_test, dataset.y_test) if public else private
        training = dataset.without(np.isin(rows, [*aside, *(held or ())]))
        return cls(training, scored, None if held is None else dataset.without(~np.isin(rows, held)))

    def right(self, predict: Predict) -> int:
        """How many of the scored records are classified right; one record changes it by at most 1."""
        return int(np.count_nonzero(predict(self.scored[0]).argmax(axis=1) == self.scored[1]))


VALIDATION = ("private", "public")
"""Where scores are computed: on training records set aside, or on the test records, declared public."""


@dataclass(frozen=True)
class Asked:
    """The arguments of a search, all of them public.

    Attributes:
        space: of the settings.
        target: of everything together.
        trials: law of the number of trials; a fixed number for a selection by choice.
        selection: one of SELECTIONS.
        validation: one of VALIDATION.
        validation_share: probability with which a record is set aside.
        holdout: the [validation] of every trial, as it was given: that of a trial has its cost in it.
    """

    space: Space | Candidates
    target: Epsilon
    trials: TrialLaw | int
    selection: str
    validation: str
    validation_share: float
    holdout: ValidationSettings = NO_VALIDATION

    def __post_init__(self) -> None:
        check.choice("validation", self.validation, VALIDATION)
        check.choice("selection", self.selection, SELECTIONS)
        check.probability("validation_share", self.validation_share, open_low=True, open_high=True)
        if self.selection != RANDOM_TRIALS and self.validation == "public":
            raise check.fail("selection", f"{RANDOM_TRIALS} with public validation data", self.selection)

    @property
    def is_choice(self) -> bool:
        """Whether a fixed number of trials is made, and a private choice among them."""
        return isinstance(self.trials, int)

    @property
    def private(self) -> bool:
        """Whether scores are computed on records set aside."""
        return self.validation == "private"

    def whole(self, config: Config, records: int | None) -> Mechanism | None:
        """The whole search on so many records, as nearly as their number tells; None where that is not known."""
        if records is None:
            return None
        kept = records * (1 - self.validation_share) if self.private else float(records)
        kept *= 1 - self.holdout.share if self.holdout.given else 1.0
        return self.plan(config, max(1, round(kept))).mechanism

    def plan(self, config: Config, records: int) -> Search:
        """The search with so many records to train on, of which everything together just meets the target.

        Raises:
            InvalidInput: a batch size is above the number of records, or no noise meets the target.
        """
        space, law = self.space, self.trials
        sizes = space.listed("batch_size", config.batch_size)
        rate = max(check.real("batch_size", size, low=1, high=records) for size in sizes) / records
        epochs = space.listed("epochs", config.epochs)
        steps = resolve_steps(min(sizes) / records, None, max(epochs))

        def solved(name: str, search: Callable[[float], Mechanism]) -> float:
            return smallest(name, search, self.target, relation=config.relation).value

        def whole(trial: Mechanism) -> Mechanism:
            return trial * law if isinstance(law, int) else Selection.of(trial, law=law)

        lengths = [(size / records, each) for size in sizes for each in epochs]
        held = self._planned_holdout(lengths, whole, config.relation) if self.holdout.given else None
        noise = solved("noise_multiplier", lambda each: whole(Gaussian(each).poisson(rate) * steps))
        score = None
        if isinstance(law, int):
            score = 1 / solved("1 / choice_epsilon", lambda each: choice_mechanism(1 / each, method=self.selection))
        elif self.private:
            score = solved("score_noise", lambda each: whole(DiscreteGaussian(each)))
        return Search(self, rate, steps, noise, held, score)

    def _planned_holdout(
        self, lengths: list[tuple[float, float]], whole: Callable[[Mechanism], Mechanism], relation: str
    ) -> TrialHoldout:
        """What a trial tells, so that all trials together tell what the target allows, or a smaller epsilon.

        Args:
            lengths: (sampling rate, epochs) of every setting.
            whole: what one trial tells -> what the search tells.
            relation: of the search.
        """
        given, target = self.holdout, self.target
        if given.noise is not None:
            rule = "left out in a search, which solves it from the total"
            raise check.fail("noise of [validation]", rule, given.noise)
        if given.epsilon is not None and given.epsilon > target.epsilon:
            rule = f"at most that of the search, {target.epsilon:g}"
            raise check.fail("epsilon of [validation]", rule, given.epsilon)
        goal = Epsilon(given.epsilon or target.epsilon, target.delta)
        noisy = given.checkpoint == NOISY
        looks = max(len(epoch_ends(rate, resolve_steps(rate, None, epochs))) for rate, epochs in lengths)

        def trial(value: float) -> TrialHoldout:
            return TrialHoldout(given.checkpoint, value if noisy else 1 / value, looks if noisy else 1)

        name = "validation_noise" if noisy else "1 / checkpoint_epsilon"
        return trial(smallest(name, lambda each: whole(trial(each).mechanism), goal, relation=relation).value)

    def draw_parts(self, records: int, stream: Stream) -> tuple[list[int], list[int] | None]:
        """Rows set aside for scores, and those of the others that are the holdout of every trial; None without one.

        Each record goes there by a coin of its own.

        Raises:
            InvalidInput: a part, or what is left for training, is empty.
        """
        aside, rule = np.zeros(records, dtype=bool), "one that leaves records for training and for "
        if self.private:
            aside = stream.uniform(records) < self.validation_share
            check.that(aside.any() and not aside.all(), "validation_share", f"{rule}scores", self.validation_share)
        if not self.holdout.given:
            return np.flatnonzero(aside).tolist(), None
        held = ~aside & (stream.uniform(records) < self.holdout.share)
        if not held.any() or (held | aside).all():
            raise check.fail("share of [validation]", f"{rule}the holdout", self.holdout.share)
        return np.flatnonzero(aside).tolist(), np.flatnonzero(held).tolist()

    def draw_trials(self, stream: Stream) -> int:
        """How many trials are made."""
        return self.trials if isinstance(self.trials, int) else draw_trials(self.trials, stream)

    def table(self) -> dict[str, Any]:
        """JSON form; `of` is its inverse."""
        space = self.space
        return vars(self) | {
            "space": dict(space.values) if isinstance(space, Space) else [dict(each) for each in space.settings],
            "target": [self.target.epsilon, self.target.delta],
            "trials": self.trials if isinstance(self.trials, int) else self.trials.spec(),
            "holdout": asdict(self.holdout),
        }

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Asked:
        """The arguments that `table` was made of."""
        drawn, trials = table["space"], table["trials"]
        made = {
            "space": Candidates(tuple(drawn)) if isinstance(drawn, list) else Space(drawn),
            "target": Epsilon(*table["target"]),
            "trials": trials if isinstance(trials, int) else law_from_spec(trials),
            "holdout": ValidationSettings(**table["holdout"]),
        }
        return cls(**{**table, **made})


FREE = (
    *("learning_rate", "learning_rate_schedule", "momentum", "optimizer", "clip_norm", "hidden"),
    *("batch_size", "epochs", "adam_floor", "count_padding"),
)
"""Settings that may vary: none of them changes the data, the target or the noise."""
_RATES = [Fraction(2) ** k for k in range(-1, 3)]
_CLIPS = [Fraction(2) ** k for k in range(-1, 1)]


@dataclass(frozen=True)
class Space:
    """Lists of values by the name of the setting; a trial draws each one uniformly and independently.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sorted(Space({"learning_rate": (0.1, 1.0), "clip_norm": (1.0,)}).draw(SeededStream(0)))
        ['clip_norm', 'learning_rate']
    """

    values: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        if not self.values:
            raise check.fail("space", "lists of values by the name of the setting", dict(self.values))
        for name, listed in self.values.items():
            if not isinstance(listed, list | tuple) or not listed:
                raise check.fail(f"space.{name}", "a list with at least one value", listed)

    def listed(self, name: str, default: Any) -> tuple[Any, ...]:
        """The values of setting `name`; `default` alone where it does not vary."""
        return tuple(self.values.get(name, (default,)))

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One setting."""
        return {name: listed[uniform_integer(stream, len(listed))] for name, listed in self.values.items()}


@dataclass(frozen=True)
class Candidates:
    """A list of whole settings, the same names in each; a trial draws one of them uniformly.

    Example:
        >>> from tacit.noise import SeededStream
        >>> pairs = Candidates(({"learning_rate": 0.1, "epochs": 9}, {"learning_rate": 0.2, "epochs": 5}))
        >>> pairs.draw(SeededStream(0)) in pairs.settings
        True
    """

    settings: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        if not self.settings or not self.settings[0]:
            raise check.fail("candidates", "a list with at least one table of settings", self.settings)
        for each in self.settings:
            if each.keys() != self.settings[0].keys():
                raise check.fail("candidates", f"tables of {', '.join(self.settings[0])}", ", ".join(each))

    def listed(self, name: str, default: Any) -> tuple[Any, ...]:
        """The values of setting `name`; `default` alone where it does not vary."""
        return tuple(each[name] for each in self.settings) if name in self.settings[0] else (default,)

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One candidate."""
        return dict(self.settings[uniform_integer(stream, len(self.settings))])


def space_of(config: Config, values: Mapping[str, Sequence[Any]] | Candidates | None = None) -> Space | Candidates:
    """The space around `config`: `values`, or learning rates from 1/2 to 4 times its own and bounds of 1/2 and 1.

    Args:
        config: of every trial.
        values: name of a setting -> values, or whole candidates; each must be a setting of FREE.

    Raises:
        InvalidInput: a name is no setting that may vary, or a list is empty.

    Example:
        >>> list(space_of(Config(epsilon=3.0)).values)
        ['learning_rate', 'clip_norm']
    """
    if values is None:
        rates = tuple(float(config.learning_rate * factor) for factor in _RATES)
        return Space({"learning_rate": rates, "clip_norm": tuple(float(config.clip_norm * each) for each in _CLIPS)})
    check.keys("the space", values.settings[0] if isinstance(values, Candidates) else values, FREE)
    if isinstance(values, Candidates):
        return Candidates(tuple(map(tuples, values.settings)))
    lists = Space(values).values  # Which refuses a value that is no list.
    return Space({name: [tuple(each) if isinstance(each, list) else each for each in lists[name]] for name in lists})
