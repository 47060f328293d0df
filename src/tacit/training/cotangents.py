"""`cotangents`: the gradient of each example's loss by its outputs, and whether a loss is their mean or sum."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.gradients.inputs import check_losses
from tacit.gradients.module_state import restored_generators
from tacit.gradients.neighbours import is_near
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import Trace, network_of, untraced
from tacit.training.traced_operation import Node, Ref, item_of, mapped, writes
from tacit.verification.calls import tensors_in
from tacit.verification.recordwise import leaves_of


def cotangents(outputs: PrivateOutputs, reduction: str) -> Tensor:
    """Gradient  d loss_i / d outputs_i  for every example i, of the shape of the outputs.

    A vector of one loss per example needs no change. A single number, under `reduction` "mean" or "sum", is converted:
    a mean by the number of examples in this batch.

    Args:
        outputs: what the loop called `backward` on, a number or shape (batch,).
        reduction: "none", "mean" or "sum".

    Raises:
        InvalidInput: a loss of another form, or with terms that do not come from the outputs.
    """
    loss, root = untraced(outputs), outputs.root
    if reduction == "none" or loss.dim():
        check_losses(loss, len(root))
    if not len(root) or not loss.requires_grad:
        return torch.zeros_like(root)
    for leaf in leaves_of([loss]):
        if leaf is not root:  # A gradient that reaches a parameter other than through the outputs is not clipped.
            raise InvalidInput(
                "losses must depend on trainable values only through the outputs of one call of the private model; got "
                f"{network_of(leaf)}. Make one module of the networks that are trained, freeze the other one, or use "
                "the optimizer's weight_decay for a penalty."
            )
    (found,) = torch.autograd.grad(loss.sum(), root, retain_graph=True, allow_unused=True)
    if found is None:
        return torch.zeros_like(root)
    return found * len(root) if reduction == "mean" and not loss.dim() else found


class Reductions:
    """Whether numbers that a loop calls `backward` on are means, or sums, of one loss per record: see `doubt`."""

    def __init__(self) -> None:
        self._first: dict[Hashable, tuple[int, list[int]]] = {}

    def doubt(self, loss: PrivateOutputs, found: Tensor, reduction: str) -> str:
        """What is left open of whether a number is the mean, or the sum, of one loss per record; "" where it is.

        Its operations run again with every record twice, which changes the gradient of none. A factor may be the size
        of the batch or a constant: in the first batch whichever agrees, later what its change says. That no record
        meets another is for record types to say.

        Args:
            loss: of the outputs, a number.
            found: its cotangents, of at least two records.
            reduction: "mean" or "sum".

        Raises:
            InvalidInput: it is another.
        """
        scale = 2 * len(found) if reduction == "mean" else 1
        runs = False
        for doubled in self._doubled_factors(loss.trace):
            try:
                own, copy = _gradient_of_twice(loss, doubled).split(len(found))
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue
            if not is_near(own, copy, _TOLERANCE):
                continue  # Not every record is in it twice.
            if is_near(own * scale, found, _TOLERANCE):
                return ""
            runs = True
        if runs:
            raise InvalidInput(_SENTENCES[reduction])
        return f'nothing shows that the loss is the {reduction} over the batch: use reduction="none".'

    def _doubled_factors(self, trace: Trace) -> Iterator[list[bool]]:
        """Which factors are sizes, in order: all that can be said."""
        factors = [node.leaves[order] for node in trace.nodes if node is not None for order in node.factors]
        if len(self._first) >= _COURSES:
            self._first.clear()
        size, first = self._first.setdefault((trace.course, len(factors)), (trace.size, factors))
        if size != trace.size:
            yield [now * size == then * trace.size for now, then in zip(factors, first, strict=True)]
            return
        yield [value % size == 0 for value in factors]
        yield [False for _ in factors]


def _gradient_of_twice(loss: PrivateOutputs, doubled: Sequence[bool]) -> Tensor:
    """The gradient of `loss` in the outputs of each record where all stand twice, draws too.

    Args:
        loss: of the outputs, a number.
        doubled: which factors are.
    """
    trace, sizes = loss.trace, iter(doubled)
    needed = dict(trace.behind(loss.ref))
    root = next(place for place, outputs in trace.outputs.items() if outputs is loss.root)
    once: dict[int, Any] = {place: value.clone() for place, value in trace.roots.items()}
    twice = {place: _twice(value, trace.size) for place, value in once.items()}
    leaf = twice[root].requires_grad_()
    twice[root] = leaf.view_as(leaf)  # A leaf cannot be written into.
    with restored_generators():
        for place, node in enumerate(trace.nodes):
            if node is None:
                continue
            factors = {order for order in node.factors if next(sizes)}
            if place not in needed:
                continue
            with torch.no_grad():
                once[place] = _again(node, once, trace.size)
            twice[place] = _fitting(node, once[place], twice, trace.size, factors)
            if node.generators is not None:
                if any(value.requires_grad for value in tensors_in(twice[place])):
                    raise ValueError("a draw follows the outputs")
                twice[place] = mapped(once[place], partial(_twice, size=trace.size))
    (gradient,) = torch.autograd.grad(item_of(twice, loss.ref), leaf, allow_unused=True)
    return torch.zeros_like(leaf) if gradient is None else gradient


def _fitting(node: Node, once: Any, values: dict[int, Any], size: int, factors: set[int]) -> Any:
    """The result of `node` for every record twice, with those sizes doubled with which one axis is twice as long.

    Args:
        node: the operation.
        once: its result for every record once.
        values: of the other nodes.
        size: number of records.
        factors: places among its leaves of the factors that are sizes.
    """
    others = [order for order, value in enumerate(node.leaves) if order not in node.factors and _is_size(value, size)]
    found: list[Any] = []
    for more in ((), *((order,) for order in others), others):
        with suppress(RuntimeError, ValueError, IndexError, TypeError):
            found.append(_again(node, values, size, factors.union(more)))
            before, after = ([value.shape for value in tensors_in(each)] for each in (once, found[-1]))
            if writes(node.function) or all(map(_is_doubled, before, after)):
                return found[-1]
    return found[0]


def _is_doubled(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether one axis is twice as long."""
    changed = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
    return len(changed) == 1 and 2 * changed[0][0] == changed[0][1]


