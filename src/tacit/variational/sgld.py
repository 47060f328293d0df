"""DP-SGLD: stochastic gradient Langevin dynamics with enough noise to be private (Wang, Fienberg & Smola 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.gradient import clipped_sum
from tacit.erm.solver import Problem
from tacit.mechanisms import Gaussian
from tacit.noise import SecureStream, Stream
from tacit.sampling import PoissonSampler
from tacit.standing import Standing

Array = np.ndarray


@dataclass(frozen=True)
class Schedule:
    """Step sizes eta_t = max(1 / (t + 1), floor) and the paper's noise variance, for `passes` over the data.

    noise variance of a step: max(eta^2 c, eta), c = 128 N T L^2 / (b epsilon^2) log(5 N T / (2 b delta)) log(2 / delta)
    (the baseline's code of DPVI's comparison); the ledger records what that noise amounts to under Poisson sampling.
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
        """Of the noise added to theta in a step."""
        count = records * self.passes
        constant = 128 * count * self.lipschitz**2 / (batch * self.epsilon**2)
        constant *= math.log(5 * count / (2 * batch * self.delta)) * math.log(2 / self.delta)
        return max(step_size**2 * constant, step_size)


@dataclass(frozen=True, eq=False)
class Chain:
    """Released states, shape (steps, d), and the ledger of what they cost."""

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
    """Langevin steps with clipped gradients, every one of which is recorded as a subsampled Gaussian.

        theta <- Pi( theta - eta ( (1 / q) sum_{i in batch} clip(g_i, L) + strength theta ) + N(0, v_t I) )

    The published guarantee needs ||g_i|| <= L, which the published code does not enforce; here gradients are clipped,
    so the step releases a sum of sensitivity eta L / q with noise sqrt(v_t): noise multiplier sqrt(v_t) q / (eta L).
    The ledger's exact cost is the guarantee; the schedule's epsilon is only claimed.

    Args:
        problem: its loss and strength define the posterior, with N(0, I / strength) as prior.
        batch_size: expected size of a Poisson batch.
        radius: norm of the ball Pi that states are projected to, public.
    """
    ledger = ledger if ledger is not None else Ledger()
    stream = stream if stream is not None else SecureStream()
    if not stream.secure:
        ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
    n = problem.records
    rate = check.real("batch_size", batch_size, low=0.0, high=n, open_low=True) / n
    sampler = PoissonSampler(n, rate, stream)
    theta, states = problem.zero(), []
    for step in range(round(schedule.passes / rate)):
        eta = max(1 / (step + 1), schedule.floor) / n
        variance = schedule.variance(eta, n, batch_size)
        ledger.add(
            Gaussian(math.sqrt(variance) * rate / (eta * schedule.lipschitz)).poisson(rate), note="langevin step"
        )
        batch = sampler.issue()
        sampler.redeem(batch)
        chosen = Problem(
            problem.features[batch.indices], problem.targets[batch.indices], problem.loss, problem.strength
        )
        drift = clipped_sum(chosen, theta, schedule.lipschitz) / rate + problem.strength * theta
        theta = theta - eta * drift + math.sqrt(variance) * stream.normal(theta.shape)
        if radius is not None:
            theta = theta * min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-12))
        states.append(theta[:, 0].copy())
    return Chain(np.array(states), ledger)
