"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from tacit import check
from tacit.models.start import glorot


def linear(inputs: int, classes: int) -> nn.Module:
    """Logistic regression: (batch, inputs) -> (batch, classes) logits."""
    return mlp(inputs, classes, hidden=())


def mlp(inputs: int, classes: int, *, hidden: Sequence[int] = (16,)) -> nn.Module:
    """Fully connected ReLU network: (batch, inputs) -> (batch, classes) logits."""
    widths = [check.count("inputs", inputs), *(check.count("hidden", width) for width in hidden)]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return glorot(nn.Sequential(*layers, nn.Linear(widths[-1], check.count("classes", classes))))
