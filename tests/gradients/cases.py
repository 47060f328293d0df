"""The float64 loop that every gradient is compared with, and losses for it."""

import copy
import math

import torch
from torch.nn import functional as F

from tacit.gradients.inputs import call, rows


def cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs, targets):
    return (outputs - targets).square().flatten(1).sum(1)


def readout(outputs, targets):
    """A loss of any outputs: uneven in every position, and curved."""
    values = outputs.flatten(1)
    weights = torch.linspace(-1.0, 1.5, values.shape[1], dtype=values.dtype)
    return (values * weights).sum(1) + 0.1 * values.square().sum(1) + 0.0 * targets


def doubled(value):
    if isinstance(value, tuple):
        return tuple(doubled(part) for part in value)
    if isinstance(value, dict):
        return {name: doubled(part) for name, part in value.items()}
    return value.double() if value.is_floating_point() else value


def oracle(model, loss, inputs, targets, clip_norm):
    """Clipped sum and norms by ordinary backward passes in float64, one example at a time."""
    model, inputs, targets = copy.deepcopy(model).double(), doubled(inputs), doubled(targets)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sums, norms = {name: torch.zeros_like(p) for name, p in named.items()}, []
    for i in range(len(targets)):
        one = slice(i, i + 1)
        value = loss(call(model, rows(inputs, one)), targets[one]).sum()
        gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, named.values(), strict=True)]
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        norms.append(norm)
        for name, gradient in zip(named, gradients, strict=True):
            sums[name] += gradient * min(1.0, clip_norm / norm if norm else 1.0)
    return sums, torch.tensor(norms, dtype=torch.float64)


def assert_same(found, expected, *, clip_norm, rtol=1e-4):
    """Norms agree to `rtol` each; the sums agree to `rtol` of the longest sum there can be."""
    (sums, norms), (expected_sums, expected_norms) = found, expected
    torch.testing.assert_close(norms.double(), expected_norms, rtol=rtol, atol=1e-6)
    assert list(sums) == list(expected_sums)
    scale = float(expected_norms.clamp(max=clip_norm).sum())
    for name, value in sums.items():
        assert value.shape == expected_sums[name].shape
        assert float((value.double() - expected_sums[name]).norm()) <= rtol * scale, name


def total_norm(sums):
    return math.sqrt(sum(float(value.double().square().sum()) for value in sums.values()))
