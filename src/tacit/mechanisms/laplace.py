"""The Laplace mechanism, with noise on the reals or on the integers.

Private choices: exponential mechanism, permute-and-flip, any mechanism of bounded range, randomised response.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.errors import Refused
from tacit.mechanisms.base import PureMechanism, ShiftMechanism
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import AtomPair, EnclosedPair
from tacit.mechanisms.pairs.groups import LARGEST_GROUP, IntegerMixturePair, LaplaceMixturePair, binomial_logs
from tacit.mechanisms.pairs.laplace import (
    DiscreteLaplacePair,
    LaplacePair,
    LaplaceReplacePair,
    PermuteAndFlipPair,
    RangePair,
)
from tacit.mechanisms.renyi import atoms_rdp, pure_rdp
from tacit.relation import Relation

_LARGEST_CHANGE = 10_000  # Its pair has as many losses.
_LONGEST_RANGE = 200.0  # Beyond it a unit more or less is no news, and e^epsilon leaves the doubles.


@dataclass(frozen=True)
class Laplace(ShiftMechanism, PureMechanism):
    """One number plus Laplace noise of density e^{-|x| / scale} / (2 scale).

    Args:
        scale: > 0, in the units of `sensitivity`.
        sensitivity: > 0, the change by adding, removing or zeroing one record; replace-one doubles it here.

    Example:
        >>> Laplace(2.0).pure_epsilon(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "laplace"
    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check.positive("scale", self.scale)
        check.positive("sensitivity", self.sensitivity)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return sensitivity / scale (Dwork, McSherry, Nissim & Smith 2006)."""
        return relation.sensitivity * self.sensitivity / self.scale

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a = log(a/(2a-1) e^{(a-1) t} + (a-1)/(2a-1) e^{-a t}) / (a-1), t = epsilon (Mironov 2017, Table II)."""
        a = np.asarray(orders, dtype=float)
        t = self.pure_epsilon(relation)
        log_moment = np.logaddexp(np.log(a / (2 * a - 1)) + (a - 1) * t, np.log((a - 1) / (2 * a - 1)) - a * t)
        return np.clip(log_moment, 0.0, None) / (a - 1)

    def group_pair(self, size: int, relation: Relation) -> Pair:
        """Lap(epsilon) against Lap(0); smaller shifts are garblings."""
        return LaplacePair(size * self.pure_epsilon(relation))

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `LaplaceMixturePair`."""
        if relation is Relation.REPLACE_ONE or size > LARGEST_GROUP:
            return super().poisson_group_pairs(sample_rate, size, relation)
        logs = binomial_logs(sample_rate, size)
        return tuple(LaplaceMixturePair(self.sensitivity / self.scale, logs, way) for way in (True, False)), 1

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (LaplaceReplacePair(self.sensitivity / self.scale, sample_rate),)
        return super().poisson_pairs(sample_rate, relation)

    def __str__(self) -> str:
        return f"Laplace({self.scale:g})" if self.sensitivity == 1 else f"Laplace({self.scale:g}, {self.sensitivity:g})"


@dataclass(frozen=True)
class DiscreteLaplace(ShiftMechanism, PureMechanism):
    """Integers plus independent integer noise x of probability tanh(parameter / 2) e^{-parameter |x|} each.

    Also called the geometric mechanism (Ghosh, Roughgarden & Sundararajan 2009).

    Args:
        parameter: in [1e-9, 700].
        sensitivity: an integer in [1, 10000], the largest change in L1 norm by adding, removing or zeroing one record;
            replace-one doubles it here.

    Example:
        >>> DiscreteLaplace(0.5, 2).pure_epsilon(Relation.ADD_REMOVE)
        1.0
    """

    type: ClassVar[str] = "discrete_laplace"
    parameter: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check.real("parameter", self.parameter, low=1e-9, high=700.0)
        if check.count("sensitivity", self.sensitivity) > _LARGEST_CHANGE:
            raise check.fail("sensitivity", f"at most {_LARGEST_CHANGE}", self.sensitivity, "Use laplace noise beyond.")

    def _shift(self, relation: Relation) -> int:
        return int(relation.sensitivity) * self.sensitivity

    def pure_epsilon(self, relation: Relation) -> float:
        """Return parameter * sensitivity."""
        return self.parameter * self._shift(relation)

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a of the dominating pair, rounded up; its few losses are summed."""
        return atoms_rdp(self.dominating_pairs(relation), orders)

    def group_pair(self, size: int, relation: Relation) -> Pair:
        """The largest shift, which has a pair up to twice the largest change."""
        if size * self._shift(relation) > 2 * _LARGEST_CHANGE:
            raise self.refusal("pair of groups of records", relation)
        return DiscreteLaplacePair(self.parameter, size * self._shift(relation))

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `IntegerMixturePair`."""
        if size > LARGEST_GROUP or size * self.sensitivity > 2 * _LARGEST_CHANGE:
            return super().poisson_group_pairs(sample_rate, size, relation)
        pair = DiscreteLaplacePair(self.parameter, self.sensitivity)
        return IntegerMixturePair.both_ways(pair, binomial_logs(sample_rate, size), relation), 1

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (DiscreteLaplacePair(self.parameter, self.sensitivity, sample_rate),)
        return super().poisson_pairs(sample_rate, relation)

    def __str__(self) -> str:
        return f"DiscreteLaplace({self.parameter:g}, {self.sensitivity})"


@dataclass(frozen=True)
class _OfEpsilon(PureMechanism):
    """A mechanism that is stated by its pure epsilon, for the relation of the ledger."""

    epsilon: float

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        return self.epsilon

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.epsilon:g})"


@dataclass(frozen=True)
class BoundedRange(ShiftMechanism, _OfEpsilon):
    """Any mechanism whose privacy loss lies in an interval of length epsilon that contains 0.

    Hence epsilon-DP (Durfee & Rogers 2019); `epsilon` is stated for the relation of the ledger.

    Example:
        >>> BoundedRange(1.0).zcdp(Relation.ADD_REMOVE)
        0.125
    """

    type: ClassVar[str] = "bounded_range"

    def zcdp(self, relation: Relation) -> float:
        """Return rho = epsilon^2 / 8 (Cesar & Rogers 2021, Lemma 3.2)."""
        return self.epsilon**2 / 8

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return np.minimum(self.zcdp(relation) * np.asarray(orders, dtype=float), self.epsilon)

    def group_pair(self, size: int, relation: Relation) -> Pair:
        """The smallest pair that covers every place of the interval, also when it is picked adaptively.

        Intervals of losses add up record by record, to one of `size` times the length. One longer than 200 is enclosed
        by all that is epsilon-DP and by two of its own places.
        """
        epsilon = size * self.epsilon
        exact = RangePair(epsilon)
        if epsilon <= _LONGEST_RANGE:
            return exact
        often, mostly = (exact.attained(1 - 2 * below / epsilon) for below in (1.0, 20.0))
        return EnclosedPair(AtomPair.response(epsilon), often, mostly)


@dataclass(frozen=True)
class Exponential(BoundedRange):
    """Picks an outcome with probability proportional to e^{epsilon * score / (2 * sensitivity)}.

    Example:
        >>> Exponential(0.5).pure_epsilon(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "exponential"


@dataclass(frozen=True)
class PermuteAndFlip(ShiftMechanism, _OfEpsilon):
    """Permute-and-flip (McKenna & Sheldon 2020), epsilon-DP: the arg max of scores with exponential noise.

    The Laplace pair of `epsilon` dominates it; the proof stands at `PermuteAndFlipPair`. `epsilon` is stated for the
    relation of the ledger.

    Example:
        >>> PermuteAndFlip(0.5).pure_epsilon(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "permute_and_flip"

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a of the Laplace mechanism of this epsilon."""
        return Laplace(1.0, self.epsilon).rdp(orders, Relation.ADD_REMOVE)

    def group_pair(self, size: int, relation: Relation) -> Pair:
        """Return the pair of scores that move by `size` times as much."""
        return PermuteAndFlipPair(size * self.epsilon)


@dataclass(frozen=True)
class RandomizedResponse(_OfEpsilon):
    """Tells the truth with odds e^epsilon : 1 about one bit: the least private epsilon-DP mechanism.

    Every record has a bit and a coin of its own, so that a group of records is as many answers.

    Example:
        >>> RandomizedResponse(1.0).zcdp(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "randomized_response"

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return pure_rdp(self.epsilon, orders)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Return the dominating pairs, (with, without) the record first."""
        return (AtomPair.response(self.epsilon),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """One answer for each record of the group."""
        return self.dominating_pairs(relation), size

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """One answer for each record that is sampled, which each is by itself."""
        return self.poisson_pairs(sample_rate, relation), size


@dataclass(frozen=True)
class KaryRandomizedResponse(PureMechanism):
    """Every record answers with its value, one of `choices`, but with probability `noise` with a uniform one.

    The answers of all records are released, so that their number is public and add/remove is refused. Under
    replace-one two values are told apart by k - 2 answers of loss 0 and two of losses +-log((1 - noise) k / noise + 1);
    under zero-out the blank record answers uniformly.

    Args:
        noise: in (0, 1], the probability of a uniform answer, which may be the true one.
        choices: k in [2, 1e9].

    Example:
        >>> round(KaryRandomizedResponse(0.5, 4).pure_epsilon(Relation.REPLACE_ONE), 4)
        1.6094
    """

    type: ClassVar[str] = "kary_randomized_response"
    takes_samples: ClassVar[bool] = False
    noise: float
    choices: int

    def __post_init__(self) -> None:
        check.probability("noise", self.noise, open_low=True)
        if not 2 <= check.count("choices", self.choices) <= 10**9:
            raise check.fail("choices", "in [2, 1000000000]", self.choices)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the largest loss in either direction."""
        return max(abs(loss) for pair in self.dominating_pairs(relation) for loss in pair.atoms)

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a of the dominating pair, rounded up."""
        return atoms_rdp(self.dominating_pairs(relation), orders)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """The laws of the answers of two values, or of a value and a blank record, which are all alike."""
        if relation is Relation.ADD_REMOVE:
            raise Refused(f"{self} is accounted under replace_one or zero_out; got add_remove. State one of them.")
        other = self.noise / self.choices
        wrong = (self.choices - 1) * other  # 1 less it would lose the digits of a small one.
        true = 1 - wrong
        if relation is Relation.ZERO_OUT:
            blank = 1 / self.choices
            losses = (float(np.log(self.noise)), float(np.log1p((1 - self.noise) * (self.choices - 1))))
            value, none = (wrong, true), (1 - blank, blank)
            return AtomPair(losses, value, none), AtomPair((-losses[1], -losses[0]), none[::-1], value[::-1])
        loss = float(np.log1p((1 - self.noise) / other))
        return (AtomPair((-loss, 0.0, loss), (other, wrong - other, true), (true, wrong - other, other)),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """One answer for each record of the group."""
        return self.dominating_pairs(relation), size

    def __str__(self) -> str:
        return f"KaryRandomizedResponse({self.noise:g}, {self.choices})"
