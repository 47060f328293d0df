"""Gradient perturbation: full-batch gradient descent with noise in every step (Wang, Ye & Xu, NeurIPS 2017).

The rule by which a convex model chooses its features and its method: a function of public shape alone.

What a private fit says of itself: its lead over the constant answer on the training records, measured with noise.

Accuracy on the data is private, so nothing else may tell whether a model is worth more than its most frequent class or
its mean. The measurement is one Gaussian release, paid from the budget of the fit.
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

Array = np.ndarray

QUANTILE_SHARE = 0.1
"""Share of mu^2 for the distribution functions."""
_STEPS, _CLIP, _RATE = 100, 0.5, 4.0
_FULL_SIGNAL, _LEAST_RATE, _SPARSE_RATE = 5000.0, 0.15, 3.0


TWO, MORE, NUMBERS = "two", "more", "numbers"
"""Kinds of answers: two classes, more classes, numbers."""
# n mu, and n mu for each column, from which an additive model on private distribution functions is better, and below
# which the steps of noisy gradients do not settle: fitted on 32 tables (docs/auto.md, `python -m benchmarks.tables`).
_COSINES = {TWO: (30.0, 8.0), MORE: (30.0, 8.0), NUMBERS: (500.0, 60.0)}
_GRADIENT = {TWO: math.inf, MORE: 0.0, NUMBERS: 12.0}
_FEW = {TWO: 8.0, MORE: 0.0, NUMBERS: 10.0}


@dataclass(frozen=True)
class Shape:
    """What is public of a fit.

    Args:
        records: n, declared or public.
        columns: p.
        mu: of the target, in (0, inf); 0 for a pure one, which no Gaussian release meets.
        kind: `TWO`, `MORE` or `NUMBERS`.
    """

    records: int
    columns: int
    mu: float
    kind: str = TWO

    @property
    def signal(self) -> float:
        """What a column has of n mu."""
        return self.records * self.mu / self.columns

    @property
    def few(self) -> bool:
        """Whether the records are too few for the columns: a model of the rule is expected near the constant answer."""
        return 0 < self.signal < _FEW[self.kind]

    def cosines(self) -> bool:
        """Whether an additive model on cosines of private distribution functions is expected to be better.

        Example:
            >>> Shape(40_000, 14, 0.2).cosines(), Shape(400, 14, 0.2).cosines()
            (True, False)
        """
        least, of_a_column = _COSINES[self.kind]
        return self.records * self.mu >= least and self.signal >= of_a_column

    def method(self) -> str:
        """Family of "auto" on the rows as they are.

        Where delta is 0 it is objective perturbation. Its noise grows with log det of the Hessian, which is larger for
        more scores, and for least squares with a Huber bound; noisy gradients do better there if their steps settle.

        Example:
            >>> Shape(40_000, 14, 0.2, NUMBERS).method(), Shape(400, 14, 0.2, NUMBERS).method()
            ('gradient', 'objective')
        """
        return "gradient" if self.mu and self.signal >= _GRADIENT[self.kind] else "objective"

    def sparse(self) -> GradientDescent:
        """Steps for more classes and few records for each column, by sparse designs; the rate grows with n mu."""
        return GradientDescent(step_scale=min(_SPARSE_RATE, max(_LEAST_RATE, self.records * self.mu / 1000)))

    def additive(self, loss: Loss, largest: float) -> GradientDescent:
        """Full-batch steps for rows that were divided by `largest`: clip .5 and rate as for rows of norm 1.

        The rate grows with n mu, since noise moves theta by the rate over n mu, up to twice 4 / smoothness (a quarter
        for least squares, whose curvature does not fall with the scores).
        """
        most = 0.25 if isinstance(loss, Squared) else 2.0
        rate = _RATE * min(most, max(_LEAST_RATE, self.records * self.mu / _FULL_SIGNAL)) * largest**2
        return GradientDescent(steps=_STEPS, clip_norm=_CLIP / largest, step_scale=rate)


def clipped_sum(problem: Problem, theta: Array, clip_norm: float) -> Array:
    """Sum of the records' loss gradients, each scaled down to norm <= clip_norm; the regulariser is left out.

    A gradient x slope^T has norm ||x|| ||slope||, so no record's matrix is ever formed.
    """
    slopes = problem.slopes(problem.features @ theta)
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
        step_scale: s > 0 of eta = s / (smoothness + s strength / n).
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
        # The pull of the penalty is exact, so that a step of a larger scale must not cross its minimum.
        eta = self.step_scale / (problem.loss.smoothness + self.step_scale * problem.strength / problem.size)
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


CHECK_SHARE = 0.05
"""Share of mu^2 that pays the measurement."""
_UNITS = 2.0**20  # values are cut to whole parts of it, so that their sums are exact
_QUARTER = 2.0  # standard error on a quarter of the records, in that on all of them


@dataclass(frozen=True)
class Lead:
    """Lead of a model over the constant answer, per record.

    Attributes:
        value: accuracy less that of the most frequent class, or, in units of half the declared range squared, mean
            squared error of the mean less that of the model.
        noise: standard deviation of the noise in it.
        sampling: standard error on a quarter as many records as the training has; 0 for numbers.
        mean: of the answers in [-1, 1], as it was released; 0 for classes.
    """

    value: float
    noise: float
    sampling: float
    mean: float = 0.0

    @property
    def near(self) -> bool:
        """Whether it is within one standard error of nothing."""
        return self.value <= self.sampling + self.noise


def lead_of_classes(scores: Array, targets: Array, terms: Terms, *, multiplier: float, size: int) -> Lead:
    """Lead in accuracy.

    A record counts in one cell, its class by whether it is answered rightly, so that the counts have sensitivity 1.

    Args:
        scores: (n, 1) of the second class, or (n, classes).
        targets: class of each record.
        terms: of the release, which is charged before the noise is drawn.
        multiplier: noise multiplier.
        size: public number of records.
    """
    classes = max(scores.shape[1], 2)
    truth = targets.astype(np.int64)
    answers = (scores[:, 0] > 0).astype(np.int64) if classes == 2 else scores.argmax(axis=1)
    counts = np.bincount(2 * truth + (answers == truth), minlength=2 * classes).astype(np.float64)
    terms.charge(Gaussian(multiplier), "lead over the constant answer", exact=True)
    wrong, right = terms.noisy(counts, std=multiplier).reshape(classes, 2).T
    usual = int((wrong + right).argmax())
    won, lost = float(right.sum() - right[usual]), float(wrong[usual])
    noise = multiplier * math.sqrt(classes)
    # Fewer different answers than the noise are not told from none.
    sampling = _QUARTER * math.sqrt(max(won + lost, noise)) / size
    return Lead((won - lost) / size, noise / size, sampling)


def lead_of_numbers(scores: Array, targets: Array, terms: Terms, *, multiplier: float, size: int) -> Lead:
    """Lead in squared error, capped at 1 for each record: sum y^2 - min((y - f)^2, 1), less (sum y)^2 / n.

    Args:
        scores: f, (n, 1).
        targets: y in [-1, 1], (n,).
        terms: of the release, which is charged before the noise is drawn.
        multiplier: noise multiplier.
        size: public number of records.
    """
    parts = np.stack([targets, targets**2 - np.minimum((targets - scores[:, 0]) ** 2, 1.0)])
    sums = np.trunc(parts * _UNITS).sum(axis=1) / _UNITS
    terms.charge(Gaussian(multiplier), "lead over the constant answer", exact=True)
    total, gain = terms.noisy(sums, std=multiplier * math.sqrt(2)).tolist()
    mean = max(-1.0, min(1.0, total / size))
    noise = multiplier * math.sqrt(2 * (1 + 4 * mean**2)) / size
    return Lead(gain / size - mean**2, noise, 0.0, mean)
