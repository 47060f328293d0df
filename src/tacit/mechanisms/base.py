"""`Mechanism`: a frozen, serialisable description of one randomised step, and its algebra."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.errors import Refused
from tacit.mechanisms.pairs import Pair, sampled_pairs
from tacit.mechanisms.renyi import pure_rdp
from tacit.relation import Relation


@dataclass(frozen=True)
class Mechanism(ABC):
    """One randomised step on private data.

    `Gaussian(1.1).poisson(0.01) * 1000 + Laplace(2.0)` composes a thousand Poisson-subsampled Gaussian
    steps with one Laplace step. A mechanism answers the facets it knows and refuses the others; an
    accountant is a rule for reading one facet.
    """

    type: ClassVar[str]

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Names of the `unsafe_` switches that it was made with."""
        return ()

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Upper bound on the Renyi divergence of each order (> 1) between neighbours, both directions."""
        raise self.refusal("Renyi divergence", relation)

    def pure_epsilon(self, relation: Relation) -> float:
        """Smallest known epsilon of pure (epsilon, 0)-DP."""
        raise self.refusal("pure epsilon", relation)

    def zcdp(self, relation: Relation) -> float:
        """rho of zero-concentrated DP: the Renyi divergence of every order a > 1 is at most rho * a."""
        raise self.refusal("zCDP parameter", relation)

    def mu(self, relation: Relation) -> float:
        """mu such that the mechanism is exactly mu-GDP."""
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

    def clt_mu_squared(self, relation: Relation) -> float:
        """This step's part of mu^2 in the central limit theorem for f-DP (Bu et al., Theorems 5-7)."""
        raise self.refusal("CLT functional", relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Smallest known epsilon with (epsilon, delta)-DP for one step; pure unless a mechanism knows better."""
        return self.pure_epsilon(relation)

    def classical_epsilon(self, delta: float, relation: Relation) -> float:
        """epsilon at delta by the textbook formula, whose proof may not reach; `epsilon_at` where there is none."""
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
        from tacit.mechanisms.poisson import Poisson

        return Poisson(self, sample_rate)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """What `steps` runs cost: (mechanism, runs); the same unless batches are disjoint."""
        return self, steps

    def series_taken(self) -> int:
        """One above the highest number of a series of disjoint batches in this mechanism; 0 without any."""
        return 0

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        """The unlike steps of this mechanism, each with the number of times it runs."""
        yield self, 1

    def spec(self) -> dict[str, Any]:
        """JSON form; `from_spec` is its inverse."""
        return {"type": self.type} | {field.name: getattr(self, field.name) for field in fields(self)}

    def refusal(self, facet: str, relation: Relation) -> Refused:
        """The error for a facet that this mechanism does not know."""
        return Refused(f"no {facet} is known for {self} under {relation.value}.")

    def __mul__(self, steps: int) -> Mechanism:
        from tacit.mechanisms.composition import Compose

        return Compose.of((self, check.count("steps", steps)))

    __rmul__ = __mul__

    def __add__(self, other: Mechanism) -> Mechanism:
        from tacit.mechanisms.composition import Compose

        check.instance("mechanism", other, Mechanism, "one such as Gaussian(1.0)")
        return Compose.of((self, 1), (other, 1))
