"""The ways to take one training step that benchmarks/training.py compares: plain PyTorch, tacit's engines, Opacus."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tacit.clipping import clip_of
from tacit.noise import SecureStream, compiled
from tacit.training.private_step import PrivateUpdate
from tacit.training.release import NoisyMean

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS, Batch, Case

Step = Callable[[], object]


class FloatNoise(NoisyMean):
    """Noisy means by floating-point normals: a comparison for this benchmark, not what the product releases."""

    def _add_noise(self, values: Tensor, std: float) -> None:
        noise = torch.from_numpy(self._stream.normal(values.numel(), np.float32))
        values.add_(noise.to(values.device), alpha=std)


def plain(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Ordinary training: mean loss, backward, SGD."""
    model = case.build().to(targets.device)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(*given), targets).backward()
        optimizer.step()

    return step


def plain_compiled(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Ordinary training under torch.compile."""
    model = case.build().to(targets.device)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    loss = torch.compile(lambda: F.cross_entropy(model(*given), targets))

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def tacit(engine: str, case: Case, inputs: Batch, targets: Tensor, *, exact: bool = True, parts: int = 1) -> Step:
    """The private step of this library, with exact or floating-point noise, in so many physical batches."""
    model = case.build().to(targets.device)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    stream = SecureStream()
    size = math.ceil(case.batch / parts)
    step = PrivateUpdate(model, optimizer, _losses, clip_of(1.0, None), case.batch, engine, stream, size)
    if not exact:
        step._noisy_mean = FloatNoise(stream)
    return lambda: step(inputs, targets, 1.0)


def opacus(mode: str, case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Opacus with hooks or ghost clipping, its accountant and data loader left out."""
    from opacus.grad_sample.utils import wrap_model
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    given = inputs if isinstance(inputs, tuple) else (inputs,)
    common = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": case.batch}
    built = case.build().to(targets.device)
    sgd = SGD([p for p in built.parameters() if p.requires_grad], lr=0.1)
    if mode == "hooks":
        model = wrap_model(built, "hooks")
        optimizer = DPOptimizer(sgd, **common)
        criterion = nn.CrossEntropyLoss()
    else:
        model = wrap_model(built, "ghost", max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(sgd, **common)
        criterion = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss(), "mean")

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(*given), targets).backward()
        optimizer.step()

    return step


def without_compiler(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """The recorded step where `tacit-noise` is not installed; each way has a process of its own."""
    compiled.first_tier = lambda: None
    return tacit("recorded", case, inputs, targets)


ENGINES = ("eager", "recorded", "compiled")
WAYS: dict[str, Callable[[Case, Batch, Tensor], Step]] = {
    "plain": plain,
    "plain compiled": plain_compiled,
    **{engine: partial(tacit, engine) for engine in ENGINES},
    **{f"{engine} float": partial(tacit, engine, exact=False) for engine in ENGINES},
    "no compiler": without_compiler,
    "eager quarters": partial(tacit, "eager", parts=4),
    "opacus hooks": partial(opacus, "hooks"),
    "opacus ghost": partial(opacus, "ghost"),
}


def prepared(name: str, way: str, device: str = "cpu") -> Step:
    """One way to take a step of a model, on its batch."""
    case = MODELS[name]
    torch.manual_seed(0)
    inputs, targets = case.inputs(case.batch), torch.randint(case.classes, (case.batch,))
    inputs = tuple(each.to(device) for each in inputs) if isinstance(inputs, tuple) else inputs.to(device)
    torch.manual_seed(0)
    return WAYS[way](case, inputs, targets.to(device))


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")
