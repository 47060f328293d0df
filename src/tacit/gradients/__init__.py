"""Clipped sums of per-sample gradients for any `torch.nn.Module`."""

from tacit.gradients.clipped import ClippedSum, clipped_sum
from tacit.gradients.flat_gradient import FlatGradient
from tacit.gradients.neighbours import Leak, leakage
from tacit.gradients.privacy_units import UnitIds
from tacit.gradients.sums import first_batch_check
from tacit.gradients.validate import Fixed, Problem, examine, fix, problems

__all__ = [
    "ClippedSum",
    "Fixed",
    "FlatGradient",
    "Leak",
    "Problem",
    "UnitIds",
    "clipped_sum",
    "examine",
    "first_batch_check",
    "fix",
    "leakage",
    "problems",
]
