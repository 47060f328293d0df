"""What each trial of a search tells of private validation records of its own, by the [validation] of the trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tacit import check
from tacit.calibration import smallest
from tacit.mechanisms import Compose, DiscreteGaussian, Mechanism
from tacit.noise.choice import choice_mechanism
from tacit.relation import Relation
from tacit.runs.loop_settings import ValidationSettings
from tacit.tradeoff import Epsilon
from tacit.training.holdout import NOISY, epoch_ends
from tacit.training.resolve_plan import resolve_steps


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
