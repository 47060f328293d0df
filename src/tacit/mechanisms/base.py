"""`Mechanism`: a frozen, serialisable description of one randomised step, and its algebra.

The algebra is closed: `Compose` is what `+` and `*` return, `Poisson` what `Mechanism.poisson` returns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.subsampled import sampled_pairs
from tacit.mechanisms.renyi import pure_rdp
from tacit.relation import Relation


@dataclass(frozen=True)
class Mechanism(ABC):
    """One randomised step on private data.

    `Gaussian(1.1).poisson(0.01) * 1000 + Laplace(2.0)` composes a thousand Poisson-subsampled Gaussian
    steps with one Laplace step. A mechanism answers the facets it knows and refuses the others; an
    accountant is a rule for reading one facet.

    Example:
        >>> from tacit.mechanisms import Gaussian, Laplace
        >>> step = Gaussian(1.1).poisson(0.01) * 1000 + Laplace(2.0)
        >>> print(step)
        Gaussian(1.1).poisson(0.01) * 1000 + Laplace(2)

    Attributes:
        takes_samples: whether it may run on samples: not where it is composed or has a sampling of its own.
    """

    type: ClassVar[str]
    takes_samples: ClassVar[bool] = True

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Names of the `unsafe_` switches that it, or the mechanism inside, was made with."""
        base = getattr(self, "base", None)
        return base.unsafe if isinstance(base, Mechanism) else ()

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Upper bound on the Renyi divergence of each order (> 1) between neighbours, both directions."""
        raise self.refusal("Renyi divergence", relation)

    def pure_epsilon(self, relation: Relation) -> float:
        """Smallest known epsilon of pure (epsilon, 0)-DP."""
        raise self.refusal("pure epsilon", relation)

    def zcdp(self, relation: Relation) -> float:
        """Return rho of zero-concentrated DP: the Renyi divergence of every order a > 1 is at most rho * a."""
        raise self.refusal("zCDP parameter", relation)

    def mu(self, relation: Relation) -> float:
        """Return mu such that the mechanism is exactly mu-GDP."""
        raise self.refusal("exact GDP parameter", relation)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Pairs (P, Q) whose hockey-stick divergences no neighbours exceed: (with, without the record) first.

        A second pair is for (without, with) the record; one pair alone covers both directions.
        """
        raise self.refusal("dominating pair", relation)

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """`dominating_pairs` of this mechanism on a Poisson sample, from its own pairs unless overridden."""
        both = relation is Relation.REPLACE_ONE
        return sampled_pairs(self.dominating_pairs(relation), sample_rate, both=both)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """`dominating_pairs` for groups of `size` >= 2 records, changed together, and how often they compose."""
        raise self.refusal("pair of groups of records", relation)

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """`group_pairs` of this mechanism on a Poisson sample of the records."""
        raise self.refusal("pair of groups in a Poisson sample", relation)

    def clt_mu_squared(self, relation: Relation) -> float:
        """This step's part of mu^2 in the central limit theorem for f-DP (Bu et al., Theorems 5-7)."""
        raise self.refusal("CLT functional", relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Smallest known epsilon with (epsilon, delta)-DP for one step; pure unless a mechanism knows better."""
        return self.pure_epsilon(relation)

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        """Return epsilon at delta by the textbook formula, which may be no bound; `epsilon_at` where there is none."""
        return self.epsilon_at(delta, relation)

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """(mean, deviation) of concentrated DP: the loss minus `mean` is subgaussian with `deviation`.

        An epsilon-DP mechanism has (epsilon (e^epsilon - 1) / 2, epsilon) (Dwork & Rothblum 2016, Theorem 3.5).
        """
        epsilon = self.pure_epsilon(relation)
        return epsilon * float(np.expm1(min(epsilon, 700.0))) / 2, epsilon

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Renyi divergences as the generic accountant of Triastcyn & Faltings takes them: no bound when sampled."""
        return self.rdp(orders, relation)

    def is_pure(self, relation: Relation) -> bool:
        """Whether a finite epsilon is known at delta = 0."""
        try:
            return bool(np.isfinite(self.pure_epsilon(relation)))
        except Refused:
            return False

    def poisson_rdp(self, sample_rate: float, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """`rdp` of this mechanism on a Poisson sample; from the amplified pure epsilon unless overridden."""
        return pure_rdp(self.poisson(sample_rate).pure_epsilon(relation), orders)

    def poisson_clt_mu_squared(self, sample_rate: float, relation: Relation) -> float:
        """`clt_mu_squared` of this mechanism on a Poisson sample."""
        raise self.refusal("CLT functional of a Poisson sample", relation)

    def poisson(self, sample_rate: float) -> Mechanism:
        """This mechanism run on a Poisson sample: every record enters independently with `sample_rate`."""
        return Poisson(self, sample_rate)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """What `steps` runs cost: (mechanism, runs); the same unless batches are disjoint."""
        return self, steps

    def options(self) -> tuple[Mechanism, ...]:
        """What one record may meet of it, each of which accountants ask about; itself unless parts are disjoint."""
        return (self,)

    def inside(self) -> Iterator[Mechanism]:
        """The mechanisms that this one is composed of or picks from; none where it is one step."""
        return iter(())

    def series_taken(self) -> int:
        """One above the highest number of a series of disjoint batches in this mechanism; 0 without any."""
        return max((each.series_taken() for each in self.inside()), default=getattr(self, "series", -1) + 1)

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        """The unlike steps of this mechanism, each with the number of times it runs."""
        yield self, 1

    def spec(self) -> dict[str, Any]:
        """JSON form; `from_spec` is its inverse."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"type": self.type} | {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}

    def refusal(self, facet: str, relation: Relation) -> Refused:
        """The error for a facet that this mechanism does not know."""
        return Refused(f"no {facet} is known for {self} under {relation.value}.")

    def __mul__(self, steps: int) -> Mechanism:
        return Compose.of((self, check.count("steps", steps)))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism) -> Mechanism:
        check.instance("mechanism", other, Mechanism, "one such as Gaussian(1.0)")
        return Compose.of((self, 1), (other, 1))


class PureMechanism(Mechanism):
    """A mechanism whose rho follows from its pure epsilon."""

    def zcdp(self, relation: Relation) -> float:
        """Return rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4)."""
        return self.pure_epsilon(relation) ** 2 / 2


class ShiftMechanism(Mechanism):
    """A mechanism whose pair for a group of records is that of one record, moved as many times as far."""

    @abstractmethod
    def group_pair(self, size: int, relation: Relation) -> Pair:
        """The dominating pair for groups of `size` >= 1 records."""

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Return the pair of one record; smaller shifts have smaller threshold tests."""
        return (self.group_pair(1, relation),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Return the pair of a group."""
        return (self.group_pair(size, relation),), 1


class OnBatches(Mechanism):
    """`base` on batches that are drawn by a law of their own, whose parameters are the other fields."""

    takes_samples: ClassVar[bool] = False
    base: Any

    @classmethod
    def parameters(cls) -> dict[str, object]:
        """Names and defaults of the parameters of the law; MISSING where there is none."""
        return {field.name: field.default for field in fields(cls) if field.name != "base"}

    def spec(self) -> dict[str, Any]:
        """Return the JSON form: that of `base`, the law, and its parameters but for defaults."""
        own = {
            name: getattr(self, name)
            for name, default in self.parameters().items()
            if default is MISSING or getattr(self, name) != default
        }
        return self.base.spec() | {"sampling": self.type} | own


@dataclass(frozen=True)
class Compose(Mechanism):
    """Unlike steps with their counts; equal steps are merged, so order is not kept (privacy needs none).

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> from tacit.relation import Relation
        >>> Compose.of((Gaussian(2.0), 4)).mu(Relation.ADD_REMOVE)
        1.0
    """

    type: ClassVar[str] = "compose"
    takes_samples: ClassVar[bool] = False
    steps: tuple[tuple[Mechanism, int], ...]

    @classmethod
    def of(cls, *counted: tuple[Mechanism, int]) -> Compose:
        """The composition of `(mechanism, count)` pairs, flattened and merged."""
        merged: dict[Mechanism, int] = {}
        for mechanism, times in counted:
            for part, inner in mechanism.parts():
                merged[part] = merged.get(part, 0) + inner * times
        return cls(tuple(merged.items()))

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        """Yield the unlike steps with their counts."""
        yield from self.steps

    def inside(self) -> Iterator[Mechanism]:
        """Return the unlike steps."""
        return (part for part, _ in self.steps)

    def rows(self) -> list[dict[str, Any]]:
        """The JSON form of the unlike steps, each with its number."""
        return [part.spec() | {"steps": times} for part, times in self.steps]

    def accountable(self) -> Compose:
        """The composition that accountants read, disjoint batches counted by the passes of each series."""
        return Compose.of(*(part.accounted(times) for part, times in self.steps))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        total = np.zeros(np.shape(orders))
        for part, times in self.steps:
            total = total + times * part.rdp(orders, relation)
        return total

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return the divergences that the published generic accountant takes."""
        return np.sum([times * part.published_generic_rdp(orders, relation) for part, times in self.steps], axis=0)

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Means add up, deviations add up in squares (Dwork & Rothblum 2016, Theorem 3.4)."""
        each = [(part.cdp(relation), times) for part, times in self.steps]
        mean = sum(times * mean for (mean, _), times in each)
        return float(mean), float(sum(times * deviation**2 for (_, deviation), times in each)) ** 0.5

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        return float(sum(times * part.pure_epsilon(relation) for part, times in self.steps))

    def zcdp(self, relation: Relation) -> float:
        """Return rho of zero-concentrated DP."""
        return float(sum(times * part.zcdp(relation) for part, times in self.steps))

    def mu(self, relation: Relation) -> float:
        """Return mu where the mechanism is exactly mu-GDP."""
        return float(sum(times * part.mu(relation) ** 2 for part, times in self.steps)) ** 0.5

    def clt_mu_squared(self, relation: Relation) -> float:
        """Return this step's part of mu^2 in the central limit theorem."""
        return float(sum(times * part.clt_mu_squared(relation) for part, times in self.steps))

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"type": self.type, "mechanisms": self.rows()}

    def __str__(self) -> str:
        return " + ".join(f"{part} * {times}" if times > 1 else str(part) for part, times in self.steps) or "nothing"


def check_unsampled(mechanism: Any) -> None:
    """Raise `InvalidInput` where what runs on samples is composed, or has a sampling of its own."""
    if not mechanism.base.takes_samples:
        raise InvalidInput(f"{mechanism.type} must be applied to one unsampled mechanism; got {mechanism.base}.")


@dataclass(frozen=True)
class Poisson(Mechanism):
    """`base` run on a Poisson sample of the records.

    Args:
        base: the mechanism that runs on the sample; not itself subsampled or composed.
        sample_rate: in (0, 1]; the probability of each record.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(Poisson(Gaussian(1.0), 0.01))
        Gaussian(1).poisson(0.01)
    """

    type: ClassVar[str] = "poisson"
    takes_samples: ClassVar[bool] = False
    base: Mechanism
    sample_rate: float

    def __post_init__(self) -> None:
        check.probability("sample_rate", self.sample_rate, open_low=True, hint="Use batch_size / n.")
        check_unsampled(self)

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        if self.sample_rate == 1.0:
            return self.base.rdp(orders, relation)
        return self.base.poisson_rdp(self.sample_rate, orders, relation)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        return self._amplified(self.base.pure_epsilon(relation), relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return the smallest known epsilon at delta."""
        return self._amplified(self.base.epsilon_at(self._of_base(delta, relation), relation), relation)

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        """Return epsilon at delta by the textbook formula of the mechanism inside."""
        return self._amplified(self.base.classical_epsilon(self._of_base(delta, relation), relation), relation)

    def _of_base(self, delta: float, relation: Relation) -> float:
        """The delta of the base at which the sample has `delta`; see `_amplified`."""
        return delta if relation is Relation.REPLACE_ONE else min(delta / self.sample_rate, 1.0)

    def _amplified(self, epsilon: float, relation: Relation) -> float:
        """log(1 + p (e^eps - 1)) under add/remove, with delta times p (Balle, Barthe & Gaboardi 2018, Thm 8).

        Under replace-one the other world samples an unlike record instead of none, so nothing is gained here.
        """
        if relation is Relation.REPLACE_ONE:
            return epsilon
        if epsilon > 700.0:
            return epsilon + math.log(self.sample_rate) + 1e-12
        return math.log1p(self.sample_rate * math.expm1(epsilon))

    def cdp(self, relation: Relation) -> tuple[float, float]:
        """Unsampled, as for zCDP."""
        return self.base.cdp(relation)

    def published_generic_rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """q^2 D_a of the unsampled mechanism: asserted by the paper, false at every order."""
        return self.sample_rate**2 * self.base.rdp(orders, relation)

    def zcdp(self, relation: Relation) -> float:
        """Subsampling helps zCDP by nothing that holds for every order, so this is the unsampled rho."""
        return self.base.zcdp(relation)

    def mu(self, relation: Relation) -> float:
        """Return mu where the mechanism is exactly mu-GDP."""
        if self.sample_rate == 1.0:
            return self.base.mu(relation)
        raise Refused(f"{self} is not exactly GDP for any mu; ask clt for the limit or pld for the exact curve.")

    def clt_mu_squared(self, relation: Relation) -> float:
        """Return this step's part of mu^2 in the central limit theorem."""
        if self.sample_rate == 1.0:
            return self.base.clt_mu_squared(relation)
        return self.base.poisson_clt_mu_squared(self.sample_rate, relation)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Return the dominating pairs for groups of records."""
        if self.sample_rate == 1.0:
            return self.base.group_pairs(size, relation)
        return self.base.poisson_group_pairs(self.sample_rate, size, relation)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Return the dominating pairs, (with, without) the record first."""
        if self.sample_rate == 1.0:
            return self.base.dominating_pairs(relation)
        return self.base.poisson_pairs(self.sample_rate, relation)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.base.spec() | {"sample_rate": self.sample_rate}

    def __str__(self) -> str:
        return f"{self.base}.poisson({self.sample_rate:g})"
