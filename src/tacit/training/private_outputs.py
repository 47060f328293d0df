"""`PrivateOutputs`, whose `backward()` clips, and `cotangents`, the gradient of each example's loss by its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.gradients.inputs import check_losses
from tacit.training.autograd import (
    RowSelection,
    SizeTracker,
    Tape,
    TapeIndex,
    mapped,
    network_of,
    writes,
)
from tacit.training.trace import Trace, TracedTensor, plain, traced_call
from tacit.verification.calls import flat
from tacit.verification.recordwise import leaves_of

Backward = Callable[["PrivateOutputs"], None]


class PrivateOutputs(TracedTensor):
    """Outputs of a private model, or a value computed from them.

    The autograd tape records every operation on them, to recompute a loss from fewer examples; the trace of the batch
    records it too, with the operations on the rows, to recompute it with other rows.
    """

    tape: Tape
    made: TapeIndex
    backpropagate: Backward
    # What a `GradScaler` has multiplied this loss by.
    loss_scale: float = 1.0

    @classmethod
    def of(cls, root: Tensor, batch: object, trace: Trace, backpropagate: Backward) -> PrivateOutputs:
        """`root`, a leaf that requires a gradient or outputs without one, for the examples of `batch`.

        Args:
            root: shape (batch, ...).
            batch: identity of the batch.
            trace: of the batch.
            backpropagate: called with a loss.
        """
        outputs = trace.root(root.view_as(root), cls)
        trace.outputs[outputs.ref.node] = root
        assert isinstance(outputs, PrivateOutputs)
        return outputs._on_tape(Tape(root, batch), TapeIndex(0), backpropagate)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        origin = _origin([value for value in flat((args, named)) if isinstance(value, PrivateOutputs)])
        if origin is None:
            return traced_call(func, args, named, TracedTensor)
        tape = origin.tape
        before = None if tape.root.requires_grad else _generator(tape.root.device)
        result = traced_call(func, args, named, PrivateOutputs)
        if before is not None and not torch.equal(before, _generator(tape.root.device)):
            # A random draw cannot be repeated for one example; the result is a value like the targets.
            return mapped(result, _without_tape)
        made = [value for value in flat(result) if isinstance(value, PrivateOutputs)]
        if made or writes(func):
            place = tape.append(func, *mapped((args, named), lambda value: _source(value, tape)))
            several = isinstance(result, list | tuple)
            for item, value in enumerate(made):
                value._on_tape(tape, TapeIndex(place, item if several else None), origin.backpropagate)
        return result

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Pass the loss to the private model; of the arguments of `Tensor.backward` only `retain_graph` is accepted.

        Args:
            gradient: None.
            retain_graph: without effect.
            create_graph: False.
            inputs: None.

        Raises:
            TypeError: `gradient`, `create_graph` or `inputs` is given.
            TrainingMisuse: a loss was scaled, and this is another value.
        """
        if gradient is not None or create_graph or inputs is not None:
            raise TypeError(
                "backward of a private loss takes no gradient, create_graph or inputs. "
                "For weights call (losses * weights).backward() on one loss per example."
            )
        if self.loss_scale != self.tape.loss_scale:
            raise TrainingMisuse(
                "backward must be called on what scaler.scale(losses) returned; got another value. Scale last."
            )
        self.backpropagate(self)

    def _on_tape(self, tape: Tape, made: TapeIndex, backpropagate: Backward) -> PrivateOutputs:
        self.tape, self.made, self.backpropagate = tape, made, backpropagate
        return self


def _without_tape(value: Any) -> Any:
    if not isinstance(value, PrivateOutputs):
        return value
    return value.trace.mark(value.as_subclass(Tensor).detach().as_subclass(TracedTensor), value.ref)


def _origin(values: list[PrivateOutputs]) -> PrivateOutputs | None:
    """The value whose tape continues: one that a gradient flows from, if there is one."""
    taped = [value for value in values if hasattr(value, "tape")]
    return next((value for value in taped if value.tape.root.requires_grad), taped[0] if taped else None)


def _source(value: Any, tape: Tape) -> Any:
    if not isinstance(value, PrivateOutputs) or not hasattr(value, "tape"):
        return plain(value)
    return value.made if value.tape is tape else tape.place_of(value.made, value.tape)


