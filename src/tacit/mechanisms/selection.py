"""Private selection: the best of a random number of trials, of which nothing else is released.

Laws of the random number of trials of a private selection: truncated negative binomial and Poisson.

Papernot & Steinke 2022 (arXiv:2110.03620), Definition 1 and Section 3.3. Each law is seen through its probability
generating function phi(z) = E z^K near z = 1, where all digits of 1 - z are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Compose, Mechanism
from tacit.mechanisms.parallel import alternatives
from tacit.relation import Relation
from tacit.root_finding import bracketed_root

LAWS = {"logarithmic": 0.0, "geometric": 1.0}
"""Named truncated negative binomial laws with their shapes."""
_GAMMAS = (1e-300, 1 - 1e-9)
"""Range of gamma: shapes near -1 reach many trials only next to its lower end."""


@dataclass(frozen=True)
class NegativeBinomial:
    """P(K = k) proportional to (1 - gamma)^k prod_{l < k} (l + shape) / (l + 1), k = 1, 2, ...

    Shape 1 is the geometric law, shape 0 (its limit) the logarithmic one.

    Args:
        shape: > -1.
        gamma: in (0, 1]; 1 for exactly one trial.

    Example:
        >>> NegativeBinomial(1.0, 0.05).mean
        20.0
    """

    type: ClassVar[str] = "negative_binomial"
    shape: float
    gamma: float

    def __post_init__(self) -> None:
        check.real("shape", self.shape, low=-1.0, open_low=True)
        check.probability("gamma", self.gamma, open_low=True)

    @property
    def mean(self) -> float:
        """E K: (1/gamma - 1) / log(1/gamma) for shape 0, else shape (1 - gamma) / (gamma (1 - gamma^shape))."""
        return _mean(self.shape, self.gamma)

    @property
    def once(self) -> float:
        """P(K = 1), the generating function's slope at 0."""
        return math.exp(float(self.log_slope(np.array(1.0))))

    def log_slope(self, u: np.ndarray) -> np.ndarray:
        """Log phi'(1 - u), u in [0, 1]: log E K + (shape + 1) log(gamma / (gamma + (1 - gamma) u)).

        phi' itself leaves the range of doubles from some 700 Poisson trials on.
        """
        return math.log(self.mean) + (self.shape + 1) * np.log(self.gamma / (self.gamma + (1 - self.gamma) * u))

    @property
    def slope_units(self) -> float:
        """Absolute error of `log_slope` in rounding units, that of log E K left out.

        (shape + 1) (4 + log(1/gamma)) + 10: four operations, one logarithm and what multiplies it.
        """
        return (self.shape + 1) * (4 - math.log(self.gamma)) + 10

    def found(self, u: np.ndarray) -> np.ndarray:
        """1 - phi(1 - u): the probability that some trial hits an event that each hits with probability u."""
        if self.gamma == 1.0:
            return np.asarray(u, dtype=float)
        rise = np.log1p((1 - self.gamma) / self.gamma * u)
        if self.shape == 0:
            return rise / -math.log(self.gamma)
        return np.expm1(-self.shape * rise) / math.expm1(self.shape * math.log(self.gamma))

    def rdp(self, base: np.ndarray, orders: np.ndarray, choices: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Renyi divergences of the best trial: those of Theorem 2, the least over b.

        D_a + (1 + s)((1 - 1/b) D_b + log(1/gamma) / b) + log(E K) / (a - 1).

        Args:
            base: D_a of one trial, shape (orders,).
            orders: the orders a > 1 asked for, shape (orders,).
            choices: further orders b >= 1 that the theorem may use, shape (choices,).
            at: D_b of one trial, shape (choices,).
        """
        rest = (1 - 1 / choices) * at - math.log(self.gamma) / choices
        return base + (1 + self.shape) * float(np.min(rest)) + math.log(self.mean) / (orders - 1)

    def spec(self) -> dict[str, Any]:
        """JSON form; `law_from_spec` is its inverse."""
        return {"law": self.type, "shape": self.shape, "gamma": self.gamma}

    def __str__(self) -> str:
        name = {shape: name for name, shape in LAWS.items()}.get(self.shape, f"negative binomial, shape {self.shape:g}")
        return f"{name}, mean {self.mean:g}"


@dataclass(frozen=True)
class PoissonTrials:
    """K ~ Poisson(mean); with none at all the output is a fixed one.

    Args:
        average: E K, > 0.

    Example:
        >>> PoissonTrials(20.0).once < 1e-7
        True
    """

    type: ClassVar[str] = "poisson"
    average: float

    def __post_init__(self) -> None:
        check.positive("average", self.average)

    @property
    def mean(self) -> float:
        """Return E K."""
        return self.average

    @property
    def once(self) -> float:
        """Return P(K = 1)."""
        return self.average * math.exp(-self.average)

    def log_slope(self, u: np.ndarray) -> np.ndarray:
        """Return log m - m u."""
        return math.log(self.average) - self.average * u

    @property
    def slope_units(self) -> float:
        """Return the mean, the largest product, and 10."""
        return self.average + 10

    def found(self, u: np.ndarray) -> np.ndarray:
        """Return 1 - e^{-m u}."""
        return -np.expm1(-self.average * u)

    def rdp(self, base: np.ndarray, orders: np.ndarray, choices: np.ndarray, at: np.ndarray) -> np.ndarray:
        """D_a + m delta + log(m) / (a - 1), delta that of one trial at epsilon = log(1 + 1 / (a - 1)) (Theorem 6).

        Args:
            base: D_a of one trial, shape (orders,).
            orders: the orders a > 1 asked for, shape (orders,).
            choices: further orders b >= 1 that the theorem may use, shape (choices,).
            at: D_b of one trial, shape (choices,).
        """
        epsilon = np.log1p(1 / (orders - 1))[:, None]
        b = choices[choices > 1]
        log_delta = (b - 1) * (at[choices > 1] - epsilon + np.log1p(-1 / b)) - np.log(b)
        delta = np.exp(np.minimum(np.min(log_delta, axis=1), 0.0))
        return base + self.average * delta + max(math.log(self.average), 0.0) / (orders - 1)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"law": self.type, "mean": self.average}

    def __str__(self) -> str:
        return f"Poisson, mean {self.average:g}"


TrialLaw = NegativeBinomial | PoissonTrials
"""The law of the number K of trials."""


def law_of(law: str | float | TrialLaw, *, trials: float) -> TrialLaw:
    """The law with that many trials on average.

    Args:
        law: "logarithmic", "geometric", "poisson", the shape of a truncated negative binomial law, or a law, which is
            returned as it is.
        trials: E K, >= 1 (with "poisson", > 0).

    Raises:
        InvalidInput: the name is unknown, or a number is out of range.

    Example:
        >>> round(law_of("geometric", trials=20).gamma, 9), round(law_of("logarithmic", trials=20).gamma, 7)
        (0.05, 0.0109555)
    """
    if isinstance(law, TrialLaw):
        return law
    if law == PoissonTrials.type:
        return PoissonTrials(check.positive("trials", trials))
    shape = LAWS[check.choice("law", law, [*LAWS, PoissonTrials.type])] if isinstance(law, str) else law
    shape = check.real("shape", shape, low=-1.0, open_low=True)
    mean = check.real("trials", trials, low=1.0, high=1e9)
    if mean == 1.0:
        return NegativeBinomial(shape, 1.0)
    most, least = (_mean(shape, gamma) for gamma in _GAMMAS)
    if not least < mean < most:
        rule = f"in ({least:.10g}, {most:.6g}) for a law of shape {shape:g}"
        raise check.fail("trials", rule, trials, "A larger shape reaches more trials.")
    low, high = (math.log(gamma) for gamma in _GAMMAS)
    root = bracketed_root(lambda x: math.log(_mean(shape, math.exp(x)) / mean), low, high)
    return NegativeBinomial(shape, math.exp(root))


def law_from_spec(table: dict[str, Any]) -> TrialLaw:
    """The law of a JSON table; raises `InvalidInput` for any other table.

    Example:
        >>> law_from_spec({"law": "poisson", "mean": 3.0})
        PoissonTrials(average=3.0)
    """
    kind = check.choice("law", table.get("law"), [NegativeBinomial.type, PoissonTrials.type])
    law, names = (PoissonTrials, ("mean",)) if kind == PoissonTrials.type else (NegativeBinomial, ("shape", "gamma"))
    for name in names:
        check.that(name in table, name, f"given for a {kind} law", None)
    return law(*(table[name] for name in names))


def _mean(shape: float, gamma: float) -> float:
    if gamma == 1.0:
        return 1.0
    if shape == 0:
        return (1 - gamma) / (gamma * -math.log(gamma))
    return shape * (1 - gamma) / (gamma * -math.expm1(shape * math.log(gamma)))


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
    takes_samples: ClassVar[bool] = False
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

    def inside(self) -> Iterator[Mechanism]:
        """Return the parts of the base."""
        return self.base.inside()

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"type": self.type} | self.law.spec() | {"mechanisms": self.base.rows()}

    def __str__(self) -> str:
        return f"best of trials ({self.law}) of [{self.base}]"
