"""How a target is spent on the phases of a ticket: search, choice, training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tacit import check
from tacit.calibration import smallest
from tacit.mechanisms import Compose, Gaussian, Mechanism, Parallel
from tacit.relation import Relation
from tacit.tickets.select import choice_mechanism
from tacit.tradeoff import Epsilon

MODES = ("paper", "T1", "T2", "T3", "T4")
_SEARCH, _CHOICE, _TRAINING = 0.4, 0.1, 0.5
_PAPER_CHOICE = 0.1


@dataclass(frozen=True)
class Phase:
    """Steps of DP-SGD on Poisson samples."""

    sample_rate: float
    steps: int

    def mechanism(self, noise_multiplier: float) -> Mechanism:
        """All steps, as accountants see them."""
        return Gaussian(noise_multiplier).poisson(self.sample_rate) * self.steps


@dataclass(frozen=True)
class Spending:
    """Noise of both trainings and the epsilon of the choice; None where a mode has no such phase.

    Attributes:
        mechanism: all of it together, which meets the target.
    """

    search: float | None
    choice: float | None
    training: float
    mechanism: Mechanism


@lru_cache(maxsize=64)
def spend(
    mode: str, target: Epsilon, *, search: Phase, training: Phase, relation: Relation, selection: str = "exponential"
) -> Spending:
    """The noise with which `mode` meets `target`.

    - "T1": all on training.
    - "T2" and "T3": search, choice and training one after another. The choice gets a tenth of epsilon; the noises of
      both trainings stand in the ratio of those that would meet 40 % and 50 % of epsilon alone, and are the smallest
      that meet the target together by the exact accountant.
    - "T4": the choice looks at records that no training sees, so both may spend epsilon (`Parallel`).
    - "paper": epsilon_1 = epsilon / 10 for the choice and the rest for training, the tickets themselves unprotected.
    """
    check.choice("mode", mode, MODES)
    if mode == "T1":
        return _training_only(target, training, relation)
    if mode == "paper":
        rest = Epsilon((1 - _PAPER_CHOICE) * target.epsilon, target.delta)
        only = _training_only(rest, training, relation)
        choice = _PAPER_CHOICE * target.epsilon
        return Spending(None, choice, only.training, choice_mechanism(choice, method=selection) + only.mechanism)
    ratio = _alone(_SEARCH, target, search, relation) / _alone(_TRAINING, target, training, relation)
    choice = target.epsilon if mode == "T4" else _CHOICE * target.epsilon
    picked = choice_mechanism(choice, method=selection)

    def together(noise: float) -> Mechanism:
        both = search.mechanism(ratio * noise) + training.mechanism(noise)
        return Parallel.of(both, picked) if mode == "T4" else both + picked

    noise = _smallest(together, target, relation)
    return Spending(ratio * noise, choice, noise, together(noise))


def _training_only(target: Epsilon, training: Phase, relation: Relation) -> Spending:
    noise = _smallest(training.mechanism, target, relation)
    return Spending(None, None, noise, training.mechanism(noise))


def _alone(share: float, target: Epsilon, phase: Phase, relation: Relation) -> float:
    return _smallest(phase.mechanism, Epsilon(share * target.epsilon, target.delta), relation)


def _smallest(build: Callable[[float], Mechanism], target: Epsilon, relation: Relation) -> float:
    return smallest("noise_multiplier", lambda noise: Compose.of((build(noise), 1)), target, relation=relation).value
