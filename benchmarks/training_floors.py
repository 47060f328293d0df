"""Least time of a private step over plain PyTorch: python benchmarks/training_floors.py [MODEL ...] [--json FILE].

A private step needs all of the plain one: its forward pass, its output gradients, the products that make weight
gradients, its update. Besides, any correct algorithm needs the squared norm of every record's gradient in every layer,
a weighted gradient of every layer's output, and exact noise for every weight. Each of them is timed
alone, as bare calls of PyTorch and of the stream on tensors of a real step, on one thread: norms of a layer by the
cheaper of Gram matrices of its positions and of gradients record by record. The floor is the plain step and their sum.
What is left out makes it lower: the exact addition of noise, the order of sums, all checks, and Python between calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS
from benchmarks.training_ways import prepared
from tacit.noise import SecureStream, rounded_gaussian

Call = Callable[[], object]
PARTS = ("plain step", "norms", "weighted output gradients", "exact noise")
_ROUNDS, _SECONDS = 7, 0.1
_NORMALISED = (nn.LayerNorm, nn.GroupNorm)


@dataclass
class Use:
    """One call of a layer that has weights: its input, and the gradient of its output."""

    layer: nn.Module
    given: Tensor
    gradient: Tensor


def uses_of(model: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> list[Use]:
    """Inputs and output gradients of every layer with weights in one step."""
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((layer, given[0].detach(), output))

    owners = [layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))]
    hooks = [layer.register_forward_hook(note) for layer in owners]
    loss = F.cross_entropy(model(*inputs), targets)
    found = torch.autograd.grad(loss, [output for *_, output in calls])
    for hook in hooks:
        hook.remove()
    return [Use(layer, given, gradient) for (layer, given, _), gradient in zip(calls, found, strict=True)]


def norm_ways(use: Use) -> list[Call]:
    """Ways to compute the squared norms of every record's weight gradient in one layer."""
    layer, given, gradient = use.layer, use.given, use.gradient
    if isinstance(layer, nn.Embedding) or not hasattr(layer, "weight"):
        # Rows of a table, or parameters that are added to every record.
        return [lambda: _squares(gradient)]
    if isinstance(layer, _NORMALISED) or layer.weight.dim() == 1:
        return [lambda: _squares((gradient * given.reshape(gradient.shape)).reshape(len(given), -1))]
    if isinstance(layer, nn.Conv2d):
        fold = {"dilation": layer.dilation, "padding": layer.padding, "stride": layer.stride}
        patches = F.unfold(given, layer.kernel_size, **fold)
        rows, columns = gradient.flatten(2), patches
        if layer.groups > 1:
            return [lambda: _squares(gradient)]
        return [lambda: _squares(rows @ columns.mT), lambda: (rows.mT @ rows * (columns.mT @ columns)).sum((1, 2))]
    if given.dim() == 2:
        return [lambda: _squares(gradient) * _squares(given)]
    rows, columns = gradient.flatten(1, -2), given.flatten(1, -2)
    return [lambda: _squares(rows.mT @ columns), lambda: (rows @ rows.mT * (columns @ columns.mT)).sum((1, 2))]


def _squares(values: Tensor) -> Tensor:
    return torch.linalg.vector_norm(values.flatten(1), dim=1).square()


def floor(name: str) -> dict[str, float]:
    """Shares of the plain step that the parts of the least private step take, medians over rounds, and their sum."""
    case, plain = MODELS[name], prepared(name, "plain")
    torch.manual_seed(0)
    model, given = case.build(), case.inputs(case.batch)
    inputs = given if isinstance(given, tuple) else (given,)
    uses = uses_of(model, inputs, torch.randint(case.classes, (case.batch,)))
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    stream, weights, factors = SecureStream(), torch.zeros(size), torch.rand(case.batch)
    norms = [min(norm_ways(use), key=_seconds) for use in uses]

    def weigh() -> None:
        for use in uses:
            torch.mul(use.gradient, factors.reshape(-1, *[1] * (use.gradient.dim() - 1)))

    def draw() -> None:
        rounded_gaussian(weights.numpy(), stream, std=1.0, out=weights.numpy())

    parts: dict[str, Call] = dict(zip(PARTS, (plain, lambda: [way() for way in norms], weigh, draw), strict=True))
    shares: dict[str, list[float]] = {part: [] for part in PARTS}
    with torch.no_grad():
        for _ in range(_ROUNDS):
            with torch.enable_grad():
                base = _seconds(plain)
            for part, call in parts.items():
                shares[part].append(1.0 if call is plain else _seconds(call) / base)
    found = {part: statistics.median(values) for part, values in shares.items()}
    return {part: round(value, 3) for part, value in (found | {"floor": sum(found.values())}).items()}


def _seconds(call: Call) -> float:
    """Mean time of a call, after one that warms up."""
    call()
    start, count = time.perf_counter(), 0
    while count < 2 or time.perf_counter() - start < _SECONDS:
        call()
        count += 1
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="*", default=[name for name in MODELS if name not in ("lstm", "transformer-lora")]
    )
    parser.add_argument("--json", metavar="FILE", help="also store everything there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = {}
    for name in options.models:
        rows[name] = floor(name)
        print(name, rows[name], flush=True)
    if options.json:
        facts = {
            "command": "python benchmarks/training_floors.py --json benchmarks/results/training_floors.json",
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "rounds": _ROUNDS,
            "shares_of_plain": rows,
        }
        Path(options.json).write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
