"""The rule by which a convex model chooses its features and its method: a function of public shape alone."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.erm.gradient import GradientDescent
from tacit.erm.losses import Loss, Squared

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
