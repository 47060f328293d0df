"""Clipped sums of per-example gradients for any `torch.nn.Module`."""

from tacit.gradients.clipped import ClippedSum, clipped_sum
from tacit.gradients.doctor import examine, problems
from tacit.gradients.total import GradientSum
from tacit.gradients.units import Members

__all__ = ["ClippedSum", "GradientSum", "Members", "clipped_sum", "examine", "problems"]
