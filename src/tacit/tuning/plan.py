"""What a search is before any record is read: its space, its number of trials, and noise solved from the total.

What each trial of a search tells of private validation records of its own, by the [validation] of the trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tacit import check
from tacit.calibration import smallest
from tacit.mechanisms import Compose, DiscreteGaussian, Gaussian, Mechanism, Parallel, Selection, TrialLaw
from tacit.noise import choice
from tacit.noise.choice import choice_mechanism
from tacit.relation import Relation
from tacit.runs import Config
from tacit.runs.loop_settings import NO_VALIDATION, ValidationSettings
from tacit.tradeoff import Epsilon
from tacit.training.holdout import NOISY, epoch_ends
from tacit.training.resolve_plan import resolve_steps
from tacit.tuning.space import Proposals


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
        return _told(self.checkpoint, self.cost, self.looks)

    def settings(self, given: ValidationSettings) -> ValidationSettings:
        """The [validation] of one trial: with the cost that was solved from the total of all."""
        noisy = self.checkpoint == NOISY
        return replace(given, noise=self.cost if noisy else None, epsilon=None if noisy else self.cost)

    def check_cost(self, told: Compose) -> None:
        """Raise `InvalidInput` unless `told`, of a trial's ledger, is what was planned, with no more looks."""
        steps = sum(times for _, times in told.parts())
        if steps > self.looks or told != Compose.of((_told(self.checkpoint, self.cost, steps), 1)):
            raise check.fail("trial", f"one whose holdout tells at most {self.mechanism}", str(told))

    @property
    def in_words(self) -> dict[str, float | str]:
        """What the card says of it."""
        return {"validation_noise" if self.checkpoint == NOISY else "checkpoint_epsilon": self.cost}


def plan_holdout(
    given: ValidationSettings,
    target: Epsilon,
    lengths: Iterable[tuple[float, float]],
    whole: Callable[[Mechanism], Mechanism],
    relation: Relation | str,
) -> TrialHoldout:
    """What a trial tells, so that all trials together tell what `target` allows, or the smaller epsilon of `given`.

    Args:
        given: the [validation] of the trials.
        target: of the whole search.
        lengths: (sampling rate, epochs) of every setting.
        whole: what one trial tells -> what the search tells.
        relation: of the search.

    Raises:
        InvalidInput: epsilon is above that of the search, or noise is given, which follows from the total.
    """
    if given.noise is not None:
        raise check.fail("noise of [validation]", "left out in a search, which solves it from the total", given.noise)
    if given.epsilon is not None and given.epsilon > target.epsilon:
        raise check.fail("epsilon of [validation]", f"at most that of the search, {target.epsilon:g}", given.epsilon)
    goal = target if given.epsilon is None else Epsilon(given.epsilon, target.delta)
    looks = max(len(epoch_ends(rate, resolve_steps(rate, None, epochs))) for rate, epochs in lengths)
    if given.checkpoint == NOISY:
        noise = smallest("validation_noise", lambda each: whole(_told(NOISY, each, looks)), goal, relation=relation)
        return TrialHoldout(NOISY, noise.value, looks)

    def choice(inverse: float) -> Mechanism:
        return whole(_told(given.checkpoint, 1 / inverse, 1))

    inverse = smallest("1 / checkpoint_epsilon", choice, goal, relation=relation).value
    return TrialHoldout(given.checkpoint, 1 / inverse, 1)


def _told(checkpoint: str, cost: float, looks: int) -> Mechanism:
    return DiscreteGaussian(cost) * looks if checkpoint == NOISY else choice_mechanism(cost, method=checkpoint)


RANDOM_TRIALS = "random_trials"
"""The selection by the best of a secret number of trials."""
SELECTIONS = (RANDOM_TRIALS, *choice.METHODS)
"""How the winner of a search is selected."""


@dataclass(frozen=True)
class Search(ABC):
    """A search that is planned.

    Attributes:
        space: of the settings.
        rate: largest sampling rate of a setting.
        steps: largest number of steps of a setting.
        noise_multiplier: of every trial.
        held: what a trial tells of its holdout; None without [validation].
    """

    space: Proposals
    rate: float
    steps: int
    noise_multiplier: float
    held: TrialHoldout | None

    @property
    def training(self) -> Mechanism:
        """One training. A setting of a lower rate and of fewer steps is dominated by it."""
        return Gaussian(self.noise_multiplier).poisson(self.rate) * self.steps

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """The whole search."""

    @property
    @abstractmethod
    def private(self) -> bool:
        """Whether scores are computed on private records."""

    @property
    @abstractmethod
    def told(self) -> dict[str, float | str]:
        """What the card says of it."""

    @property
    def _told_of_holdout(self) -> dict[str, float | str]:
        return {} if self.held is None else self.held.in_words


