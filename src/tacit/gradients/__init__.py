"""Clipped sums of per-example gradients for any `torch.nn.Module`."""

from tacit.gradients.clipped import clipped_sum
from tacit.gradients.doctor import examine, problems

__all__ = ["clipped_sum", "examine", "problems"]
