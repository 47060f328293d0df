"""Losses of linear models, with the constants that privacy proofs read off them.

A loss sees a record through its scores s = theta^T x in R^k. With ||x|| <= 1 (see `design`, which puts the intercept
inside that bound) one record's gradient x (dl/ds)^T has norm at most `lipschitz`, and its Hessian eigenvalues lie in
[0, smoothness].
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from scipy.special import expit

from tacit import check

Array = np.ndarray


class Loss(ABC):
    """A convex loss l(s, y) of one record, s of length `outputs`.

    Attributes:
        outputs: k, the number of scores of one record.
        lipschitz: Lipschitz constant sup ||dl/ds||_2; inf where there is none.
        smoothness: the largest eigenvalue of d2l/ds2.
        corners: number m of vectors v_1..v_m of norm <= lipschitz such that dl/ds always lies in conv{0, v_1, .., v_m}.
            They may depend on the record, not on s. One when the sign of a single slope is known from the label.
        alphabet: the targets of `accepts`, in words.
    """

    outputs = 1
    lipschitz = math.inf
    smoothness = math.inf
    corners = 1
    alphabet = "finite numbers"

    def accepts(self, targets: Array) -> Array:
        """Which targets, (n,) of booleans, lie in the alphabet that the constants above are proven for."""
        return np.isfinite(targets)

    def log_volume(self, strength: float) -> float:
        """Upper bound on log det(H + h + strength I) - log det(H + strength I), h one record's Hessian, H >= 0."""
        return math.log1p(self.smoothness / strength) if strength > 0 else math.inf

    @abstractmethod
    def values(self, scores: Array, targets: Array) -> Array:
        """Losses of every record, (n,), from scores (n, k)."""

    @abstractmethod
    def slopes(self, scores: Array, targets: Array) -> Array:
        """Derivatives dl/ds of every record, (n, k)."""

    @abstractmethod
    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Second derivatives d2l/ds2 of every record, (n, k, k)."""


class _Binary(Loss):
    """A loss of targets 1 and 0; others would stretch the slope beyond the Lipschitz constant."""

    alphabet = "0 and 1"

    def accepts(self, targets: Array) -> Array:
        """Which targets are 0 or 1."""
        return (targets == 0) | (targets == 1)


@dataclass(frozen=True)
class Logistic(_Binary):
    """log(1 + e^{-m}), m = +-s for targets 1 and 0, continued linearly where its slope would exceed `slope_bound`.

    With slope_bound B < 1 this is the convex loss whose gradients are those of logistic regression clipped to norm B:
    records on the wrong side of the boundary count no more than doubtful ones.
    """

    slope_bound: float = 1.0
    lipschitz = property(attrgetter("slope_bound"))

    def __post_init__(self) -> None:
        check.probability("slope_bound", self.slope_bound, open_low=True)

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of d2l/ds2."""
        return 0.25 if self.slope_bound >= 0.5 else self.slope_bound * (1 - self.slope_bound)

    def values(self, scores: Array, targets: Array) -> Array:
        """Losses, (n,)."""
        margins = _margins(scores, targets)
        if self.slope_bound == 1.0:
            return np.logaddexp(0.0, -margins)
        start = math.log((1 - self.slope_bound) / self.slope_bound)
        inside = np.maximum(margins, start)
        return np.logaddexp(0.0, -inside) + self.slope_bound * (inside - margins)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Derivatives dl/ds, (n, k)."""
        signs = _signs(targets)
        return -(signs * np.minimum(expit(-signs * scores[:, 0]), self.slope_bound))[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Second derivatives d2l/ds2, (n, k, k)."""
        chance = expit(-_margins(scores, targets))
        return np.where(chance < self.slope_bound, chance * (1 - chance), 0.0)[:, None, None]


