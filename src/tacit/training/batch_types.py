"""What a loop makes of a batch: inputs of the model, and the gradient of a loss in its outputs; their record types.

The trace of the batch runs again, operation by operation, with the rows and the outputs of the model typed as those of
the records. Where it types, what belongs to a record is a function of that record and of public values, in this batch
and in every other that runs the same operations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from tacit.errors import InvalidInput, NoRecordRule
from tacit.gradients.inputs import check_losses
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import EARLIER, Node, Trace, TracedTensor, network_of, plain
from tacit.verification.calls import flat
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import PUBLIC, Public, Records, WholeBatch
from tacit.verification.recordwise import leaves_of, observed

# Rounding of one value between two runs of the same operations, relative to the largest; the same in half precision.
_TOLERANCE, _HALF_TOLERANCE = 1e-6, 5e-2


def input_doubt(trace: Trace, value: TracedTensor) -> str:
    """What the record types leave open of `value`, an input of the model; "" where each row follows its own record.

    Raises:
        MixesRecords: an operation mixes the records.
        InvalidInput: its rows are not those of the batch, or a value of an earlier batch is in it.
    """

    def made(again: _Again) -> Tensor:
        with torch.no_grad():
            found = again.value(value)
        again.check(found, _INPUT)
        return found

    return _doubt(_Again(trace), made, plain(value), _INPUT)


def cotangents(outputs: PrivateOutputs, reduction: str) -> Tensor:
    """Gradient  d loss_i / d outputs_i  for every example i, of the shape of the outputs.

    A vector of one loss per example needs no change. A single number, under `reduction` "mean" or "sum", is converted:
    a mean by the number of examples in this batch. That it is such a number is for `loss_doubt` to say.

    Args:
        outputs: what the loop called `backward` on, a number or shape (batch,).
        reduction: "none", "mean" or "sum".

    Raises:
        InvalidInput: a loss of another form, or with terms that do not come from the outputs.
    """
    loss, root = outputs.as_subclass(Tensor), outputs.root
    batch = len(root)
    if reduction == "none" or loss.dim():
        check_losses(loss, batch)
    if not batch:
        return torch.zeros_like(root)
    _check_leaves(loss, root)
    if not loss.requires_grad:
        return torch.zeros_like(root)
    (found,) = torch.autograd.grad(loss.sum(), root, retain_graph=True, allow_unused=True)
    if found is None:
        return torch.zeros_like(root)
    return found * batch if reduction == "mean" and not loss.dim() else found


def _check_leaves(loss: Tensor, root: Tensor) -> None:
    """Raise if a gradient reaches a parameter other than through the outputs: it would not be clipped."""
    for leaf in leaves_of([loss]):
        if leaf is not root:
            raise InvalidInput(
                "losses must depend on trainable values only through the outputs of one call of the private model; got "
                f"{network_of(leaf)}. Make one module of the networks that are trained, freeze the other one, or use "
                "the optimizer's weight_decay for a penalty."
            )


def loss_doubt(loss: PrivateOutputs, found: Tensor, reduction: str) -> tuple[str, frozenset[tuple[int, int]]]:
    """What the record types leave open of a loss; "" where its gradient for each record follows that record.

    Args:
        loss: what `backward` was called on.
        found: gradients in the outputs, shape of the outputs; of a mean, times the number of its records.
        reduction: "none", "mean" or "sum": form of a loss that is one number.

    Returns:
        The doubt, and where numbers that are multiples of the number of records weigh the losses: `RecordMode.sized`.

    Raises:
        MixesRecords: an operation of the loss or of its gradient mixes the records.
        InvalidInput: a loss that its operations do not give, or with a value of an earlier batch in it.
    """
    trace = loss.trace
    place = next(place for place, outputs in trace.outputs.items() if outputs is loss.root)

    def made(again: _Again) -> Tensor:
        leaf = again.roots[place].requires_grad_()
        with torch.enable_grad():
            value = again.value(loss)
            again.check(value, _LOSS) if value.dim() else again.check_number(value, reduction)
            (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
        if gradient is None:
            return torch.zeros_like(leaf)
        again.check(gradient, _LOSS)
        return gradient

    undone = reduction == "mean" and not loss.dim()
    again = _Again(trace, undone)
    found = found / trace.size if undone else found
    return _doubt(again, made, found, _LOSS), frozenset() if again.mode is None else frozenset(again.mode.sized)


class _Again:
    """The operations of a trace once more, typed where the batch has several records: one record meets no other.

    Args:
        trace: of the batch.
        undone: whether a mean over the batch is multiplied by its size afterwards.

    Attributes:
        roots: copies of the values that the trace began with.
        mode: that types the operations.
    """

    def __init__(self, trace: Trace, undone: bool = False):
        self.trace = trace
        self.roots = {place: root.detach().clone() for place, root in trace.roots.items()}
        self.mode = self._typing(undone) if trace.size > 1 else None

    def _typing(self, undone: bool) -> RecordMode:
        mode = RecordMode(self.trace.size, undone)
        for root in self.roots.values():
            if root.dim() and len(root) == mode.count:
                mode.records(root, Records(0))
            else:
                mode.storages.add(root, made=False)
                mode.storages.assign(root, WholeBatch("a value of the batch", ""), "", "")
        return mode

    def value(self, wanted: TracedTensor) -> Tensor:
        """`wanted`, made again."""
        found = self.trace.run(wanted.ref, self.roots, self._before)
        if found is EARLIER:
            raise InvalidInput(_EARLIER)
        return found

    def check(self, value: Tensor, sentence: str) -> None:
        """Require row i of `value` to follow record i."""
        kind = PUBLIC if self.mode is None else self.mode.kind(value)
        if not isinstance(kind, Public) and kind != Records(0):
            raise InvalidInput(sentence)

    def check_number(self, value: Tensor, reduction: str) -> None:
        """Require a loss that is one number to be the mean or the sum over the records."""
        kind = PUBLIC if self.mode is None else self.mode.kind(value)
        if not isinstance(kind, Public | WholeBatch):
            raise InvalidInput(_NUMBER[reduction])
        if isinstance(kind, WholeBatch) and kind.is_mean != (reduction == "mean"):
            raise InvalidInput(_NUMBER[reduction])

    def _before(self, node: Node) -> None:
        if self.mode is None:
            return
        self.mode.at = node.line
        others = [value for value in flat((node.args, node.kwargs)) if isinstance(value, Tensor)]
        for value, name in zip(others, node.others, strict=True):
            self.mode.public(value)
            if name is None:
                # Noted as unknown, whatever it holds; a draw by `torch.rand` alone may differ from row to row.
                self.mode.storages.assign(value, Public(frozenset(range(value.dim()))), "", "")


def _doubt(again: _Again, made: Callable[[_Again], Tensor], before: Tensor, sentence: str) -> str:
    """Make a value once more, and require the one `before`, of the loop's own run."""
    mode = again.mode
    try:
        with nullcontext() if mode is None else observed(mode):
            found = made(again)
    except NoRecordRule as error:
        return str(error)
    except InvalidInput:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        # Its message may quote a value.
        return f"its operations do not run again ({type(error).__name__})."
    if found.shape != before.shape or not _same(found, before):
        raise InvalidInput(sentence)
    lines = () if mode is None else mode.foreign
    return "".join(f"{line} uses a tensor that is neither of this batch nor declared. " for line in lines).rstrip()


