"""Membership by the norm of the record's gradient, for an attacker who holds the weights (Nasr et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, vector

Norms = Callable[[Examples], np.ndarray]
"""Examples to the L2 norm of the loss gradient of each of them in all weights, shape (n,)."""


class GradientNorm(Attack):
    """Score minus the gradient norm: training drives the gradients of its records towards 0.

    Args:
        norms: gives the per-example gradient norms of the attacked model; its predictions are not used.

    Raises:
        InvalidInput: `norms` is no function.

    Example:
        >>> attack = GradientNorm(lambda examples: np.abs(examples[0]))
        >>> attack.score(lambda inputs: inputs, (np.array([0.5, -2.0]), np.array([0, 1])))
        array([-0.5, -2. ])
    """

    name: ClassVar[str] = "gradient_norm"

    def __init__(self, norms: Norms):
        if not callable(norms):
            raise check.fail("norms", "a function from examples to gradient norms", type(norms).__name__)
        self.norms = norms

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """Minus the gradient norm of each example."""
        norms = vector("gradient norms", self.norms(examples))
        if len(norms) != len(examples[1]) or np.any(norms < 0):
            raise check.fail("gradient norms", "one number >= 0 for each example", f"shape {norms.shape}")
        return -norms
