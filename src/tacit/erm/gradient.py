"""Gradient perturbation: full-batch gradient descent with noise in every step (Wang, Ye & Xu, NeurIPS 2017).

The rule by which a convex model chooses its features and its method: a function of public shape alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.erm.losses import Loss, Squared
from tacit.erm.release import Method, Release, Terms
from tacit.erm.solver import Problem, step_rounding
from tacit.mechanisms import Gaussian

LEAST_RECORDS, LEAST_SIGNAL = 3000, 800.0
"""Records n, and n mu, from which private distribution functions pay for themselves."""
SIGNAL_OF_A_COLUMN = 3.0
"""n mu that every column needs."""
QUANTILE_SHARE = 0.1
"""Share of mu^2 for the distribution functions."""
_STEPS, _CLIP, _RATE = 100, 0.5, 4.0
_FULL_SIGNAL, _LEAST_RATE = 5000.0, 0.15


@dataclass(frozen=True)
class Shape:
    """What is public of a fit.

    Args:
        records: n, declared or public.
        columns: p.
        mu: of the target, in (0, inf); 0 for a pure one, which no Gaussian release meets.
    """

    records: int
    columns: int
    mu: float

    def cosines(self) -> bool:
        """Whether an additive model on cosines of private distribution functions is expected to be better.

        Example:
            >>> Shape(40_000, 14, 0.2).cosines(), Shape(400, 14, 0.2).cosines()
            (True, False)
        """
        signal = self.records * self.mu
        return self.records >= LEAST_RECORDS and signal >= max(LEAST_SIGNAL, SIGNAL_OF_A_COLUMN * self.columns)

    def additive(self, loss: Loss, largest: float) -> GradientDescent:
        """Full-batch steps for rows that were divided by `largest`: clip .5 and rate as for rows of norm 1.

        The rate grows with n mu, since noise moves theta by the rate over n mu, up to twice 4 / smoothness (a quarter
        for least squares, whose curvature does not fall with the scores).
        """
        most = 0.25 if isinstance(loss, Squared) else 2.0
        rate = _RATE * min(most, max(_LEAST_RATE, self.records * self.mu / _FULL_SIGNAL)) * largest**2
        return GradientDescent(steps=_STEPS, clip_norm=_CLIP / largest, step_scale=rate)


def method_name(*, pure: bool, binary: bool) -> str:
    """Family of "auto" on the rows as they are: objective perturbation for two classes, and wherever delta is 0.

    With more scores its noise grows with log det of a larger Hessian, and for least squares with a Huber bound; noisy
    gradients do better there (docs/accuracy.md).
    """
    return "objective" if pure or binary else "gradient"


Array = np.ndarray


def clipped_sum(problem: Problem, theta: Array, clip_norm: float) -> Array:
    """Sum of the records' loss gradients, each scaled down to norm <= clip_norm; the regulariser is left out.

    A gradient x slope^T has norm ||x|| ||slope||, so no record's matrix is ever formed.
    """
    slopes = problem.loss.slopes(problem.features @ theta, problem.targets)
    norms = np.sqrt(np.einsum("ij,ij->i", slopes, slopes) * np.einsum("ij,ij->i", problem.features, problem.features))
    factors = clip_norm / np.maximum(norms, clip_norm)
    return problem.features.T @ (slopes * factors[:, None])


@dataclass(frozen=True)
class GradientDescent(Method):
    """theta <- theta - (eta / n) (sum_i clip(g_i, C) + N(0, (m C)^2 I) + strength theta), T times from 0.

    T Gaussian steps of sensitivity C (2 C under replace-one): mu = s sqrt(T) / m exactly, so m is solved from the
    target itself. The paper leaves its constant open (its s^2 = c G^2 T log(1/delta) / (n^2 epsilon^2)); `constant`
    says which c the exact calibration amounts to. With `average`, the mean of the second half of the iterates is
    released, which is post-processing; with `momentum`, steps follow Nesterov, likewise.

    Args:
        steps: T >= 1, public.
        clip_norm: C > 0; None means the Lipschitz constant of the loss.
        step_scale: eta in units of 1 / (smoothness + strength / n), > 0.
        momentum: in [0, 1).
        average: release the mean of the last half of the iterates.

    Source: Wang, Ye & Xu 2017, Algorithm 1; exact composition by Dong, Roth & Su 2019, Corollary 2.

    Example:
        >>> GradientDescent(steps=10, clip_norm=1.0).steps
        10
    """

    family: ClassVar[str] = "gradient"
    any_size: ClassVar[bool] = True
    name: ClassVar[str] = "descent"
    steps: int = 120
    clip_norm: float | None = 0.5
    step_scale: float = 1.0
    momentum: float = 0.9
    average: bool = True

    def __post_init__(self) -> None:
        check.count("steps", self.steps)
        if self.clip_norm is not None:
            check.positive("clip_norm", self.clip_norm)
        check.positive("step_scale", self.step_scale)
        check.real("momentum", self.momentum, low=0.0, high=1.0, open_high=True)

    def clip(self, problem: Problem) -> float:
        """Clipping norm C, at most the Lipschitz constant of the loss."""
        bound = problem.loss.lipschitz
        if self.clip_norm is None and math.isinf(bound):
            raise check.fail("clip_norm", "given for a loss without bounded gradients", None)
        return bound if self.clip_norm is None else min(self.clip_norm, bound)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release an average of the last iterates, or the last one."""
        clip = self.clip(problem)
        step = Gaussian(terms.gaussian(steps=self.steps))
        std = step.noise_multiplier * clip
        eta = self.step_scale / (problem.loss.smoothness + problem.strength / problem.size)
        theta, velocity = problem.zero(), problem.zero()
        total, counted = problem.zero(), 0
        for taken in range(1, self.steps + 1):
            terms.charge(step, "gradient perturbation", exact=True)
            ahead = theta + self.momentum * velocity
            rounding = step_rounding(problem, ahead, clip)
            noisy = terms.noisy(clipped_sum(problem, ahead, clip), std=std, rounding=rounding)
            velocity = self.momentum * velocity - eta / problem.size * (noisy + problem.strength * ahead)
            theta = theta + velocity
            if 2 * taken > self.steps:
                total, counted = total + theta, counted + 1
        facts = {"noise_std": std, "clip_norm": clip, "steps": self.steps, "step_size": eta}
        return terms.release(total / counted if self.average else theta, step * self.steps, facts)
