"""Pair of one epoch in which a record is in one step of many, chosen uniformly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tacit.mechanisms.pairs.base import Table
from tacit.mechanisms.pairs.convex_order import LowerLaw, UpperLaw, sum_of_ratios
from tacit.mechanisms.pairs.tabulated import TabulatedPair


@dataclass(frozen=True)
class AllocationPair(TabulatedPair):
    """An upper bound in the convex order on the pair of random allocation, whose lower bound is `attained`.

    The pair itself is P = (1 / T) sum_t N(e_t, sigma^2 I_T) against Q = N(0, sigma^2 I_T): a gradient of full norm in
    the one step that has the record, nothing else. It dominates an epoch for adaptive queries, and is reached (Chua et
    al. 2024, arXiv:2412.16802). Under Q its likelihood ratio R is the mean of T independent ratios, and every
    hockey-stick divergence is a convex function of it, E(R - a)_+ with and E(1 - a R)_+ without the record first. A law
    above R in the convex order therefore has a pair that dominates it, and one below a pair that it dominates; either
    survives composition (Zhu, Dong & Wang 2022, Theorem 10).

    Rounding: P-masses are scaled up and Q-masses down by the error of the law, and the other way round from below.

    Args:
        noise_multiplier: sigma, at least 0.06.
        steps: T >= 2, steps of an epoch.
        remove: whether P has the record.
        upper: whether this is the bound from above.
    """

    noise_multiplier: float
    steps: int
    remove: bool
    upper: bool = True

    @cached_property
    def _law(self) -> UpperLaw | LowerLaw:
        return sum_of_ratios(self.noise_multiplier, self.steps, upper=self.upper)

    @property
    def reached(self) -> bool:
        """Return False: the two laws only enclose the one that is reached."""
        return False

    def attained(self, share: float) -> AllocationPair:
        """Return the bound from below, which an epoch exceeds or meets."""
        return replace(self, upper=False)

    @cached_property
    def table(self) -> Table:  # type: ignore[override]
        """Return the losses with their masses under P and Q."""
        law = self._law
        kept = law.mass > 0
        without = law.mass[kept]
        if isinstance(law, UpperLaw):
            with_record = without * np.exp(law.log_points[kept] - np.log(self.steps))
        else:
            with_record = law.mean[kept] / self.steps
        p, q = (with_record, without) if self.remove else (without, with_record)
        scale = 1 + (law.error if self.upper else -law.error)
        p, q = p * scale, q / scale
        loss = np.log(p) - np.log(q)
        order = np.argsort(loss)
        return loss[order], p[order], q[order]

    @property
    def infinity_mass(self) -> float:
        """Return the P-mass of infinite loss: the mean that the law has lost, or its mass at 0."""
        return self._outside[0]

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return self._outside[1]

    @cached_property
    def _outside(self) -> tuple[float, float]:
        law = self._law
        if not isinstance(law, UpperLaw):
            return 0.0, 0.0
        lost, zero = (value * (1 + law.error) for value in (law.lost / self.steps, law.zero))
        return (lost, zero) if self.remove else (zero, lost)
