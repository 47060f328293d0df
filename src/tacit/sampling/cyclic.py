"""Samplers that keep a record's steps apart, as correlated noise needs: by groups that take turns, or by fixed bins."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.errors import InvalidInput
from tacit.mechanisms import BallsAndBins, Gaussian, Mechanism
from tacit.mechanisms.matrix import CyclicAllocation, CyclicPoisson, MatrixGaussian, MinSeparation
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import uniform_integers
from tacit.relation import Relation
from tacit.sampling.allocation import RandomAllocationSampler
from tacit.sampling.base import Batch, Sampler, Sampling, epoch_steps
from tacit.sampling.poisson import bernoulli

KNOWN_GROUPS = (
    "Which group or bin a record is in counts as known, although it is secret: the lower end of an epsilon is that of "
    "an attacker who knows it."
)


@dataclass(frozen=True)
class _CyclicSampling(Sampling):
    """Records are split into `groups` at random; step t draws its batch from group t mod `groups` alone."""

    assumptions: ClassVar[tuple[str, ...]] = (KNOWN_GROUPS,)
    separates: ClassVar[bool] = True
    groups: int | None = None
    series: int = 0

    def __post_init__(self) -> None:
        if self.groups is not None:
            check.count("groups", self.groups)

    def for_bands(self, bands: int) -> _CyclicSampling:
        """This sampling with as many groups as bands, unless their number was given."""
        return self if self.groups is not None else replace(self, groups=bands)

    def spec(self) -> dict[str, Any]:
        """JSON form."""
        return {"type": self.type} | ({"groups": self.groups} if self.groups is not None else {})

    def _rate_in_group(self, sample_rate: float) -> tuple[int, float]:
        """(groups, the probability of a record at its group's turn): groups * sample_rate, at most 1."""
        if self.groups is None:
            raise check.fail("groups", "given, at least the bands of the noise", None, "One is plain sampling.")
        rate = self.groups * sample_rate
        # A rate of batch_size / n is a rounded quotient.
        if rate > 1 + 1e-9:
            hint = f"A group must hold a batch: use at most {max(1, int(1 / sample_rate))} bands, or smaller batches."
            raise check.fail("groups", f"at most 1 / sample_rate = {1 / sample_rate:g}", self.groups, hint)
        return self.groups, min(rate, 1.0)


def _matrix(sampling: Sampling, base: Mechanism) -> MatrixGaussian:
    if not isinstance(base, MatrixGaussian):
        raise InvalidInput(f"{sampling.type} sampling must be of a run, a matrix_gaussian mechanism; got {base}.")
    return base


@dataclass(frozen=True)
class CyclicPoissonSampling(_CyclicSampling):
    """Poisson samples of the group whose turn it is, each record with probability groups * sample_rate.

    A record's steps are at least `groups` apart. A checkpoint does not hold the groups; a resumed run draws new ones
    and counts as another run.

    Args:
        groups: at least the bands of the noise; as many by default.
        series: see `CyclicPoisson`; a run numbers its own.

    Example:
        >>> CyclicPoissonSampling(groups=4).spec()
        {'type': 'cyclic_poisson', 'groups': 4}
    """

    type: ClassVar[str] = "cyclic_poisson"

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> CyclicPoissonSampler:
        """A sampler of groups in turn."""
        return CyclicPoissonSampler(records, *self._rate_in_group(sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`CyclicPoisson` of a run."""
        return CyclicPoisson(_matrix(self, base), *self._rate_in_group(sample_rate), series=self.series)


@dataclass(frozen=True)
class CyclicAllocationSampling(_CyclicSampling):
    """Random allocation within groups that take turns: each record once in T = 1 / (groups * sample_rate) turns.

    A record's steps are at least `groups` apart, and it takes part exactly once in every T turns of its group. What a
    checkpoint does not hold is as for `CyclicPoissonSampling`.

    Args:
        groups: at least the bands of the noise; as many by default.
        series: see `CyclicAllocation`; a run numbers its own.

    Example:
        >>> CyclicAllocationSampling(groups=4).steps_per_block(0.05)
        5
    """

    type: ClassVar[str] = "cyclic_allocation"
    relations: ClassVar[tuple[Relation, ...]] = (Relation.ADD_REMOVE, Relation.ZERO_OUT)

    def steps_per_block(self, sample_rate: float) -> int:
        """T, the turns of a group of which a record has one, rounded up."""
        return epoch_steps(self._rate_in_group(sample_rate)[1])

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> CyclicAllocationSampler:
        """A sampler of groups in turn."""
        groups, _ = self._rate_in_group(sample_rate)
        return CyclicAllocationSampler(records, groups, self.steps_per_block(sample_rate), stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`CyclicAllocation` of a run."""
        groups, _ = self._rate_in_group(sample_rate)
        return CyclicAllocation(_matrix(self, base), groups, self.steps_per_block(sample_rate), series=self.series)


@dataclass(frozen=True)
class BallsAndBinsSampling(Sampling):
    """Each record in the same one of the T = 1 / sample_rate steps (rounded up) of every epoch, drawn once for the run.

    A record's steps are exactly T apart. With independent noise the secret bin amplifies (`BallsAndBins`), less than
    random allocation does; correlated noise is accounted as if bins were known (`MinSeparation`), for any strategy.

    Args:
        series: a run numbers its own.

    Example:
        >>> BallsAndBinsSampling().bins(0.2)
        5
    """

    type: ClassVar[str] = "balls_and_bins"
    relations: ClassVar[tuple[Relation, ...]] = (Relation.ADD_REMOVE, Relation.ZERO_OUT)
    separates: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = (KNOWN_GROUPS,)
    series: int = 0

    def bins(self, sample_rate: float) -> int:
        """T, the steps of an epoch."""
        return epoch_steps(sample_rate)

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> CyclicPoissonSampler:
        """A sampler of T groups in turn, whole."""
        return CyclicPoissonSampler(records, self.bins(sample_rate), 1.0, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`BallsAndBins` of a run of independent noise, else `MinSeparation`."""
        run, bins = _matrix(self, base), self.bins(sample_rate)
        epochs = -(-run.strategy.iterations // bins)
        if run.strategy.bands == 1:
            return BallsAndBins(Gaussian(run.noise_multiplier), bins, epochs, self.series)
        return MinSeparation(run, epochs, bins, series=self.series)


class CyclicSampler(Sampler):
    """Groups drawn uniformly, each record's by itself, before the first batch; they take turns."""

    def __init__(self, records: int, groups: int, stream: Stream | None):
        self.records = check.count("records", records)
        self.groups = check.count("groups", groups)
        self._stream = stream if stream is not None else SecureStream()
        self._turn = 0
        self._members: list[NDArray[np.int64]] = []

    def draw(self) -> Batch:
        """A batch of the group whose turn it is."""
        if not self._members:
            self._split(uniform_integers(self._stream, self.groups, self.records))
        group = self._turn % self.groups
        self._turn += 1
        return Batch(self._members[group][self._chosen(group)])

    def _split(self, group_of: NDArray[np.int64]) -> None:
        ends = np.cumsum(np.bincount(group_of, minlength=self.groups))
        self._members = np.split(np.argsort(group_of, kind="stable"), ends[:-1])

    @abstractmethod
    def _chosen(self, group: int) -> NDArray[np.int64]:
        """Places of the batch's records among those of the group, ascending."""

    def state(self) -> dict[str, Any]:
        """Whether a run was begun; its groups only where a seed would tell them anyway."""
        state = super().state() | {"unfinished": bool(self._members)}
        if self._stream.secure or not self._members:
            return state
        return state | {"groups": self.group_of(), "turn": self._turn}

    def group_of(self) -> NDArray[np.int64]:
        """The group of each record, shape (records,), after the first batch; as private as the batches."""
        found = np.empty(self.records, np.int64)
        for group, members in enumerate(self._members):
            found[members] = group
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: with the groups that it holds, else with new ones."""
        super().restore(state)
        self._members, self._turn = [], 0
        if "groups" in state:
            self._split(state["groups"])
            self._turn = state["turn"]
        self.interrupted = state["unfinished"] and not self._members


class CyclicPoissonSampler(CyclicSampler):
    """Poisson samples of groups in turn, their records in ascending order.

    Args:
        records: number of records, >= 1.
        groups: >= 1.
        rate: in (0, 1]; probability of a record at its group's turn.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sampler = CyclicPoissonSampler(4, 2, 1.0, SeededStream(0))
        >>> sorted([*sampler.draw().indices.tolist(), *sampler.draw().indices.tolist()])
        [0, 1, 2, 3]
    """

    def __init__(self, records: int, groups: int, rate: float, stream: Stream | None = None):
        super().__init__(records, groups, stream)
        self.rate = check.probability("rate", rate, open_low=True)
        self.expected_size = self.records * self.rate / self.groups

    def _chosen(self, group: int) -> NDArray[np.int64]:
        return bernoulli(self._stream, len(self._members[group]), self.rate)


class CyclicAllocationSampler(CyclicSampler):
    """Random allocation within groups in turn.

    Args:
        records: number of records, >= 1.
        groups: >= 1.
        steps_per_block: T >= 1, turns of a group of which a record has one.
        stream: source of the random bits; a new `SecureStream` by default.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sampler = CyclicAllocationSampler(4, 1, 2, SeededStream(0))
        >>> sorted([*sampler.draw().indices.tolist(), *sampler.draw().indices.tolist()])
        [0, 1, 2, 3]
    """

    def __init__(self, records: int, groups: int, steps_per_block: int, stream: Stream | None = None):
        super().__init__(records, groups, stream)
        self.steps_per_block = check.count("steps_per_block", steps_per_block)
        self.expected_size = self.records / (self.groups * self.steps_per_block)
        self._blocks: list[RandomAllocationSampler | None] = []

    def _split(self, group_of: NDArray[np.int64]) -> None:
        super()._split(group_of)
        self._blocks = [
            RandomAllocationSampler(len(members), self.steps_per_block, self._stream) if len(members) else None
            for members in self._members
        ]

    def _chosen(self, group: int) -> NDArray[np.int64]:
        block = self._blocks[group]
        return block.draw().indices if block is not None else np.empty(0, np.int64)

    def state(self) -> dict[str, Any]:
        """That of the groups; with it where records are still to enter, where a seed would tell it anyway."""
        state = super().state()
        if "groups" in state:
            state["blocks"] = [block.state() if block is not None else {} for block in self._blocks]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken, as for the groups."""
        super().restore(state)
        for block, kept in zip(self._blocks, state.get("blocks", ()), strict=False):
            if block is not None:
                block.restore(kept)
