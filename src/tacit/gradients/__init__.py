"""Clipped sums of per-example gradients for any `torch.nn.Module`."""

from tacit.gradients.clipped import ClippedSum, clipped_sum
from tacit.gradients.doctor import examine, problems

__all__ = ["ClippedSum", "clipped_sum", "examine", "problems"]
