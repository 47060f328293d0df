"""Matrix mechanisms: Gaussian noise correlated over the steps of a run, and what samples its batches."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tacit import check
from tacit.errors import InvalidInput
from tacit.mechanisms.base import Mechanism, OnBatches
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.toeplitz import ToeplitzStrategy, TreeStrategy

Strategy = ToeplitzStrategy | TreeStrategy


@dataclass(frozen=True)
class MatrixGaussian(Mechanism):
    """x + C^-1 z for a whole run: x_t sums contributions of norm 1, z is independent N(0, noise_multiplier^2).

    The release is post-processing of C x + z. A record that takes part in one step moves C x by one column, of norm at
    most 1, so the run costs one Gaussian release; `min_separation`, `CyclicPoisson` and `CyclicAllocation` say what
    more steps cost.

    One mechanism is a whole run, whose number of steps is that of the strategy.

    Args:
        noise_multiplier: std of z in units of the clipping norm.
        strategy: C; its number of iterations is the length of the run.

    Example:
        >>> run = MatrixGaussian(2.0, ToeplitzStrategy(100, (1.0, 0.5)))
        >>> print(run.accounted(1)[0])
        Gaussian(2)
    """

    type: ClassVar[str] = "matrix_gaussian"
    takes_samples: ClassVar[bool] = False
    noise_multiplier: float
    strategy: Strategy

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, Strategy):
            raise check.fail("strategy", "a ToeplitzStrategy or a TreeStrategy", type(self.strategy).__name__)
        Gaussian(self.noise_multiplier)

    def min_separation(self, participations: int, separation: int) -> Gaussian:
        """The Gaussian mechanism that a run equals whose records take part so often, at least so many steps apart."""
        often = self.strategy.sensitivity(participations=participations, separation=separation)
        return Gaussian(self.noise_multiplier / often)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(the Gaussian release of one participation, runs)."""
        return self.min_separation(1, self.strategy.iterations), steps

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        described = {"iterations": self.strategy.iterations, "strategy": self.strategy.spec()}
        return {"type": self.type, "noise_multiplier": self.noise_multiplier} | described

    def __str__(self) -> str:
        kind = "a tree" if isinstance(self.strategy, TreeStrategy) else f"{self.strategy.bands} bands"
        return f"MatrixGaussian({self.noise_multiplier:g}, {kind} of {self.strategy.iterations})"


