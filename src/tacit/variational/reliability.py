"""Reliability of predicted probabilities: their calibration in bins, and the expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import check


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in equal-width bins of their confidence; empty bins are left out.

    Look at held-out or public records only: it is as private as they are.

    Attributes:
        confidence: mean predicted probability of each bin.
        frequency: share of right predictions in each bin.
        counts: predictions in each bin.

    Example:
        >>> Reliability(torch.tensor([0.5]), torch.tensor([0.75]), torch.tensor([4])).error
        0.25
    """

    confidence: Tensor
    frequency: Tensor
    counts: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: mean |frequency - confidence| over all predictions."""
        return float(((self.frequency - self.confidence).abs() * self.counts).sum() / self.counts.sum())


def reliability(probabilities: Tensor, targets: Tensor, *, bins: int = 10) -> Reliability:
    """Reliability of P(y = 1), shape (n,), against targets 0 and 1; or of the likeliest class, shape (n, classes).

    Two columns count as one probability, that of class 1.

    Raises:
        InvalidInput: the shapes do not fit together.

    Example:
        >>> reliability(torch.tensor([0.9, 0.9]), torch.tensor([1, 0])).frequency.tolist()
        [0.5]
    """
    if len(probabilities) != len(targets) or probabilities.dim() not in (1, 2) or not len(targets):
        raise check.fail("probabilities", f"of shape (n,) or (n, classes) for n = {len(targets)}", probabilities.shape)
    if probabilities.dim() == 2 and probabilities.shape[1] > 2:
        chance, guess = probabilities.max(1)
        right = guess == targets
    else:
        chance, right = (probabilities if probabilities.dim() == 1 else probabilities[:, 1]), targets == 1
    chance = chance.double()
    edges = torch.linspace(0, 1, check.count("bins", bins) + 1, dtype=torch.float64)[1:-1]
    place = torch.bucketize(chance.contiguous(), edges)
    counts = torch.bincount(place, minlength=bins)
    used = counts > 0
    confidence = torch.bincount(place, weights=chance, minlength=bins)[used] / counts[used]
    frequency = torch.bincount(place, weights=right.double(), minlength=bins)[used] / counts[used]
    return Reliability(confidence, frequency, counts[used])


def calibration_error(probabilities: Tensor, targets: Tensor, *, bins: int = 10) -> float:
    """Expected calibration error: `reliability(...).error`.

    Example:
        >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([1, 1])), 3)
        0.1
    """
    return reliability(probabilities, targets, bins=bins).error