@dataclass(frozen=True)
class RandomTrials(Search):
    """The best of a secret number of trials (`mechanisms.Selection`).

    Attributes:
        law: of the number of trials.
        score_noise: standard deviation of a score in records; None for public validation data.
    """

    law: TrialLaw
    score_noise: float | None

    @property
    def mechanism(self) -> Mechanism:
        """The best of trials, each a training, and of other records what it tells of its holdout and a noisy score."""
        branches = [self.training]
        branches += [] if self.held is None else [self.held.mechanism]
        branches += [] if self.score_noise is None else [DiscreteGaussian(self.score_noise)]
        return Selection.of(branches[0] if len(branches) == 1 else Parallel.of(*branches), law=self.law)

    @property
    def private(self) -> bool:
        """Whether scores have noise."""
        return self.score_noise is not None

    @property
    def told(self) -> dict[str, float | str]:
        """Law, and noise of the scores."""
        told: dict[str, float | str] = {"law of trials": str(self.law), "P(one trial)": round(self.law.once, 3)}
        told |= {"score_noise": self.score_noise} if self.score_noise is not None else {}
        return told | self._told_of_holdout


@dataclass(frozen=True)
class FixedTrials(Search):
    """A fixed number of trainings, all of them paid for, and one private choice on other records.

    Attributes:
        trials: number of trainings.
        method: "exponential" or "permute_and_flip".
        choice_epsilon: of the choice.
    """

    trials: int
    method: str
    choice_epsilon: float

    @property
    def mechanism(self) -> Mechanism:
        """All trainings for a record that is trained on, the choice for one that is set aside."""
        held = [] if self.held is None else [self.held.mechanism * self.trials]
        choice = choice_mechanism(self.choice_epsilon, method=self.method)
        return Parallel.of(self.training * self.trials, *held, choice)

    @property
    def private(self) -> bool:
        """Return True: a choice on public records needs no mechanism."""
        return True

    @property
    def told(self) -> dict[str, float | str]:
        """Number of trials, and the choice."""
        told = {"trials": self.trials, "selection": self.method, "choice_epsilon": self.choice_epsilon}
        return told | self._told_of_holdout


def plan_search(
    config: Config,
    space: Proposals,
    law: TrialLaw | int,
    target: Epsilon,
    records: int,
    *,
    selection: str = RANDOM_TRIALS,
    private: bool,
    holdout: ValidationSettings = NO_VALIDATION,
) -> Search:
    """The search of which everything together just meets `target`.

    Args:
        config: what trials have in common.
        space: of the settings.
        law: of the number of trials; a fixed number for a selection by choice.
        target: of everything together.
        records: of the training part.
        selection: one of SELECTIONS.
        private: whether scores are computed on private records.
        holdout: the [validation] of the trials.

    Raises:
        InvalidInput: a batch size is above the number of records, or no noise meets the target.
    """
    sizes = space.listed("batch_size", config.batch_size)
    rate = max(check.real("batch_size", size, low=1, high=records) for size in sizes) / records
    epochs = space.listed("epochs", config.epochs)
    steps = resolve_steps(min(sizes) / records, None, max(epochs))
    relation = config.relation

    def solved(name: str, search: Callable[[float], Mechanism]) -> float:
        return smallest(name, search, target, relation=relation).value

    def whole(trial: Mechanism) -> Mechanism:
        return trial * law if isinstance(law, int) else Selection.of(trial, law=law)

    lengths = [(size / records, each) for size in sizes for each in epochs]
    held = plan_holdout(holdout, target, lengths, whole, relation) if holdout.given else None
    noise = solved("noise_multiplier", lambda each: whole(Gaussian(each).poisson(rate) * steps))
    if isinstance(law, int):
        choice_epsilon = 1 / solved("1 / choice_epsilon", lambda each: choice_mechanism(1 / each, method=selection))
        return FixedTrials(space, rate, steps, noise, held, law, selection, choice_epsilon)
    score = solved("score_noise", lambda each: whole(DiscreteGaussian(each))) if private else None
    return RandomTrials(space, rate, steps, noise, held, law, score)