def _generator(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def cotangents(
    loss: Tensor, made: TapeIndex, tape: Tape, reduction: str, turn: int | None, sizes: SizeTracker
) -> Tensor:
    """Gradient  d loss_i / d outputs_i  for every example i, of the shape of the outputs.

    A vector of one loss per example needs no change. A single number, under `reduction` "mean" or "sum", is converted:
    a mean by the number of examples in this batch.

    Checked at every `turn`: the loss of an example depends on its own outputs only, and a number is the mean or the sum
    of such losses. The loss is recomputed from one example alone, at the first turn from several alone and together,
    with every other tensor of the batch's length restricted alike; the gradients must agree. Outputs of another pass of
    the private model over this batch are treated like the outputs; values from an earlier batch's outputs are refused.
    All other values (inputs, targets, weights) are taken as one example's or public; see `replay` for those.

    Args:
        loss: what the loop called `backward` on, a number or shape (batch,).
        made: place of `loss` on the tape.
        tape: operations on the outputs.
        reduction: "none", "mean" or "sum".
        turn: number of the batch, which selects the example that is recomputed; None to recompute none.
        sizes: which sizes in the loop's losses follow the batch size, learned from batch to batch.

    Raises:
        InvalidInput: a loss of another form, or with terms that do not come from the outputs.
    """
    root, batch = tape.root, len(tape.root)
    if reduction == "none" or loss.dim():
        check_losses(loss, batch)
    if not batch:
        return torch.zeros_like(root)
    if turn is not None:
        _check_leaves(loss, root)
    if not loss.requires_grad:
        return torch.zeros_like(root)
    scale = batch if reduction == "mean" and not loss.dim() else 1
    (found,) = torch.autograd.grad(loss.sum(), root, retain_graph=True, allow_unused=True)
    if found is None:
        return torch.zeros_like(root)
    found = found * scale if scale > 1 else found
    if batch > 1 and turn is not None:
        if loss.dim() and turn == 0:
            _check_rows(loss, root, found)
        _check_alone(found, made, tape, "none" if loss.dim() else reduction, turn, sizes.selections(tape))
    return found


def _check_rows(losses: Tensor, root: Tensor, found: Tensor) -> None:
    """Entry i of a vector of losses depends on row i of the outputs: another weighted sum has the weighted gradient."""
    # Fractional parts of multiples of the golden ratio: distinct weights in [1, 2) for every row.
    weights = 1.0 + torch.arange(1, len(losses) + 1, dtype=losses.dtype, device=losses.device).mul(0.6180339887).frac()
    (weighted,) = torch.autograd.grad((losses * weights).sum(), root, retain_graph=True)
    if not _close(weighted, found * weights.to(found.dtype).view(-1, *[1] * (found.dim() - 1))):
        raise InvalidInput(_SENTENCES["none"])


# Examples of the first batch whose losses are computed again from one record alone.
_ALONE_AT_FIRST = 8


def _check_alone(
    found: Tensor, made: TapeIndex, tape: Tape, reduction: str, turn: int, selections: list[RowSelection]
) -> None:
    batch = len(tape.root)
    chosen = [torch.tensor([turn % batch], device=found.device)]
    if turn == 0:
        chosen.append(torch.arange(batch // 2, batch, device=found.device))
        # A mixing such as "losses above the median" changes the gradients of a part of the records alone.
        spread = torch.arange(0, batch, max(1, batch // _ALONE_AT_FIRST), device=found.device)
        chosen += list(spread[1 : _ALONE_AT_FIRST + 1].split(1))
    for index in chosen:
        if not any(_agrees(found, made, tape, reduction, index, selection) for selection in selections):
            raise InvalidInput(_SENTENCES[reduction])


def _agrees(found: Tensor, made: TapeIndex, tape: Tape, reduction: str, index: Tensor, selection: RowSelection) -> bool:
    """Whether the examples `index` have the same gradients when the loss sees nothing but them."""
    try:
        loss, rows = tape.replay(made, index, selection)
        (alone,) = torch.autograd.grad(loss.sum(), rows, allow_unused=True)
    except (RuntimeError, ValueError, IndexError, TypeError):
        # This selection of rows does not fit the loss.
        return False
    if loss.dim() and len(loss) != len(index):
        return False
    alone = torch.zeros_like(rows) if alone is None else alone
    alone = alone * len(index) if reduction == "mean" else alone
    return _close(alone, found[index])


def _close(left: Tensor, right: Tensor) -> bool:
    tolerance = _TOLERANCE.get(right.dtype, 1e-4)
    size = right.abs()
    least = tolerance * size.nan_to_num(0.0, 0.0, 0.0).amax() if right.numel() else 0.0
    near = (left - right).abs() <= tolerance * size + least + torch.finfo(right.dtype).tiny
    return bool((near | (left.isnan() & right.isnan()) | (left == right)).all())


# Relative tolerance by precision of the outputs, about ten roundings; 1e-4 for float32 and float64.
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
_SENTENCES = {
    "none": "losses must each depend on their own example only; got losses that mix the batch. "
    'Use reduction="none" and no statistics of the batch.',
    "mean": "loss must be the mean over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="sum" for a sum. Class weights '
    "and ignored targets make a mean divide by a private number.",
    "sum": "loss must be the sum over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="mean" for a mean.',
}


def _check_leaves(loss: Tensor, root: Tensor) -> None:
    """Raise if a gradient reaches a parameter other than through the outputs: it would not be clipped."""
    for leaf in leaves_of([loss]):
        if leaf is not root:
            raise InvalidInput(
                "losses must depend on trainable values only through the outputs of one call of the private model; got "
                f"{network_of(leaf)}. Make one module of the networks that are trained, freeze the other one, or use "
                "the optimizer's weight_decay for a penalty."
            )
