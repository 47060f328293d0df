"""DP-SGLD: stochastic gradient Langevin dynamics with enough noise to be private (Wang, Fienberg & Smola 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.gradient import clipped_sum, poisson_sample
from tacit.erm.release import ledger_and_stream
from tacit.erm.rounding import step_rounding
from tacit.erm.solver import Problem
from tacit.mechanisms import Gaussian
from tacit.noise import Stream, rounded_gaussian
from tacit.sampling import PoissonSampler

Array = np.ndarray
# Least norm that a state is divided by: a state at 0 stays there.
_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Schedule:
    """Step sizes eta_t = max(1 / (t + 1), floor) and the paper's noise variance, for `passes` over the data.

    noise variance of a step: max(eta^2 c, eta), c = 128 N T L^2 / (b epsilon^2) log(5 N T / (2 b delta)) log(2 / delta)
    (the baseline's code of DPVI's comparison); the ledger records the noise multiplier of it under Poisson sampling.

    Args:
        epsilon: > 0, claimed.
        delta: in (0, 1), claimed.
        passes: > 0, over the data.
        lipschitz: L > 0, to which gradients are clipped.
        floor: smallest step size.

    Example:
        >>> Schedule(1.0, 1e-5, passes=1.0, lipschitz=1.0).variance(0.1, 100, 10.0) > 1
        True
    """

    epsilon: float
    delta: float
    passes: float
    lipschitz: float
    floor: float = 0.1

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        check.probability("delta", self.delta, open_low=True, open_high=True)
        check.positive("passes", self.passes)
        check.positive("lipschitz", self.lipschitz)

    def variance(self, step_size: float, records: int, batch: float) -> float:
        """Variance of the noise added to theta in a step."""
        count = records * self.passes
        constant = 128 * count * self.lipschitz**2 / (batch * self.epsilon**2)
        constant *= math.log(5 * count / (2 * batch * self.delta)) * math.log(2 / self.delta)
        return max(step_size**2 * constant, step_size)


@dataclass(frozen=True, eq=False)
class Chain:
    """Released states, shape (steps, d), and the ledger of their cost.

    Example:
        >>> Chain(np.array([[0.0], [1.0]]), Ledger()).mean(last=2).tolist()
        [0.5]
    """

    states: Array
    ledger: Ledger

    def mean(self, last: int) -> Array:
        """Mean of the last states: post-processing."""
        return self.states[-check.count("last", last) :].mean(0)


def sgld(
    problem: Problem,
    schedule: Schedule,
    *,
    batch_size: float,
    radius: float | None = None,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
) -> Chain:
    """DP-SGLD: Langevin steps with clipped gradients, each recorded as a subsampled Gaussian mechanism.

        theta <- Pi( theta - eta ( (1 / q) sum_{i in batch} clip(g_i, L) + strength theta ) + N(0, v_t I) )

    The published guarantee needs ||g_i|| <= L, which the published code does not enforce; here gradients are clipped,
    so the step releases a sum of sensitivity eta L / q with noise sqrt(v_t): noise multiplier sqrt(v_t) q / (eta L).
    Noise is added to the sum itself, exactly, and covers its rounding (`tacit.erm.rounding`); the rest of a step is
    post-processing.
    The ledger's exact cost is the guarantee; the schedule's epsilon is only claimed.

    Args:
        problem: its loss and strength define the posterior, with N(0, I / strength) as prior.
        schedule: of step sizes and noise.
        batch_size: expected size of a Poisson batch.
        radius: norm of the ball Pi that states are projected to, public.
        ledger: written to before every step; a new one by default.
        stream: source of the noise; the secure stream by default.

    Raises:
        InvalidInput: batch_size is not in (0, n].

    Example:
        >>> from tacit.erm.losses import Logistic
        >>> problem = Problem(np.full((20, 1), 0.5), np.ones(20), Logistic(), strength=1.0)
        >>> sgld(problem, Schedule(1.0, 1e-5, 1.0, 1.0), batch_size=5).states.shape
        (4, 1)
    """
    ledger, stream = ledger_and_stream(ledger, stream, exact=True)
    n = problem.records
    rate = check.real("batch_size", batch_size, low=0.0, high=n, open_low=True) / n
    sampler = PoissonSampler(n, rate, stream)
    theta, states = problem.zero(), []
    for step in range(round(schedule.passes / rate)):
        eta = max(1 / (step + 1), schedule.floor) / n
        variance = schedule.variance(eta, n, batch_size)
        multiplier = math.sqrt(variance) * rate / (eta * schedule.lipschitz)
        ledger.add(Gaussian(multiplier).poisson(rate), note="langevin step")
        rows = poisson_sample(problem, sampler)
        paid = multiplier * schedule.lipschitz * (1 + step_rounding(problem, theta, schedule.lipschitz))
        noisy = rounded_gaussian(clipped_sum(rows, theta, schedule.lipschitz), stream, std=paid)
        theta = theta - eta * (noisy / rate + problem.strength * theta)
        if radius is not None:
            theta = theta * min(1.0, radius / max(float(np.linalg.norm(theta)), _LEAST_NORM))
        states.append(theta[:, 0].copy())
    return Chain(np.array(states), ledger)
