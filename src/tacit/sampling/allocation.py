"""Random allocation: every record once in an epoch, in a step of its own drawing (balls and bins).

Balanced iteration sampling: every record in exactly k of the T steps of a run, a subset of its own drawing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput
from tacit.mechanisms import BalancedIteration, Gaussian, MatrixGaussian, Mechanism, RandomAllocation
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import uniform_integers
from tacit.relation import Relation
from tacit.sampling.base import Batch, Sampler, Sampling, epoch_steps


@dataclass(frozen=True)
class RandomAllocationSampling(Sampling):
    """Each record in one of the T = 1 / sample_rate steps (rounded up) of every epoch, drawn uniformly by itself.

    Batches vary in size as Poisson samples do, every record is used exactly once in an epoch, and an epoch costs less
    than one of Poisson samples at every setting of the documentation. Noise may change from epoch to epoch only. An
    epoch that is interrupted counts as a whole one, and a resumed run begins a new one: which steps the records are
    still to enter is secret, and no checkpoint holds it.

    Args:
        series: see `RandomAllocation`; a run numbers its own.

    Example:
        >>> RandomAllocationSampling().steps_alike(10, 0.2)
        5
    """

    type: ClassVar[str] = "random_allocation"
    uniform: ClassVar[bool] = True
    relations: ClassVar[tuple[Relation, ...]] = (Relation.ADD_REMOVE, Relation.ZERO_OUT)
    series: int = 0

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> RandomAllocationSampler:
        """A sampler of T steps an epoch."""
        return RandomAllocationSampler(records, self.steps_alike(records, sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`RandomAllocation` of `base`; raises `InvalidInput` unless that is Gaussian."""
        if not isinstance(base, Gaussian):
            raise InvalidInput(f"random_allocation sampling must be used with Gaussian noise; got {base}.")
        return RandomAllocation(base, self.steps_alike(records, sample_rate), self.series)

    def steps_alike(self, records: int, sample_rate: float) -> int:
        """T, the steps of an epoch."""
        return epoch_steps(sample_rate)


class RandomAllocationSampler(Sampler):
    """The batches of epochs, their records in ascending order.

    Args:
        records: number of records, >= 1.
        steps_per_epoch: T >= 1.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sampler = RandomAllocationSampler(4, 2, SeededStream(0))
        >>> sorted([*sampler.draw().indices.tolist(), *sampler.draw().indices.tolist()])
        [0, 1, 2, 3]
    """

    def __init__(self, records: int, steps_per_epoch: int, stream: Stream | None = None):
        self.records = check.count("records", records)
        self.steps_per_epoch = check.count("steps_per_epoch", steps_per_epoch)
        self.expected_size = self.records / self.steps_per_epoch
        self._stream = stream if stream is not None else SecureStream()
        self._left: list[NDArray[np.int64]] = []

    def draw(self) -> Batch:
        """The next batch of this epoch, or the first of a new one."""
        if not self._left:
            self._left = self._dealt()[::-1]
        return Batch(self._left.pop())

    def _dealt(self) -> list[NDArray[np.int64]]:
        """The records of every step of an epoch."""
        steps = uniform_integers(self._stream, self.steps_per_epoch, self.records)
        order = np.argsort(steps, kind="stable")
        ends = np.cumsum(np.bincount(steps, minlength=self.steps_per_epoch))
        return np.split(order, ends[:-1])

    def state(self) -> dict[str, Any]:
        """Whether an epoch is unfinished; who is in its other steps only where a seed would tell it anyway."""
        state = super().state() | {"unfinished": bool(self._left)}
        if self._stream.secure or not self._left:
            return state
        sizes = np.array([len(batch) for batch in self._left])
        return state | {"left": np.concatenate(self._left), "sizes": sizes}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: with the steps that it holds, else with a new epoch."""
        super().restore(state)
        self._left = np.split(state["left"], np.cumsum(state["sizes"])[:-1]) if "left" in state else []
        self.interrupted = state["unfinished"] and not self._left


_CELLS = 1 << 24
"""Records times steps that are drawn at a time, one byte each."""


@dataclass(frozen=True)
class BalancedIterationSampling(Sampling):
    """Each record in exactly k = round(sample_rate * T) of the T steps of a run, at least 1, drawn uniformly by itself.

    Batches vary in size, and every record is used equally often, whatever the number of steps is. What is accounted
    for is a bound from above by k epochs of random allocation over floor(T / k) steps or one more, T in all; where k
    divides T, `random_allocation` meets it exactly. A run that was begun costs the whole of it; a resumed one draws
    new subsets for the steps that are left, and counts as another run: which steps a record is still to enter is
    secret.

    Args:
        iterations: T >= 1, steps of the run; a run gives its own.
        series: a run numbers its own.

    Example:
        >>> BalancedIterationSampling(iterations=50).participations(0.1)
        5
    """

    type: ClassVar[str] = "balanced_iteration"
    uniform: ClassVar[bool] = True
    whole_run: ClassVar[bool] = True
    iterations: int | None = None
    series: int = 0

    def __post_init__(self) -> None:
        if self.iterations is not None:
            check.count("iterations", self.iterations)

    def participations(self, sample_rate: float) -> int:
        """k, the steps that each record takes part in."""
        return max(1, round(sample_rate * self._known()))

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> BalancedIterationSampler:
        """A sampler of runs of T steps."""
        return BalancedIterationSampler(records, self._known(), self.participations(sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`BalancedIteration` of a run of independent noise; raises `InvalidInput` for another base."""
        if not isinstance(base, MatrixGaussian) or base.strategy.bands > 1:
            raise InvalidInput(f"{self.type} sampling must be of a run of independent Gaussian noise; got {base}.")
        drawn = self.for_steps(base.strategy.iterations)
        step = Gaussian(base.noise_multiplier)
        return BalancedIteration(step, drawn._known(), drawn.participations(sample_rate), self.series)

    def for_steps(self, steps: int) -> BalancedIterationSampling:
        """This sampling for a run of so many steps."""
        return replace(self, iterations=steps)

    def _known(self) -> int:
        if self.iterations is None:
            raise check.fail("iterations", "given, the number of steps of the run", None)
        return self.iterations


class BalancedIterationSampler(RandomAllocationSampler):
    """The batches of runs, their records in ascending order.

    Args:
        records: number of records, >= 1.
        iterations: T >= 1, steps of a run.
        participations: k in [1, T], steps of each record.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sampler = BalancedIterationSampler(3, 4, 2, SeededStream(0))
        >>> sorted(record for _ in range(4) for record in sampler.draw().indices.tolist())
        [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, records: int, iterations: int, participations: int, stream: Stream | None = None):
        super().__init__(records, iterations, stream)
        if check.count("participations", participations) > iterations:
            raise check.fail("participations", f"at most iterations = {iterations}", participations)
        self.participations = participations
        self.expected_size = records * participations / iterations

    def _dealt(self) -> list[NDArray[np.int64]]:
        rows = max(1, _CELLS // self.steps_per_epoch)
        found = [self._members(start, min(rows, self.records - start)) for start in range(0, self.records, rows)]
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _members(self, start: int, count: int) -> list[NDArray[np.int64]]:
        """Records `start`, ..., `start + count - 1` by step, by Floyd's algorithm for a uniform subset of each."""
        inside = np.zeros((self.steps_per_epoch, count), dtype=bool)
        records = np.arange(count)
        for last in range(self.steps_per_epoch - self.participations, self.steps_per_epoch):
            step = uniform_integers(self._stream, last + 1, count)
            inside[np.where(inside[step, records], last, step), records] = True
        return [start + np.flatnonzero(row) for row in inside]
