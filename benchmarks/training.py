"""Time and memory of one private step, as ratios to plain PyTorch on the same batch, all measured in one run.

    python benchmarks/training.py [--model NAME ...] [--rounds 5] [--threads 1] [--opacus]

Every round runs each way once, one after the other, so that a slow spell of the machine hits all of them; the printed
ratio is the median over rounds of process CPU time. Steps draw noise from the secure stream, clip at 1 and update by
SGD.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tacit.models import convnet, linear, mlp
from tacit.training import private_step

Step = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """A model and one batch for it."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], Tensor | tuple[Tensor, ...]]
    classes: int
    batch: int


class Bag(nn.Module):
    """Mean of word vectors, then a small classifier."""

    def __init__(self, words: int = 10000, width: int = 16):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.head = mlp(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words).mean(1))


class Ratings(nn.Module):
    """Neural collaborative filtering with the widths of Bu et al. 2020."""

    def __init__(self, users: int = 6040, items: int = 3706):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, d) for n, d in ((users, 5), (items, 5), (users, 10), (items, 10))])
        self.head = nn.Linear(25, 5)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        user, item, deep_user, deep_item = (
            table(index) for table, index in zip(self.tables, (users, items, users, items), strict=True)
        )
        return self.head(torch.cat([user * item, deep_user, deep_item], 1))


class Transformer(nn.Module):
    """Pre-norm language model that predicts one class from the mean of its positions."""

    def __init__(self, words: int = 5000, width: int = 256, layers: int = 4, heads: int = 4, length: int = 128):
        super().__init__()
        self.table, self.position = nn.Embedding(words, width), nn.Parameter(torch.zeros(1, length, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        x = self.table(words) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).mean(1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(32, after), nn.GroupNorm(32, after)])
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.skip(x))


def resnet() -> nn.Module:
    """ResNet-18 with group normalisation, for 32 x 32 images."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(32, 64), nn.ReLU()]
    for before, after in ((64, 64), (64, 128), (128, 256), (256, 512)):
        blocks += [Residual(before, after, 1 + (before != after)), Residual(after, after, 1)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


CASES = {
    "adult": Case(lambda: mlp(123, 2), lambda: (torch.rand(256, 123) < 0.1).float(), 2, 256),
    "logistic": Case(lambda: linear(100, 100), lambda: torch.randn(200, 100), 100, 200),
    "mlp256": Case(lambda: mlp(100, 100, hidden=(256, 256)), lambda: torch.randn(200, 100), 100, 200),
    "mlp784": Case(lambda: mlp(784, 10, hidden=(300, 100)), lambda: torch.randn(400, 784), 10, 400),
    "mnist": Case(convnet, lambda: torch.rand(256, 1, 28, 28), 10, 256),
    "imdb": Case(Bag, lambda: torch.randint(10000, (512, 256)), 2, 512),
    "ncf": Case(Ratings, lambda: (torch.randint(6040, (10000,)), torch.randint(3706, (10000,))), 5, 10000),
    "transformer": Case(Transformer, lambda: torch.randint(5000, (8, 128)), 5000, 8),
    "resnet18": Case(resnet, lambda: torch.randn(8, 3, 32, 32), 10, 8),
}


def plain(case: Case, inputs: Tensor | tuple[Tensor, ...], targets: Tensor) -> Step:
    """Ordinary training: mean loss, backward, SGD."""
    model = case.build()
    optimizer = SGD(model.parameters(), lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(*given), targets).backward()
        optimizer.step()

    return step


def tacit(engine: str, case: Case, inputs: Tensor | tuple[Tensor, ...], targets: Tensor) -> Step:
    """The private step of this library."""
    model = case.build()
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "expected_batch_size": case.batch, "engine": engine}
    step = private_step(model, SGD(model.parameters(), lr=0.1), _losses, **settings)
    return lambda: step(inputs, targets)


def opacus(mode: str, case: Case, inputs: Tensor | tuple[Tensor, ...], targets: Tensor) -> Step:
    """Opacus with hooks or ghost clipping, its accountant and data loader left out."""
    from opacus.grad_sample.utils import wrap_model
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    given = inputs if isinstance(inputs, tuple) else (inputs,)
    common = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": case.batch}
    if mode == "hooks":
        model = wrap_model(case.build(), "hooks")
        optimizer = DPOptimizer(SGD(model.parameters(), lr=0.1), **common)
        criterion = nn.CrossEntropyLoss()
    else:
        model = wrap_model(case.build(), "ghost", max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(SGD(model.parameters(), lr=0.1), **common)
        criterion = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss(), "mean")

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(*given), targets).backward()
        optimizer.step()

    return step


WAYS: dict[str, Callable[[Case, Tensor | tuple[Tensor, ...], Tensor], Step]] = {
    "plain": plain,
    "tacit eager": lambda *given: tacit("eager", *given),
    "tacit compiled": lambda *given: tacit("compiled", *given),
    "opacus hooks": lambda *given: opacus("hooks", *given),
    "opacus ghost": lambda *given: opacus("ghost", *given),
}


def measure(name: str, rounds: int, ways: list[str]) -> dict[str, float | None]:
    """Median seconds of CPU time a step, by way; None where a way cannot run the model."""
    case = CASES[name]
    torch.manual_seed(0)
    inputs, targets = case.inputs(), torch.randint(case.classes, (case.batch,))
    steps: dict[str, Step] = {}
    for way in ways:
        torch.manual_seed(0)
        try:
            steps[way] = WAYS[way](case, inputs, targets)
            for _ in range(3):
                steps[way]()
        except Exception as error:
            print(f"  {name}: {way} cannot run: {type(error).__name__}: {str(error)[:100]}")
            steps.pop(way, None)
    times: dict[str, list[float]] = {way: [] for way in steps}
    repeats = max(1, int(0.4 / _seconds(steps["plain"], 3)))
    for _ in range(rounds):
        for way, step in steps.items():
            times[way].append(_seconds(step, repeats))
    return {way: statistics.median(times[way]) if way in times else None for way in ways}


def _seconds(step: Step, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        step()
    return (time.process_time() - start) / repeats


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--opacus", action="store_true", help="also measure opacus, where it is installed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    ways = [way for way in WAYS if options.opacus or not way.startswith("opacus")]
    for name in options.model or CASES:
        found = measure(name, options.rounds, ways)
        base = found["plain"]
        if options.json:
            print(json.dumps({"model": name, "threads": options.threads, "seconds": found}))
        elif base:
            ratios = "  ".join(f"{way} {value / base:.2f}" for way, value in found.items() if value and way != "plain")
            print(f"{name}: plain {base * 1e3:.2f} ms;  {ratios}", flush=True)


if __name__ == "__main__":
    main()
