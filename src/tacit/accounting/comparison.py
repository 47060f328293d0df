"""`compare`: what samplers and correlated noises cost for the same epochs and batch size, and the error of each."""

import math
from dataclasses import dataclass
from typing import Any

from tacit import check
from tacit.accounting.ledger import Ledger
from tacit.accounting.registry import accountant
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import (
    BalancedIteration,
    BallsAndBins,
    CyclicAllocation,
    CyclicPoisson,
    Gaussian,
    MatrixGaussian,
    Mechanism,
    MinSeparation,
    Strategy,
    ToeplitzStrategy,
    TreeStrategy,
)
from tacit.noise.strategy import banded, buffered, prefix_error, square_root, tree_error
from tacit.relation import Relation


@dataclass(frozen=True)
class Compared:
    """One choice of sampler and noise.

    Attributes:
        sampling: name of the sampler.
        noise: name of the noise.
        epsilon: (lower, upper) at delta; None where no exact account is known.
        error: root mean square noise on the prefix sums of clipped gradients, in units of the clipping norm.
    """

    sampling: str
    noise: str
    epsilon: tuple[float, float] | None
    error: float

    def row(self) -> dict[str, Any]:
        """Plain values."""
        low, high = self.epsilon if self.epsilon is not None else (None, None)
        named = {"sampling": self.sampling, "noise": self.noise, "error": self.error}
        return named | {"epsilon_lower": low, "epsilon": high}


def compare(
    noise_multiplier: float,
    *,
    records: int,
    batch_size: float,
    epochs: float,
    delta: float,
    relation: Relation | str = Relation.ADD_REMOVE,
    bands: int = 8,
) -> list[Compared]:
    """Epsilon and error of every sampler and noise at one noise multiplier, by the exact accountant.

    Steps are round(epochs * records / batch_size). The error of a run is the noise on the sums of all its updates at a
    constant learning rate; independent noise has noise_multiplier sqrt((n + 1) / 2).

    Args:
        noise_multiplier: std of each released row over the clipping norm, > 0.
        records: number of records, >= 1.
        batch_size: expected size of a batch, in (0, records].
        epochs: > 0.
        delta: in (0, 1).
        relation: neighbouring relation.
        bands: of banded noise, >= 1; at most records / batch_size of them.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> rows = compare(1.0, records=1000, batch_size=100, epochs=1, delta=1e-5, bands=2)
        >>> [row.noise for row in rows if row.sampling == "cyclic_poisson"]
        ['banded:2']
    """
    records = check.count("records", records)
    rate = check.real("batch_size", batch_size, low=0.0, high=records, open_low=True) / records
    steps = max(1, round(check.positive("epochs", epochs) / rate))
    bands = min(check.count("bands", bands), steps, max(1, int(1 / rate * (1 + 1e-9))))
    found = []
    for sampling, noise, strategy, mechanism in _choices(Gaussian(noise_multiplier), rate, steps, bands):
        tree = isinstance(strategy, TreeStrategy)
        unit = tree_error(steps) / strategy.sensitivity() if tree else prefix_error(strategy)
        ledger = Ledger(relation=relation)
        ledger.add(mechanism, steps)
        try:
            answer = accountant("pld")(ledger).epsilon(check.delta(delta))
            epsilon = (answer.interval[0] or 0.0, float(answer))
        except Refused:
            epsilon = None
        found.append(Compared(sampling, noise, epsilon, noise_multiplier * unit))
    return found


def _choices(base: Gaussian, rate: float, steps: int, bands: int) -> list[tuple[str, str, Strategy, Mechanism]]:
    """(sampler, noise, strategy, a step) of every choice."""
    # A rate of batch_size / records is a rounded quotient.
    of_epoch = math.ceil(1 / rate * (1 - 1e-12))
    epochs = -(-steps // of_epoch)
    in_group = min(1.0, bands * rate)
    single: Strategy = ToeplitzStrategy(steps, (1.0,))
    choices: list[tuple[str, str, Strategy, Mechanism]] = [
        ("poisson", "independent", single, base.poisson(rate)),
        ("random_allocation", "independent", single, base.allocated(of_epoch)),
        ("balls_and_bins", "independent", single, BallsAndBins(base, of_epoch, epochs)),
        ("balanced_iteration", "independent", single, BalancedIteration(base, steps, max(1, round(rate * steps)))),
    ]
    if bands > 1:
        strategy = banded(steps, bands)
        run = MatrixGaussian(base.noise_multiplier, strategy)
        turns = math.ceil(1 / in_group * (1 - 1e-12))
        choices += [
            ("cyclic_poisson", f"banded:{bands}", strategy, CyclicPoisson(run, bands, in_group)),
            ("cyclic_allocation", f"banded:{bands}", strategy, CyclicAllocation(run, bands, turns)),
        ]
    separated: list[tuple[str, Strategy]] = [("tree", TreeStrategy(steps)), ("square_root", square_root(steps))]
    if steps > 1:
        separated.append(("blt:2", buffered(steps, 2)))
    for name, each in separated:
        run = MatrixGaussian(base.noise_multiplier, each)
        choices.append(("balls_and_bins", name, each, MinSeparation(run, epochs, of_epoch)))
    return choices


def check_compared(given: dict[str, object]) -> None:
    """Raise `InvalidInput` unless all of the arguments of a comparison are given."""
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise InvalidInput(f"{missing[0]} must be given with the others of {', '.join(given)}; got none.")
