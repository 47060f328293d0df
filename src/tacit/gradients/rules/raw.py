"""Parameters that stand in arithmetic by themselves: scales, position tables, class tokens, learnt slopes.

Such a parameter is repeated for every record; the gradient of its copies is the per-sample gradient.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.embedding_rows import EmbeddingRows
from tacit.gradients.per_sample_gradients import DenseGradients, OuterProductSum, PerSampleGradients

_ARITHMETIC = (
    ((torch.add, Tensor.add, Tensor.add_), torch.add),
    ((torch.sub, Tensor.sub, Tensor.sub_), torch.sub),
    ((torch.mul, Tensor.mul, Tensor.mul_), torch.mul),
    ((torch.div, Tensor.div, Tensor.div_), torch.div),
    ((Tensor.__rsub__,), torch.rsub),
    ((Tensor.__rdiv__,), lambda left, right: right / left),
)


def _copies(capture: Capture, parameter: Tensor, dims: int) -> Tensor:
    """One copy of `parameter` for each record, shape (B, 1, ..., *shape) `dims` axes or more, as a gradient root."""
    shape = parameter.shape[1:] if parameter.dim() == dims and parameter.shape[0] == 1 else parameter.shape
    if len(shape) >= dims:
        raise Uncovered(f"{capture.name(parameter)} has as many axes as what it is combined with")
    ones = (1,) * (dims - 1 - len(shape))
    copies = parameter.detach().reshape(1, *ones, *shape).expand(capture.batch, *ones, *shape)
    name = capture.name(parameter)
    assert name is not None

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        yield DenseGradients(name, gradient.reshape(capture.batch, *(parameter.shape or (1,))))

    return capture.root(copies.detach(), (), gradients)


def _arithmetic(operation: Any) -> Any:
    def rule(capture: Capture, left: Any, right: Any, **options: Any) -> Tensor:
        left_name, right_name = capture.name(left), capture.name(right)
        other = right if left_name else left
        if (left_name and right_name) or not isinstance(other, Tensor):
            raise Uncovered(f"arithmetic on {left_name or right_name} alone")
        if capture.axis(other, 0) != 0:
            raise Uncovered(f"{left_name or right_name} is combined with something that has no batch axis in front")
        if left_name:
            return operation(_copies(capture, left, other.dim()), other, **options)
        return operation(other, _copies(capture, right, other.dim()), **options)

    return rule


for _functions, _operation in _ARITHMETIC:
    captures(*_functions, flexible=True)(_arithmetic(_operation))


@captures(Tensor.expand)
def expand(capture: Capture, parameter: Tensor, *sizes: Any) -> Tensor:
    """A class token: one row repeated along the batch, on whichever axis that is."""
    return _repeated(capture, parameter, parameter.detach().expand(*sizes).shape)


@captures(Tensor.repeat)
def repeat(capture: Capture, parameter: Tensor, *times: Any) -> Tensor:
    """The same by how often each axis is repeated."""
    counts = times[0] if len(times) == 1 and not isinstance(times[0], int) else times
    shape = parameter.detach().reshape(*[1] * (len(counts) - parameter.dim()), *parameter.shape).shape
    if any(size > 1 and count > 1 for size, count in zip(shape, counts, strict=True)):
        raise Uncovered(f"{capture.name(parameter)} is repeated along an axis where it has several values")
    return _repeated(capture, parameter, [size * count for size, count in zip(shape, counts, strict=True)])


def _repeated(capture: Capture, parameter: Tensor, shape: Sequence[int]) -> Tensor:
    name, axis = capture.name(parameter), capture.recall(lambda: capture.batch_axis(shape))
    whole = parameter.detach().reshape(*[1] * (len(shape) - parameter.dim()), *parameter.shape)
    if name is None or axis is None or shape[axis] != capture.batch or whole.shape[axis] != 1:
        raise Uncovered(f"{name} is repeated along another axis than the batch")
    copies = whole.movedim(axis, 0).expand(capture.batch, *whole.shape[:axis], *whole.shape[axis + 1 :])

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        yield DenseGradients(name, gradient.reshape(capture.batch, *parameter.shape))

    return capture.root(copies.detach(), (), gradients).movedim(0, axis).expand(*shape)


@captures(Tensor.__getitem__, torch.index_select, flexible=True)
def rows_of(capture: Capture, parameter: Tensor, *index: Any) -> Tensor:
    """Rows of a parameter by integers of every record, as an embedding."""
    name, chosen = capture.name(parameter), index[-1]
    whole = isinstance(chosen, Tensor) and not chosen.is_floating_point() and chosen.dtype != torch.bool
    if name is None or not whole or (len(index) == 2 and index[0] != 0):
        raise Uncovered(f"{name} is indexed by something else than integers along its first axis")
    axis = capture.axis(chosen, 0)
    if axis is None:
        raise Uncovered(f"{name} is indexed by something without a batch axis")
    kept = capture.keep(chosen) % len(parameter)
    table = torch.Size((len(parameter), parameter[0].numel()))

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        values = gradient.reshape(*kept.shape, table[1])
        yield EmbeddingRows(name, capture.by_record(kept, axis, 0), capture.by_record(values, axis, 1), table)

    return capture.root(parameter.detach()[chosen], (kept,), gradients)


@captures(torch.matmul, Tensor.matmul, torch.mm, Tensor.mm, Tensor.__matmul__, flexible=True)
def product(capture: Capture, left: Tensor, right: Tensor) -> Tensor:
    """Product x W for a matrix W: a linear layer of W^T."""
    name = capture.name(right)
    if name is None or capture.name(left) or right.dim() != 2:
        raise Uncovered(f"{name or capture.name(left)} is multiplied in another way than x W")
    left, axis = capture.batched(left, 1)
    kept = capture.keep(left)

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        outputs, inputs = capture.by_record(gradient, axis, 1), capture.by_record(kept, axis, 1)
        yield OuterProductSum.of_positions(name, inputs, outputs, capture.buffers)

    return capture.root(torch.matmul(left, right.detach()), (kept,), gradients)


@captures(torch.addmm, flexible=True)
def affine(capture: Capture, shift: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Affine map shift + x W, rows of x record by record: a linear layer of W^T whose bias is the shift.

    Args:
        capture: records what the backward pass needs.
        shift: shape (p,), or no parameter and broadcast to the product.
        left: x, shape (B, d) or (B positions, d).
        right: W, shape (d, p).

    Raises:
        Uncovered: x is a parameter, or the shift is one of another shape.
    """
    weight_name, shift_name = capture.name(right), capture.name(shift)
    if capture.name(left) or (shift_name and shift.dim() != 1):
        raise Uncovered(f"addmm takes {capture.name(left) or shift_name} in another way than c + x W")
    left, axis = capture.batched(left, 1)
    kept = capture.keep(left)

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        outputs = capture.by_record(gradient, axis, 1)
        if weight_name:
            inputs = capture.by_record(kept, axis, 1)
            yield OuterProductSum.of_positions(weight_name, inputs, outputs, capture.buffers)
        if shift_name:
            yield DenseGradients(shift_name, outputs.sum(1))

    shift, right = shift.detach() if shift_name else shift, right.detach() if weight_name else right
    return capture.root(torch.addmm(shift, left, right), (kept,), gradients)


@captures(F.prelu)
def prelu(capture: Capture, input: Tensor, weight: Tensor) -> Tensor:
    """PReLU, max(x, 0) + slope min(x, 0), the slope shared or one for each channel (axis 1)."""
    if capture.name(weight) is None or capture.axis(input, 0) != 0:
        raise Uncovered("prelu runs on an input without a batch axis")
    copies = _copies(capture, weight, 2 if weight.numel() > 1 else input.dim())
    if weight.numel() > 1:
        copies = copies.reshape(capture.batch, -1, *[1] * (input.dim() - 2))
    return input.clamp(min=0) + copies * input.clamp(max=0)