@dataclass(frozen=True)
class Softmax(Loss):
    """-log softmax(s)_y for k >= 3 classes: multinomial logistic regression.

    dl/ds = p - e_y lies in conv{e_c - e_y}, whose corners have norm sqrt(2); d2l/ds2 = diag(p) - p p^T has rank k - 1,
    trace at most 1 - 1/k and eigenvalues at most 1/2.
    """

    classes: int
    outputs = property(attrgetter("classes"))
    lipschitz = math.sqrt(2.0)
    smoothness = 0.5

    @property
    def alphabet(self) -> str:
        """The targets of `accepts`, in words."""
        return f"integers from 0 to {self.classes - 1}"

    def accepts(self, targets: Array) -> Array:
        """Which targets are an index of a class; none where they are no integers."""
        if not np.issubdtype(np.asarray(targets).dtype, np.integer):
            return np.zeros(len(targets), dtype=bool)
        return (targets >= 0) & (targets < self.classes)

    @property
    def corners(self) -> int:
        """Number of vectors whose hull with 0 holds dl/ds; see `Loss.corners`."""
        return self.classes - 1

    def log_volume(self, strength: float) -> float:
        """(k - 1) log(1 + 1 / (k strength)): the trace spread evenly over the k - 1 eigenvalues is the worst case."""
        return (self.classes - 1) * math.log1p(1 / (self.classes * strength)) if strength > 0 else math.inf

    def values(self, scores: Array, targets: Array) -> Array:
        """Losses, (n,)."""
        shifted = scores - scores.max(axis=1, keepdims=True)
        picked = np.take_along_axis(shifted, targets[:, None], axis=1)[:, 0]
        return np.log(np.exp(shifted).sum(axis=1)) - picked

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Derivatives dl/ds, (n, k)."""
        chances = softmax(scores)
        chances[np.arange(len(targets)), targets] -= 1.0
        return chances

    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Second derivatives d2l/ds2, (n, k, k)."""
        chances = softmax(scores)
        diagonal = chances[:, :, None] * np.eye(self.classes)
        return diagonal - chances[:, :, None] * chances[:, None, :]


@dataclass(frozen=True)
class HuberHinge(_Binary):
    """The hinge loss of a support vector machine, rounded on [1 - h, 1 + h] (Chaudhuri et al. 2011, Section 3.4.2).

    Args:
        half_width: h > 0; the second derivative is at most 1 / (2h).
    """

    half_width: float = 0.5
    lipschitz = 1.0

    def __post_init__(self) -> None:
        check.positive("half_width", self.half_width)

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of d2l/ds2."""
        return 1 / (2 * self.half_width)

    def values(self, scores: Array, targets: Array) -> Array:
        """Losses, (n,)."""
        short = 1 + self.half_width - _margins(scores, targets)
        rounded = np.clip(short, 0.0, 2 * self.half_width)
        return rounded**2 / (4 * self.half_width) + np.maximum(short - 2 * self.half_width, 0.0)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Derivatives dl/ds, (n, k)."""
        signs = _signs(targets)
        short = 1 + self.half_width - signs * scores[:, 0]
        return -(signs * np.clip(short / (2 * self.half_width), 0.0, 1.0))[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Second derivatives d2l/ds2, (n, k, k)."""
        rounded = np.abs(1 - _margins(scores, targets)) < self.half_width
        return np.where(rounded, 1 / (2 * self.half_width), 0.0)[:, None, None]


@dataclass(frozen=True)
class Squared(Loss):
    """(s - y)^2 / 2, whose gradient is unbounded; with `residual_bound` B linear beyond |s - y| = B (Huber's loss).

    Huber's slope lies in [-B, B], so there are two corners, +-B.
    """

    residual_bound: float = math.inf
    lipschitz = property(attrgetter("residual_bound"))
    smoothness = 1.0
    corners = 2

    def values(self, scores: Array, targets: Array) -> Array:
        """Losses, (n,)."""
        residuals = np.abs(scores[:, 0] - targets)
        inside = np.minimum(residuals, self.residual_bound)
        beyond = 0.0 if math.isinf(self.residual_bound) else self.residual_bound * (residuals - inside)
        return inside**2 / 2 + beyond

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Derivatives dl/ds, (n, k)."""
        return np.clip(scores[:, 0] - targets, -self.residual_bound, self.residual_bound)[:, None]

    def curvatures(self, scores: Array, targets: Array) -> Array:
        """Second derivatives d2l/ds2, (n, k, k)."""
        return (np.abs(scores[:, 0] - targets) < self.residual_bound).astype(float)[:, None, None]


def softmax(scores: Array) -> Array:
    """Class probabilities of scores (n, k)."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def clipped_chance(scores: Array, slope_bound: float) -> Array:
    """Probability of target 1 under `Logistic(slope_bound)`: the p at which the risk of the score is stationary.

    p min(sigma(-s), B) = (1 - p) min(sigma(s), B); the logistic function itself for B = 1.
    """
    up, down = np.minimum(expit(scores), slope_bound), np.minimum(expit(-scores), slope_bound)
    return up / (up + down)


def _signs(targets: Array) -> Array:
    return 2.0 * targets - 1.0


def _margins(scores: Array, targets: Array) -> Array:
    return _signs(targets) * scores[:, 0]
