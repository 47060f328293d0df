"""`TicketPlan`, the settings of a ticket's private phases, and `spend`, the division of a target among them.

The phases are search, choice, training, and a private stopping rule.

Early stopping at an accuracy, measured on public data or, by the sparse vector technique, on private records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from scipy.special import gammainc

from tacit import check
from tacit.accounting import accountant
from tacit.calibration import smallest
from tacit.errors import Refused
from tacit.mechanisms import Approximate, Compose, Gaussian, Mechanism, Parallel
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import choice_mechanism, discrete_laplace
from tacit.relation import Relation
from tacit.root_finding import bisect_integers
from tacit.tickets.ticket import WEIGHTS
from tacit.tradeoff import Epsilon
from tacit.training import Callback

STOP_ON = ("public", "private")


_GRID = 1024
# Thresholds that are drawn for a trial, and the probability that right ones end a run. On grids coarser than a scale of
# so many steps they follow no exponential law.
_TRIALS, _ALARM, _LEAST_SCALE = 64, 1e-9, 32


class PublicStop(Callback):
    """End the run once `metric` of the history is at least `accuracy`; it must be measured on public data.

    Args:
        metric: a name that `evaluate` gives.
        accuracy: in (0, 1].

    Example:
        >>> PublicStop("test", 0.9).on_epoch({"test": 0.95})
        'test reached 0.95'
    """

    def __init__(self, metric: str, accuracy: float):
        self._metric = metric
        self._accuracy = check.probability("accuracy", accuracy, open_low=True)

    def on_epoch(self, row: Mapping[str, float]) -> str | None:
        """The reason to end the run after this epoch, or None."""
        reached = row[check.choice("metric", self._metric, row)]
        return f"{self._metric} reached {reached:.4g}" if reached >= self._accuracy else None


class PrivateStop(Callback):
    """End the run once the accuracy on private records is about `accuracy`: epsilon-DP for all epochs together.

        stop at the first epoch with  h - accuracy n + Lap(4 / epsilon) >= Lap(2 / epsilon),

    h of the n records being classified right and the right side drawn once. One record moves h - accuracy n by at
    most 1 whether it is added, removed or replaced, and the networks it is counted on are released anyway, so this is
    AboveThreshold (Dwork & Roth 2014, Theorem 3.23) for sensitivity 1. All three numbers are multiples of 1/1024, the
    noise is discrete Laplace, drawn exactly, and its scale pays for one step of that grid more.

    Args:
        excess: h - accuracy n of the network as it is now, on private records.
        epsilon: > 0; its cost, which the caller records before training.
        stream: source of the noise.

    Raises:
        InvalidInput: epsilon is not positive.

    Example:
        >>> from tacit.noise import SeededStream
        >>> PrivateStop(lambda: 1e6, 1.0, SeededStream(0)).on_epoch({})
        'the private records are classified well enough'
    """

    def __init__(self, excess: Callable[[], float], epsilon: float, stream: Stream):
        self._excess, self._stream = excess, stream
        # Rounded up, so that the sampler's fraction stays short.
        self._scale = Fraction(math.ceil((_GRID + 1) * 2 / check.positive("epsilon", epsilon)))
        self._threshold = discrete_laplace(stream, self._scale) / _GRID

    def on_epoch(self, row: Mapping[str, float]) -> str | None:
        """The reason to end the run after this epoch, or None."""
        noisy = (round(self._excess() * _GRID) + discrete_laplace(self._stream, 2 * self._scale)) / _GRID
        return "the private records are classified well enough" if noisy >= self._threshold else None

    def state(self) -> dict[str, Any]:
        """The threshold, for a checkpoint."""
        return {"threshold": self._threshold}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the threshold of a checkpoint."""
        self._threshold = state["threshold"]


def check_thresholds(epsilon: float) -> None:
    """Draw thresholds for a trial from streams of their own: together they must be as large as Lap(2 / epsilon) makes.

    The sum of 64 absolute values over their scale follows a gamma law; a right one is refused with probability 1e-9.

    Raises:
        Refused: they are smaller.

    Example:
        >>> check_thresholds(1.0)
    """
    if 2 * _GRID / epsilon < _LEAST_SCALE:
        return
    drawn = (PrivateStop(lambda: 0.0, epsilon, SecureStream()).state()["threshold"] for _ in range(_TRIALS))
    if gammainc(_TRIALS, sum(map(abs, drawn)) * epsilon / 2) < _ALARM:
        raise Refused("thresholds of private stopping must be as noisy as their epsilon states; they are not.")


MODES = ("paper", "T1", "T2", "T3", "T4")
_SEARCHING = ("T2", "T3", "T4")
# Shares of epsilon of search, choice and training: training needs the least noise, a choice among few tickets little.
_SEARCH, _CHOICE, _TRAINING = 0.4, 0.1, 0.5
# Share of epsilon of a private stopping rule, taken from the phase that reads the same records: a tenth as for the
# choice, and half of what T4's choosing part may spend.
_STOPPING, _STOPPING_T4 = 0.1, 0.5


