"""Private selection: the best of a random number of trials, of which nothing else is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.mechanisms.base import Compose, Mechanism
from tacit.mechanisms.parallel import alternatives
from tacit.mechanisms.trial_laws import NegativeBinomial, TrialLaw, law_of
from tacit.relation import Relation

_CHOICES = np.concatenate([1 + np.geomspace(0.05, 500.0, 120), [1e3, 1e4, 1e6, 1e10]])
"""Orders b over which the Renyi theorems take their minimum, beside 1 and those asked for; the last for pure DP."""


@dataclass(frozen=True)
class Selection(Mechanism):
    """The trial of the highest score among K ~ `law` runs of `base`, each of a setting drawn with replacement.

    One trial draws its setting from a fixed law, runs `base`, and scores the result; the pair (result, score) has the
    guarantee of `base`. Nothing else is seen: neither K nor another trial. `pld` answers with a bracket, the
    whole-curve bound above and an attack below (`accounting.pld.selection`); Renyi divergences are those of Papernot &
    Steinke 2022, Theorems 2 and 6.

    Args:
        base: one trial, score included.
        law: of the number of trials.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(Selection.of(Gaussian(2.0).poisson(0.01) * 100, law="geometric", trials=20))
        best of trials (geometric, mean 20) of [Gaussian(2).poisson(0.01) * 100]
    """

    type: ClassVar[str] = "selection"
    base: Compose
    law: TrialLaw

    @classmethod
    def of(cls, base: Mechanism, *, law: str | float | TrialLaw = "logarithmic", trials: float = 20.0) -> Selection:
        """A selection with a base of any kind and a law by its name or shape; see `law_of`."""
        return cls(Compose.of((base, 1)), law_of(law, trials=trials))

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the base."""
        return tuple(dict.fromkeys(switch for part, _ in self.base.parts() for switch in part.unsafe))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order (Papernot & Steinke 2022, Theorems 2 and 6)."""
        asked = np.asarray(orders, dtype=float)
        every = np.unique(np.concatenate([_CHOICES, asked.ravel()]))
        at = self.base.accountable().rdp(every, relation)
        # D_1 is at most D_b for every b > 1; with b = 1 the theorem does not use it.
        choices, of_choices = np.append(1.0, every), np.append(at[:1], at)
        found = np.nan_to_num(self.law.rdp(at, every, choices, of_choices), nan=np.inf)
        # A Renyi divergence does not fall with its order, so that a bound at a larger order is one, too.
        return np.minimum.accumulate(found[::-1])[::-1][np.searchsorted(every, asked)]

    def pure_epsilon(self, relation: Relation) -> float:
        """Return (2 + shape) epsilon (Papernot & Steinke 2022, Corollary 3), epsilon for one trial."""
        if not isinstance(self.law, NegativeBinomial):
            raise self.refusal("pure epsilon", relation)
        times = 1.0 if self.law.gamma == 1.0 else 2 + self.law.shape
        return times * self.base.accountable().pure_epsilon(relation)

    def options(self) -> tuple[Mechanism, ...]:
        """Return the selections over what one record may meet of the base, for a base with disjoint parts."""
        return tuple(Selection(each, self.law) for each in alternatives(self.base))

    def series_taken(self) -> int:
        """Return one above the highest number of a series in the base."""
        return self.base.series_taken()

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        rows = [part.spec() | {"steps": times} for part, times in self.base.parts()]
        return {"type": self.type} | self.law.spec() | {"mechanisms": rows}

    def __str__(self) -> str:
        return f"best of trials ({self.law}) of [{self.base}]"
