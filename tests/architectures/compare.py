"""One private step of a raw model against a loop over its records in float64, and steps with noise after it."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass

import torch
from torch.optim import SGD
from torch.utils.data import DataLoader

from tacit.errors import TacitError
from tacit.gradients.clipped import ClippedSum
from tacit.noise import SeededStream
from tacit.training import make_private
from tests.architectures.zoo import RECORDS, Architecture

BATCH, STEPS = 4, 12
# Learning rate of the compared step: weights of size 1 would round a small gradient away.
SCALE = 1024.0


@dataclass(frozen=True)
class Row:
    """What was found for one architecture.

    Attributes:
        name: of the architecture.
        library: whose it is.
        error: of the clipped sum of one step against the loop, relative to the longest there can be.
        steps: private steps with noise that were taken.
        empty: how many of them on an empty batch.
        engine: "captured", or why a part takes a slower method.
        refused: why it does not run; empty if it does.
        seconds: of everything.
    """

    name: str
    library: str
    error: float = float("nan")
    steps: int = 0
    empty: int = 0
    engine: str = ""
    refused: str = ""
    seconds: float = 0.0


class Rows(torch.utils.data.Dataset):
    """Records as a Hugging Face data set gives them: dictionaries of tensors."""

    def __init__(self, columns: dict[str, torch.Tensor]):
        self.columns = columns

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def compare(architecture: Architecture) -> Row:
    """Train `architecture` as it is: one step without noise against the loop, then steps with noise."""
    started = time.process_time()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, columns = architecture.build().train(), architecture.data()
        try:
            error, engine = _one_step(copy.deepcopy(model), columns, architecture)
            steps, empty = _noisy_steps(model, columns, architecture)
        except TacitError as refusal:
            return Row(architecture.name, architecture.library, refused=str(refusal))
    seconds = time.process_time() - started
    return Row(architecture.name, architecture.library, error, steps, empty, engine, seconds=seconds)


def _one_step(model, columns, architecture):
    reference = copy.deepcopy(model).double()
    loader = DataLoader(Rows(columns), batch_size=8)
    trainable = [p for p in model.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trainable]
    clip = _median_norm(model, columns, architecture)
    parts = make_private(
        model, SGD(trainable, lr=SCALE), loader, clip_norm=clip, noise_multiplier=0.0, unsafe_no_noise=True, steps=3,
        stream=SeededStream(2),
    )  # fmt: skip
    batch = next(iter(parts.loader))
    _backward(parts, batch, architecture)
    moved = torch.cat([(q - p.detach()).flatten() for p, q in zip(trainable, before, strict=True)]).double() * 8 / SCALE
    plain = {name: value.as_subclass(torch.Tensor) for name, value in batch.items()}
    total, longest = _loop(reference, plain, architecture, clip)
    return float((moved - total).norm()) / longest, _engine(parts.model.clipped, plain, architecture)


def _median_norm(model, columns, architecture) -> float:
    """A clip that binds on about half of the records."""
    gradients = [_gradient(model, {k: v[i : i + 1] for k, v in columns.items()}, architecture) for i in range(5)]
    return float(torch.stack([g.norm() for g in gradients]).median())


def _gradient(model, record, architecture):
    trainable = [p for p in model.parameters() if p.requires_grad]
    given = {k: v for k, v in record.items() if k != "labels"} if not _takes_labels(architecture) else record
    loss = architecture.loss(model(**given), record["labels"])
    found = torch.autograd.grad(loss.sum(), trainable, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(found, trainable, strict=True)]
    )


def _takes_labels(architecture) -> bool:
    return architecture.library in ("transformers", "peft")


def _loop(reference, batch, architecture, clip):
    total, longest = 0.0, 0.0
    for i in range(len(batch["labels"])):
        record = {k: v[i : i + 1].double() if v.is_floating_point() else v[i : i + 1] for k, v in batch.items()}
        gradient = _gradient(reference, record, architecture)
        total = total + gradient * min(1.0, clip / max(float(gradient.norm()), 1e-30))
        longest += min(clip, float(gradient.norm()))
    return total, longest


def _backward(parts, batch, architecture) -> None:
    given = batch if _takes_labels(architecture) else {k: v for k, v in batch.items() if k != "labels"}
    architecture.loss(parts.model(**given), batch["labels"]).backward()
    parts.optimizer.step()
    parts.optimizer.zero_grad()


def _noisy_steps(model, columns, architecture):
    """Steps at a rate at which most batches are empty, then at one at which they are not."""
    trainable, empty, steps = [p for p in model.parameters() if p.requires_grad], 0, 0
    for rate in (0.02, 0.2):
        loader = DataLoader(Rows(columns), batch_size=BATCH)
        parts = make_private(
            model, SGD(trainable, lr=0.01), loader, clip_norm=1.0, noise_multiplier=1.0, sample_rate=rate,
            public_size=RECORDS, steps=STEPS // 2,
        )  # fmt: skip
        batches = (batch for _ in range(STEPS) for batch in parts.loader)
        for batch, _ in zip(batches, range(STEPS // 2), strict=False):
            empty += not len(batch["labels"])
            _backward(parts, batch, architecture)
        steps += parts.ledger.steps
    return steps, empty


def _engine(clipped: ClippedSum, batch, architecture) -> str:
    found = {verified.reason for verified in clipped._verifications.values()}
    return "; ".join(sorted(found - {""})) or "captured"
