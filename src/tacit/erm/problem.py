"""`Problem`: the regularised empirical risk that every method minimises."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit.erm.losses import Loss

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    """F(theta) = sum_i l(theta^T x_i, y_i) + (strength / 2) ||theta||^2, theta of shape (p, k).

    A sum, so that adding, removing or zeroing one record changes one term: its gradient by at most `lipschitz`, and
    by twice that when the record is replaced. `strength` = n * regularization and n itself are public constants.

    Attributes:
        features: float64 (n, p), every row of norm at most 1 (enforced by `Design`).
        targets: (n,), as the loss expects them.
        loss: see `losses`.
        strength: >= 0; F is strength-strongly convex.
        constant: whether the last column is the intercept's public constant, which no noise needs to hide.
    """

    features: Array
    targets: Array
    loss: Loss
    strength: float
    constant: bool = False

    @property
    def private_columns(self) -> int:
        """How many columns come from the records."""
        return self.features.shape[1] - self.constant

    @property
    def records(self) -> int:
        """n, public."""
        return len(self.features)

    @property
    def shape(self) -> tuple[int, int]:
        """(p, k) of theta."""
        return self.features.shape[1], self.loss.outputs

    @property
    def dimension(self) -> int:
        """p k, the number of parameters."""
        return self.shape[0] * self.shape[1]

    def zero(self) -> Array:
        """theta = 0."""
        return np.zeros(self.shape)

    def with_strength(self, strength: float) -> Problem:
        """The same data under another regularisation."""
        return replace(self, strength=strength)

    def value(self, theta: Array) -> float:
        """F(theta)."""
        risk = self.loss.values(self.features @ theta, self.targets).sum()
        return float(risk + self.strength / 2 * (theta**2).sum())

    def gradient(self, theta: Array) -> Array:
        """The gradient of F, (p, k)."""
        slopes = self.loss.slopes(self.features @ theta, self.targets)
        return self.features.T @ slopes + self.strength * theta

    def contributions(self, theta: Array) -> Array:
        """The gradient of every record's loss, (n, p, k): what one record can change, for checks by brute force."""
        slopes = self.loss.slopes(self.features @ theta, self.targets)
        return self.features[:, :, None] * slopes[:, None, :]

    def mean_gap(self, theta: Array, best: Array) -> float:
        """(F(theta) - F(best)) / n."""
        return (self.value(theta) - self.value(best)) / self.records
