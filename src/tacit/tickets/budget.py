"""`TicketPlan`, the settings of a ticket's private phases, and `spend`, the division of a target among them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tacit import check
from tacit.calibration import smallest
from tacit.mechanisms import Compose, Gaussian, Mechanism, Parallel
from tacit.noise.discrete import choice_mechanism
from tacit.relation import Relation
from tacit.tickets.ticket import WEIGHTS
from tacit.tradeoff import Epsilon

MODES = ("paper", "T1", "T2", "T3", "T4")
_SEARCHING = ("T2", "T3", "T4")
# Shares of epsilon of search, choice and training: training needs the least noise, a choice among few tickets little.
_SEARCH, _CHOICE, _TRAINING = 0.4, 0.1, 0.5


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

    Example:
        >>> TicketPlan("T2", epsilon=2.0, densities=(0.5, 0.1)).search_epochs
        10
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

    def __post_init__(self) -> None:
        Epsilon(self.epsilon, self.delta)
        for name in ("batch_size", "epochs", "search_epochs", "clip_norm", "learning_rate"):
            check.positive(name, getattr(self, name))
        check.that(self.densities, "densities", "a list with at least one value", self.densities)
        for density in self.densities:
            check.probability("density", density, open_low=True)
        check.probability("validation_share", self.validation_share, open_low=True, open_high=True)


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
    mechanism: Mechanism


# Calibration takes seconds.
@lru_cache(maxsize=64)
def spend(
    mode: str, target: Epsilon, *, search: Phase, training: Phase, relation: Relation, selection: str = "exponential"
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

    Raises:
        InvalidInput: the mode is unknown.

    Example:
        >>> phase = Phase(0.1, 10)
        >>> both = {"search": phase, "training": phase, "relation": Relation.ADD_REMOVE}
        >>> spend("T2", Epsilon(1.0, 1e-5), **both).choice
        0.1
    """
    check.choice("mode", mode, MODES)
    choice = {"T1": None, "T4": target.epsilon}.get(mode, _CHOICE * target.epsilon)
    query = [] if choice is None else [choice_mechanism(choice, method=selection)]

    def solved(build: Callable[[float], Mechanism], epsilon: float = target.epsilon) -> float:
        goal = Epsilon(epsilon, target.delta)
        return smallest("noise_multiplier", lambda each: Compose.of((build(each), 1)), goal, relation=relation).value

    ratio = None
    if mode in _SEARCHING:
        ratio = solved(search.mechanism, _SEARCH * target.epsilon)
        ratio /= solved(training.mechanism, _TRAINING * target.epsilon)

    def trainings(noise: float) -> list[Mechanism]:
        return [*([] if ratio is None else [search.mechanism(ratio * noise)]), training.mechanism(noise)]

    if mode == "paper":
        noise = solved(training.mechanism, (1 - _CHOICE) * target.epsilon)
    else:
        # T4's choice on the other records costs epsilon by itself, so that training alone decides.
        noise = solved(lambda each: _composed(trainings(each) + (query if mode != "T4" else [])))
    parts = trainings(noise)
    whole = Parallel.of(_composed(parts), _composed(query)) if mode == "T4" else _composed(parts + query)
    return Spending(None if ratio is None else ratio * noise, choice, noise, whole)


def _composed(parts: list[Mechanism]) -> Mechanism:
    return parts[0] if len(parts) == 1 else Compose.of(*((part, 1) for part in parts))