def _again(node: Node, values: dict[int, Any], size: int, doubled: Collection[int] = ()) -> Any:
    """The result of `node` from `values`, with those of its leaves that stand at `doubled` for every record twice."""
    orders = count()

    def given(value: Any) -> Any:
        order = next(orders)
        if isinstance(value, Ref):
            return item_of(values, value)
        if order not in doubled:
            return value
        counts = isinstance(value, Tensor) and torch.equal(value, torch.arange(len(value), device=value.device))
        return torch.arange(2 * len(value), device=value.device) if counts else _twice(value, size)

    return node.again(given)


def _is_size(value: Any, size: int) -> bool:
    """Whether a value, not of rows, may be one for every record, or a multiple of their number."""
    if isinstance(value, slice):
        return any(_is_size(each, size) for each in (value.start, value.stop))
    if isinstance(value, Tensor):
        return value.dim() > 0 and len(value) > 0 and len(value) % size == 0
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value % size == 0


def _twice(value: Any, size: int) -> Any:
    """A value for every record twice, where it may be one."""
    if not _is_size(value, size):
        return value
    if isinstance(value, slice):
        return slice(_twice(value.start, size), _twice(value.stop, size), value.step)
    return torch.cat((value, value)) if isinstance(value, Tensor) else 2 * value


_TOLERANCE = 1e-4  # about ten roundings of a gradient from another number of records
_COURSES = 1000  # of losses that are remembered
_SENTENCES = {
    "mean": "loss must be the mean over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="sum" for a sum. Class weights '
    "and ignored targets make a mean divide by a private number.",
    "sum": "loss must be the sum over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="mean" for a mean.',
}