@dataclass(frozen=True)
class TicketPlan:
    """Settings of the private phases; the defaults are the paper's.

    Attributes:
        mode: see `spend`.
        epsilon: of the target of everything together, > 0.
        delta: of that target, in (0, 1).
        batch_size: expected size of a Poisson batch of the training part.
        epochs: of the final training; `search_epochs` of the dense one whose weights T2 to T4 prune.
        densities: shares of weights that T2 to T4 choose from.
        patterns: names of the weights that T2 to T4 may prune; see `prunable`.
        penalty: accuracy points (of 1) that a ticket with all its weights loses to an empty one in the sound score.
        public_size: declared number of records behind those points; not the private count.
        validation_share: probability with which T3 and T4 keep a record for the choice.
        stop_epsilon: ends the final training where everything together has cost this much, at the noise of `epsilon`.
        stop_accuracy: ends it at the first epoch of this accuracy.
        stop_on: where that accuracy is measured: "public" (the metric "test" of `evaluate`, free of charge) or
            "private" (the choosing part, or the training records; see `PrivateStop`, charged to the ledger).

    Example:
        >>> TicketPlan("T2", epsilon=2.0, densities=(0.5, 0.1)).stops_privately
        False
    """

    mode: str = "T2"
    epsilon: float = 1.0
    delta: float = 1e-5
    batch_size: float = 400
    epochs: float = 50
    search_epochs: float = 10
    clip_norm: float = 1.0
    learning_rate: float = 0.1
    densities: tuple[float, ...] = (0.5, 0.25, 0.1, 0.05, 0.02)
    patterns: tuple[str, ...] = WEIGHTS
    penalty: float = 0.0
    public_size: int = 10_000
    validation_share: float = 0.2
    selection: str = "exponential"
    stop_epsilon: float | None = None
    stop_accuracy: float | None = None
    stop_on: str = "public"

    def __post_init__(self) -> None:
        Epsilon(self.epsilon, self.delta)
        for name in ("batch_size", "epochs", "search_epochs", "clip_norm", "learning_rate"):
            check.positive(name, getattr(self, name))
        if not self.densities:
            raise check.fail("densities", "a list with at least one value", self.densities)
        for density in self.densities:
            check.probability("density", density, open_low=True)
        check.probability("validation_share", self.validation_share, open_low=True, open_high=True)
        check.choice("stop_on", self.stop_on, STOP_ON)
        if self.stop_epsilon is not None:
            check.real("stop_epsilon", self.stop_epsilon, low=0.0, high=self.epsilon, open_low=True)
        if self.stop_accuracy is not None:
            check.probability("stop_accuracy", self.stop_accuracy, open_low=True)

    @property
    def stops_privately(self) -> bool:
        """Whether the stopping rule reads private records."""
        return self.stop_accuracy is not None and self.stop_on == "private"


@dataclass(frozen=True)
class Phase:
    """Steps of DP-SGD on Poisson samples, `steps` of them at rate `sample_rate`."""

    sample_rate: float
    steps: int

    def mechanism(self, noise_multiplier: float) -> Mechanism:
        """All steps at `noise_multiplier`."""
        return Gaussian(noise_multiplier).poisson(self.sample_rate) * self.steps


@dataclass(frozen=True)
class Spending:
    """Division of a target among the phases; None where there is no such phase.

    Attributes:
        search: noise multiplier of the search.
        choice: epsilon of the choice.
        training: noise multiplier of the training.
        stopping: epsilon of the stopping rule.
        steps: of the training.
        mechanism: all of it together, which meets the target.

    Example:
        >>> phase = Phase(0.1, 10)
        >>> spent = spend("T1", Epsilon(1.0, 1e-5), search=phase, training=phase, relation=Relation.ADD_REMOVE)
        >>> spent.choice is None
        True
    """

    search: float | None
    choice: float | None
    training: float
    stopping: float | None
    steps: int
    mechanism: Mechanism


@dataclass(frozen=True)
class _Phases:
    """The phases of a mode, without their noise."""

    mode: str
    search: Phase
    training: Phase
    choice: float | None
    stopping: float | None
    selection: str

    def mechanism(self, search: float | None, training: float) -> Mechanism:
        """All phases, composed; parallel in T4, whose choice and stopping rule read records that no training sees."""
        queries = [] if self.choice is None else [choice_mechanism(self.choice, method=self.selection)]
        queries += [] if self.stopping is None else [stopping_mechanism(self.stopping)]
        trainings = [] if search is None else [self.search.mechanism(search)]
        trainings += [self.training.mechanism(training)]
        if self.mode == "T4":
            return Parallel.of(_composed(trainings), _composed(queries))
        return _composed([*trainings, *queries])


