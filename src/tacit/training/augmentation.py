"""`mean_of_copies`: the loss of a record is the mean over augmented copies of it, made inside of the model's call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit import check
from tacit.gradients.inputs import Loss

Augment = Callable[..., Any]
"""`augment(*inputs)` makes other rows of a batch's rows, each of its own row alone; for several inputs a tuple."""


@contextmanager
def mean_of_copies(
    model: nn.Module, loss: Loss, augment: Augment | None, augmentations: int, engine: str = "eager"
) -> Iterator[Loss]:
    """Context in which `model` in train mode runs on copies of each record; gives the loss that goes with it.

    Row i of the inputs becomes K rows, each by a call of `augment`, and row i of the outputs (K, ...) theirs. The
    gradient of a record is then the mean of its copies', before it is clipped: one record of one sensitivity, whatever
    K is. The copies are made where the model is typed, so that the record types see what `augment` reads.

    Source: De et al. 2022 (arXiv 2204.13650), augmentation multiplicity.

    Args:
        model: takes tensors by position; left as it was at the end.
        loss: of the outputs of one copy of each record, and its target.
        augment: see `Augment`; None for the records as they are.
        augmentations: K, copies of a record in one step, >= 1.
        engine: that was asked for.

    Raises:
        InvalidInput: copies are asked for without `augment` or of another engine, or `augment` gives another number of
            rows.
    """
    count = check.count("augmentations", augmentations)
    if augment is None:
        if count > 1:
            raise check.fail("augment", "given with augmentations", None, "Or leave out augmentations.")
        yield loss
        return
    if engine not in ("auto", "eager"):
        raise check.fail("engine", "eager with augment", engine, "A recording would repeat its draws.")
    copies = _Copies(augment, count)
    # Hooks instead of a module around the model: parameters keep their names, on which clipping may depend.
    with model.register_forward_pre_hook(copies.spread), model.register_forward_hook(copies.gather):
        yield _MeanLoss(loss, count)


@dataclass(frozen=True)
class _Copies:
    augment: Augment
    count: int

    def spread(self, model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The inputs of all copies, those of one record in a row."""
        if not model.training:
            return None
        if not inputs:
            raise check.fail("inputs", "a tensor or a tuple of them with augment", "a dict")
        made = [self._rows(inputs) for _ in range(self.count)]
        return tuple(torch.stack(each, dim=1).flatten(0, 1) for each in zip(*made, strict=True))

    def gather(self, model: nn.Module, inputs: tuple[Any, ...], outputs: Any) -> Any:
        """The outputs, (B, K, ...)."""
        if not model.training:
            return None
        return outputs.unflatten(0, (outputs.shape[0] // self.count, self.count))

    def _rows(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        found = self.augment(*inputs)
        rows = found if isinstance(found, tuple) else (found,)
        if [len(each) for each in rows] != [len(each) for each in inputs]:
            raise check.fail(
                "augment", "a function that gives a row for each row", [tuple(each.shape) for each in rows]
            )
        return rows


@dataclass(frozen=True)
class _MeanLoss:
    loss: Loss
    count: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of the copies of each record, (B,)."""
        losses = self.loss(outputs.flatten(0, 1), targets.repeat_interleave(self.count, 0))
        return losses.reshape(targets.shape[0], self.count).mean(1)