@dataclass(frozen=True)
class MinSeparation(OnBatches):
    """A step of a run whose records take part at most `participations` times, at least `separation` steps apart.

    Who takes part when counts as known: nothing is amplified, and any strategy will do. The run is the Gaussian
    mechanism on C x, whose sensitivity is the strategy's over all such patterns. It does not split into steps, so a run
    that was begun costs the whole of it.

    Args:
        base: the run.
        participations: k >= 1.
        separation: s >= 1, steps between the starts of two participations.
        series: >= 0, number of the run that the step belongs to.

    Example:
        >>> run = MatrixGaussian(2.0, ToeplitzStrategy(100, (1.0, 0.5)))
        >>> print(*MinSeparation(run, participations=4, separation=25).accounted(7))
        Gaussian(1) 1
    """

    type: ClassVar[str] = "min_separation"
    base: MatrixGaussian
    participations: int
    separation: int
    series: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _check_base(self.type, self.base)
        check.count("series", self.series, minimum=0)
        self.base.min_separation(self.participations, self.separation)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(the Gaussian mechanism that a run equals, runs begun)."""
        whole = self.base.min_separation(self.participations, self.separation)
        return whole, -(-steps // self.base.strategy.iterations)

    def __str__(self) -> str:
        return f"{self.base}.min_separation({self.participations} times, {self.separation} apart)"


def _check_base(kind: str, base: object) -> None:
    if not isinstance(base, MatrixGaussian):
        raise InvalidInput(f"{kind} must be applied to a matrix_gaussian mechanism; got {base}.")


@dataclass(frozen=True)
class _Cyclic(OnBatches):
    """A step of a run whose records are split into `groups`; step t draws from group t mod `groups` alone.

    C has at most `groups` bands, so the columns that one record can touch are orthogonal: projected on them the run is
    a composition of independent releases, one for each eligible step, of noise `noise_multiplier` (Choquette-Choo et
    al. 2023, arXiv:2306.08153, Theorem 4). Groups count as known; that of a record must not depend on other records.
    The first group has the most turns, and columns of norm 1 at all of them, so its cost is reached.
    """

    base: MatrixGaussian
    groups: int
    series: int = field(default=0, kw_only=True)

    def _check(self) -> None:
        _check_base(self.type, self.base)
        strategy = self.base.strategy
        if not isinstance(strategy, ToeplitzStrategy):
            raise check.fail("strategy", f"banded for {self.type} batches", type(strategy).__name__)
        if check.count("groups", self.groups) < strategy.bands:
            raise check.fail("groups", f"at least the {strategy.bands} bands of the strategy", self.groups)
        last = (strategy.iterations - 1) // self.groups * self.groups
        if not strategy.normalised and last > strategy.iterations - strategy.bands:
            raise InvalidInput(
                "strategy must be normalised; its last columns have smaller norms. Pass normalised=True."
            )
        check.count("series", self.series, minimum=0)

    def _eligible(self, steps: int) -> int:
        """Steps of the first group among the first `steps`."""
        if steps > self.base.strategy.iterations:
            raise check.fail("steps", f"at most the strategy's {self.base.strategy.iterations} iterations", steps)
        return -(-steps // self.groups)

    @property
    def _noise(self) -> Gaussian:
        """The noise of one eligible step, at its largest column."""
        return Gaussian(self.base.noise_multiplier / self.base.strategy.sensitivity())


@dataclass(frozen=True)
class CyclicPoisson(_Cyclic):
    """Poisson samples of the group whose turn it is: ceil(n / groups) Poisson-subsampled Gaussian steps.

    Args:
        base: the run.
        groups: at least the number of bands.
        sample_rate: in (0, 1], of a record of the group: groups x batch size / records.
        series: >= 0, number of the run that the step belongs to.

    Example:
        >>> run = MatrixGaussian(1.0, ToeplitzStrategy(1000, (1.0, 0.5)))
        >>> print(*CyclicPoisson(run, groups=8, sample_rate=0.08).accounted(1000))
        Gaussian(1).poisson(0.08) 125
    """

    type: ClassVar[str] = "cyclic_poisson"
    sample_rate: float

    def __post_init__(self) -> None:
        self._check()
        check.probability("sample_rate", self.sample_rate, open_low=True, hint="Use groups * batch_size / n.")

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(a sampled step, eligible steps of the first group)."""
        return self._noise.poisson(self.sample_rate), self._eligible(steps)

    def __str__(self) -> str:
        return f"{self.base}.cyclic_poisson({self.groups} groups, {self.sample_rate:g})"


@dataclass(frozen=True)
class CyclicAllocation(_Cyclic):
    """Random allocation within the groups: a record is in one of every `steps_per_block` turns of its group.

    Args:
        base: the run.
        groups: at least the number of bands.
        steps_per_block: T >= 1, turns of a group among which a record's is drawn uniformly.
        series: >= 0, number of the run that the step belongs to.

    Example:
        >>> run = MatrixGaussian(1.0, ToeplitzStrategy(960, (1.0, 0.5)))
        >>> CyclicAllocation(run, groups=8, steps_per_block=12).accounted(960)[1]
        10
    """

    type: ClassVar[str] = "cyclic_allocation"
    steps_per_block: int

    def __post_init__(self) -> None:
        self._check()
        check.count("steps_per_block", self.steps_per_block)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(an epoch of random allocation, blocks begun)."""
        return self._noise.allocated(self.steps_per_block).accounted(self._eligible(steps))

    def __str__(self) -> str:
        return f"{self.base}.cyclic_allocation({self.groups} groups, {self.steps_per_block})"