def _same(found: Tensor, before: Tensor) -> bool:
    if not found.is_floating_point():
        return torch.equal(found, before)
    tolerance = _HALF_TOLERANCE if found.dtype in (torch.float16, torch.bfloat16) else _TOLERANCE
    largest = before.abs().nan_to_num(0.0, 0.0, 0.0).amax() if before.numel() else 0.0
    near = (found - before).abs() <= tolerance * largest + torch.finfo(found.dtype).tiny
    return bool((near | (found == before) | (found.isnan() & before.isnan())).all())


_EARLIER = (
    "losses and inputs must be made from the batch in hand and public values; got a value of an earlier batch. "
    "Keep no rows or outputs from step to step."
)
_INPUT = (
    "inputs of the model must each be made from their own record and public values; got rows that change with other "
    "records of the batch. Use transform= to change records one by one, and no mixing or statistics of the batch."
)
_LOSS = (
    "losses must each depend on their own example only; got losses that mix the batch: a gradient changes with other "
    'records. Use reduction="none", no statistics of the batch, and targets made from one record each.'
)
SIZED = (
    "losses must not follow the number of records of their batch; got one that is multiplied or divided by it. Use "
    'reduction="none" and call backward on the vector of losses.'
)
"""The sentence for losses that a number weighs which follows the size of the batch."""
_NUMBER = {
    "mean": "loss must be the mean over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="sum" for a sum. Class weights '
    "and ignored targets make a mean divide by a private number.",
    "sum": "loss must be the sum over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="mean" for a mean.',
}
