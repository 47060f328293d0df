"""Posterior sampling around a certified minimiser, with a fixed covariance and a sensitivity from convexity (V4).

DP-SGLD: stochastic gradient Langevin dynamics with enough noise to be private (Wang, Fienberg & Smola 2015).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.gradient import clipped_sum
from tacit.erm.losses import Loss
from tacit.erm.release import ledger_and_stream, lipschitz
from tacit.erm.solver import (
    TOLERANCE,
    Problem,
    check_unit_rows,
    finite_records,
    gamma,
    gradient_rounding,
    minimise,
    step_rounding,
)
from tacit.mechanisms import Gaussian, Mechanism
from tacit.noise import Stream, rounded_gaussian
from tacit.sampling import PoissonSampler
from tacit_papers.input_perturbation.descent_methods import poisson_sample

Array = np.ndarray
# Nodes of Gauss-Hermite quadrature: exact for polynomials of degree 31, below rounding for these smooth losses.
_NODES = 16


@dataclass(frozen=True, eq=False)
class Smeared(Loss):
    """E l(s + r z), z ~ N(0, 1): a loss averaged over the Gaussian spread r of a record's score, by Gauss-Hermite.

    Averages keep Lipschitz constants, smoothness and convexity. Single-output losses only.

    Args:
        base: the loss of one score.
        spread: r >= 0, of every record in shape (n, 1): std of the parameters times the norm of its features.
    """

    base: Loss
    spread: Array | float

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant of the base loss."""
        return self.base.lipschitz

    @property
    def smoothness(self) -> float:
        """Smoothness of the base loss."""
        return self.base.smoothness

    @property
    def alphabet(self) -> str:
        """Alphabet of the base loss."""
        return self.base.alphabet

    def accepts(self, targets: Array) -> Array:
        """Which targets the base loss accepts."""
        return self.base.accepts(targets)

    def values(self, scores: Array, targets: Array) -> Array:
        """Averaged losses, (n,)."""
        return self._mean(self.base.values, scores, targets)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Averaged derivatives, (n, k)."""
        return self._mean(self.base.slopes, scores, targets)

    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Averaged second derivatives, (n, k, k)."""
        return self._mean(self.base.curvatures, scores, targets)

    def _mean(self, of: Callable[[Array, Array], Array], scores: Array, targets: Array) -> Array:
        return np.sum([weight * of(scores + move, targets) for move, weight in self._nodes()], axis=0)

    def _nodes(self) -> list[tuple[Array | float, float]]:
        points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        return [(self.spread * point, weight) for point, weight in zip(points, weights / weights.sum(), strict=True)]


@dataclass(frozen=True, eq=False)
class Sampled:
    """Released `samples` of shape (count, d), and their cost together.

    Example:
        >>> list(Sampled.__dataclass_fields__)
        ['samples', 'mechanism', 'ledger']
    """

    samples: Array
    mechanism: Mechanism
    ledger: Ledger


def posterior_samples(
    loss: Loss,
    features: Array,
    targets: Array,
    *,
    strength: float,
    std: float,
    count: int = 1,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
) -> Sampled:
    """`count` samples of N(m*, std^2 I), m* = argmin_m sum_i E_{w ~ N(m, std^2 I)} l_i(w) + (strength / 2) ||m||^2.

    One record moves m* by at most G / strength, so one sample is exactly mu-GDP with mu = G / (strength std), and K
    independent ones have sqrt(K) times that (improved accounting, V4). The minimiser is found to a gradient norm t,
    and 2 t is added to G, t with its rounding. With the prior of a standard normal, strength 1, this is useless:
    strength must grow with n.

    Args:
        loss: of single scores, with a finite Lipschitz constant.
        features: (n, d), rows of norm <= 1; records that are not finite become blank.
        targets: (n,), of the loss's alphabet.
        strength: precision of the prior, > 0.
        std: of the fixed covariance, > 0.
        count: samples released.
        ledger: written to before they are drawn; a new one by default.
        stream: source of the noise; the secure stream by default.

    Raises:
        InvalidInput: the loss has unbounded gradients, a row is longer than 1, a target outside the loss's alphabet, or
            an argument out of range.

    Example:
        >>> from tacit.erm.losses import Logistic
        >>> features, targets = np.full((20, 1), 0.5), np.ones(20)
        >>> posterior_samples(Logistic(), features, targets, strength=5.0, std=1.0, count=3).samples.shape
        (3, 1)
    """
    if not np.isfinite(loss.lipschitz) or loss.outputs != 1:
        raise check.fail("loss", "of one score with bounded gradients", str(loss))
    features, targets = finite_records(features, targets)
    check_unit_rows(features)
    ledger, stream = ledger_and_stream(ledger, stream, exact=True)
    smeared = Smeared(loss, check.positive("std", std) * np.linalg.norm(features, axis=1)[:, None])
    problem = Problem(features, targets, smeared, check.positive("strength", strength))
    best = minimise(problem)[:, 0]
    bound = lipschitz(problem, "posterior_samples")
    # A shifted score errs by a unit of it; no node is further out than 2 sqrt(nodes) spreads, and rows have norm <= 1.
    shifts = problem.records * loss.smoothness * gamma(_NODES) * 2 * math.sqrt(_NODES) * std
    unit = (bound + 2 * (TOLERANCE + gradient_rounding(problem, bound) + shifts)) / strength
    mechanism = Gaussian(std / unit)
    ledger.add(mechanism, check.count("count", count), "posterior samples")
    samples = rounded_gaussian(np.tile(best, (count, 1)), stream, std=std)
    return Sampled(samples, mechanism * count, ledger)


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
    Noise is added to the sum itself, exactly, and covers its rounding (`tacit.erm.solver`); the rest of a step is
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
