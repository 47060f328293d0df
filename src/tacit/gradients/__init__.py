"""Clipped sums of per-example gradients for any `torch.nn.Module`."""

from tacit.gradients.audit import audit
from tacit.gradients.clipped import ClippedSum, clipped_sum
from tacit.gradients.doctor import Problem, examine, problems
from tacit.gradients.leakage import Leak, leakage
from tacit.gradients.repair import Fixed, fix
from tacit.gradients.total import GradientSum
from tacit.gradients.units import Members

__all__ = [
    "ClippedSum",
    "Fixed",
    "GradientSum",
    "Leak",
    "Members",
    "Problem",
    "audit",
    "clipped_sum",
    "examine",
    "fix",
    "leakage",
    "problems",
]
