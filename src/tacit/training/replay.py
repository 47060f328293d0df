"""Replays at fixed shape: what a loop made of a batch, made again with half of the records replaced.

Every row of the other half must stay as it was. Because the shapes are the same, sizes need not be guessed and random
draws are repeated; a division by the size of the batch does not show, for which `cotangents` replays one record alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import EARLIER, Trace, TracedTensor, plain

# Rounding of one row between two runs of equal shape, relative to the largest value.
_TOLERANCE = 1e-6
# The same in half precision, where kernels may choose another order of summation.
_HALF_TOLERANCE = 5e-2
# What replaced records can make of a loss, such as the logarithm of a negative number: the other way is tried then.
_FAILURES = (RuntimeError, ValueError, IndexError, TypeError)


def check_input(trace: Trace, value: TracedTensor) -> bool:
    """Raise unless each row of `value`, an input of the model, follows from its own record.

    Returns:
        Whether `value` could be made again.

    Raises:
        InvalidInput: a row changes with other records, or a value of an earlier batch is in it.
    """
    before = plain(value)
    reached = True
    for half in _halves(trace.size):
        keep = ~half

        def rows(new: bool, half: Tensor = half) -> Tensor:
            with torch.no_grad():
                return _of_this_batch(trace.run(value.ref, trace.replaced(half, new)))

        found = _first_that_runs(rows)
        reached &= found is not None
        if found is not None and (found.shape != before.shape or not _same(found, before, keep)):
            raise InvalidInput(_INPUT)
    return reached


def check_cotangents(loss: PrivateOutputs, root: Tensor, found: Tensor, scale: int) -> bool:
    """Raise unless the gradient of each example's loss in its outputs follows from its own record.

    Args:
        loss: what `backward` was called on.
        root: the outputs of the private model.
        found: gradients of `loss` in the outputs, shape of the outputs.
        scale: what `found` was multiplied by.

    Returns:
        Whether the loss could be made again.

    Raises:
        InvalidInput: a gradient changes with other records, or a value of an earlier batch is in the loss.
    """
    trace = loss.trace
    place = next(place for place, outputs in trace.outputs.items() if outputs is root)
    reached = True
    for half in _halves(trace.size):

        def gradients(new: bool, half: Tensor = half) -> Tensor:
            roots = trace.replaced(half, new)
            leaf = roots[place].detach().requires_grad_()
            with torch.enable_grad():
                value = _of_this_batch(trace.run(loss.ref, roots | {place: leaf.view_as(leaf)}))
                (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
            return torch.zeros_like(leaf) if gradient is None else gradient * scale

        again = _first_that_runs(gradients)
        reached &= again is not None
        if again is not None and not _same(again, found, ~half):
            raise InvalidInput(_LOSS)
    return reached


def _of_this_batch(value: Tensor) -> Tensor:
    if value is EARLIER:
        raise InvalidInput(
            "losses and inputs must be made from the batch in hand and public values; got a value of an earlier batch. "
            "Keep no rows or outputs from step to step."
        )
    return value


def _halves(size: int) -> Iterator[Tensor]:
    """A random half of the rows, then the others."""
    draw = torch.Generator().manual_seed(random.SystemRandom().getrandbits(60))
    half = torch.zeros(size, dtype=torch.bool)
    half[torch.randperm(size, generator=draw)[: (size + 1) // 2]] = True
    yield half
    yield ~half


def _first_that_runs(made: Callable[[bool], Tensor]) -> Tensor | None:
    """`made` with new values for the replaced rows, or with other rows of the batch where it does not take those."""
    for new in (True, False):
        try:
            found = made(new)
        except InvalidInput:
            raise
        except _FAILURES:
            continue
        if not new or not found.is_floating_point() or bool(found.isfinite().all()):
            return found
    return None


def _same(found: Tensor, before: Tensor, keep: Tensor) -> bool:
    if not found.dim() or len(found) != len(keep):
        return torch.equal(found, before)
    where = keep.to(found.device)
    found, before = found[where], before[where]
    if not found.is_floating_point():
        return torch.equal(found, before)
    tolerance = _HALF_TOLERANCE if found.dtype in (torch.float16, torch.bfloat16) else _TOLERANCE
    largest = before.abs().nan_to_num(0.0, 0.0, 0.0).amax() if before.numel() else 0.0
    near = (found - before).abs() <= tolerance * largest + torch.finfo(found.dtype).tiny
    return bool((near | (found == before) | (found.isnan() & before.isnan())).all())


_INPUT = (
    "inputs of the model must each be made from their own record and public values; got rows that change with other "
    "records of the batch. Use transform= to change records one by one, and no mixing or statistics of the batch."
)
_LOSS = (
    "losses must each depend on their own example only; got losses that mix the batch: a gradient changes with other "
    'records. Use reduction="none", no statistics of the batch, and targets made from one record each.'
)