def spend(
    mode: str,
    target: Epsilon,
    *,
    search: Phase,
    training: Phase,
    relation: Relation,
    selection: str = "exponential",
    stopping: bool = False,
    limit: float | None = None,
) -> Spending:
    """Noise and epsilons with which `mode` meets `target`.

    - "T1": all on training.
    - "T2" and "T3": search, choice and training one after another. The choice gets a tenth of epsilon; the noises of
      both trainings stand in the ratio of those that would meet 40 % and 50 % of epsilon alone, and are the smallest
      that meet the target together by the exact accountant.
    - "T4": the choice looks at records that no training sees, so both may spend epsilon (`Parallel`).
    - "paper": epsilon_1 = epsilon / 10 for the choice and the rest for training, the tickets themselves unprotected.

    Args:
        mode: one of `MODES`.
        target: of everything together.
        search: steps of the search; not run in "T1" and "paper".
        training: steps of the final training.
        relation: neighbouring relation of the target.
        selection: "exponential" or "permute_and_flip".
        stopping: whether a tenth of epsilon goes to a private stopping rule (in "T4", half of that of the choice).
        limit: ends the training where everything together has cost this epsilon, at the noise of `target`.

    Raises:
        InvalidInput: the mode is unknown, or `limit` leaves no step of training.

    Example:
        >>> phase = Phase(0.1, 10)
        >>> both = {"search": phase, "training": phase, "relation": Relation.ADD_REMOVE}
        >>> spend("T2", Epsilon(1.0, 1e-5), **both).choice
        0.1
    """
    check.choice("mode", mode, MODES)
    whole = target.epsilon if limit is None else limit
    stop = whole * (_STOPPING_T4 if mode == "T4" else _STOPPING) if stopping else None
    choice = None if mode == "T1" else _CHOICE * target.epsilon
    if mode == "T4":
        choice = whole - (stop or 0.0)
    phases = _Phases(mode, search, training, choice, stop, selection)
    if mode == "paper":
        rest = (1 - _CHOICE) * target.epsilon - (stop or 0.0)
        noise, searched, alone = _alone(rest, target, training, relation), None, phases
    else:
        # T4's queries of the other records cost epsilon by themselves, so that training alone decides.
        alone = replace(phases, mode="T2", choice=None, stopping=None) if mode == "T4" else phases
        searched, noise = _calibrated(alone, target, relation)
    steps = training.steps
    if limit is not None:
        phases, steps = _within(phases, alone, searched, noise, Epsilon(limit, target.delta), relation)
    return Spending(searched, choice, noise, stop, steps, phases.mechanism(searched, noise))


def stopping_mechanism(epsilon: float) -> Mechanism:
    """Mechanism of a private stopping rule: pure epsilon-DP, over however many epochs."""
    return Approximate(epsilon, 0.0)


def _within(
    phases: _Phases, alone: _Phases, search: float | None, noise: float, limit: Epsilon, relation: Relation
) -> tuple[_Phases, int]:
    """`phases` with the most steps of training, at most those planned, with which `alone` meets `limit`."""
    exact = accountant("pld")

    def shorter(phases: _Phases, steps: int) -> _Phases:
        return replace(phases, training=replace(phases.training, steps=steps))

    def met(steps: int) -> bool:
        return limit.met(exact(shorter(alone, steps).mechanism(search, noise), relation=relation))

    low = bisect_integers(met, 0, phases.training.steps + 1)
    if not low:
        raise check.fail("stop_epsilon", "more than what search and choice cost", limit.epsilon)
    return shorter(phases, low), low


def _composed(parts: list[Mechanism]) -> Mechanism:
    return parts[0] if len(parts) == 1 else Compose.of(*((part, 1) for part in parts))


# A few plans with every limit on epsilon, whose calibration takes seconds.
@lru_cache(maxsize=64)
def _calibrated(phases: _Phases, target: Epsilon, relation: Relation) -> tuple[float | None, float]:
    """Noise of search and of training with which `phases` meet `target`."""
    if phases.mode not in _SEARCHING:
        return None, _smallest(lambda noise: phases.mechanism(None, noise), target, relation)
    ratio = _ratio(target, phases.search, phases.training, relation)
    noise = _smallest(lambda noise: phases.mechanism(ratio * noise, noise), target, relation)
    return ratio * noise, noise


def _ratio(target: Epsilon, search: Phase, training: Phase, relation: Relation) -> float:
    """Noise of the search over that of the training."""
    first = _alone(_SEARCH * target.epsilon, target, search, relation)
    return first / _alone(_TRAINING * target.epsilon, target, training, relation)


def _alone(epsilon: float, target: Epsilon, phase: Phase, relation: Relation) -> float:
    return _smallest(phase.mechanism, Epsilon(epsilon, target.delta), relation)


def _smallest(build: Callable[[float], Mechanism], target: Epsilon, relation: Relation) -> float:
    return smallest("noise_multiplier", lambda noise: Compose.of((build(noise), 1)), target, relation=relation).value
