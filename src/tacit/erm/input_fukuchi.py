"""Input perturbation that sums up to objective perturbation (Fukuchi, Tran & Sakuma 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.erm.input import SHARES
from tacit.erm.objective_kifer import KiferObjective
from tacit.erm.problem import Problem
from tacit.erm.release import Release, Terms
from tacit.standing import Standing


@dataclass(frozen=True)
class Fukuchi(KiferObjective):
    """Every contributor adds b_i ~ N(0, nu^2 / n I) to the linear term of its own loss; nu as in `KiferObjective`.

    The n shares sum to Kifer's b, so the central guarantee is that of objective perturbation. Locally only the linear
    statistic (gradient at 0, norm <= G) is hidden, by mu_local = 2 G sqrt(n) / nu: of order epsilon sqrt(n), and the
    rest of the loss is in the clear, hence `claimed`. The random quadratic part of the original, which must keep the
    objective convex, is replaced by the deterministic strength 2 c / epsilon.

    Source: Fukuchi et al. 2017; the linear-term version is derived here.
    """

    family: ClassVar[str] = "input"
    name: ClassVar[str] = "fukuchi"
    verdict: ClassVar[str] = "central guarantee of objective perturbation; local cover of the linear term alone"

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        terms.ledger.assume(SHARES)
        central = super().release(problem, terms)
        mu = 2 * problem.loss.lipschitz * math.sqrt(problem.records) / central.facts["noise_std"]
        share = central.facts["noise_std"] / math.sqrt(problem.records)
        facts = {**central.facts, "local_noise_std": share}
        return replace(central, local_mu=mu, local_standing=Standing.CLAIMED, facts=facts)
