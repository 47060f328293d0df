"""Record types of what a loop makes of a batch: inputs of the model, and the gradient of a loss in its outputs.

The trace of the batch runs again, operation by operation, with the rows and the outputs of the model typed as those of
the records. Where it types, what belongs to a record is a function of that record and of public values, in this batch
and in every other that runs the same operations. `cotangents` takes that gradient, `Reductions` tells means from sums.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput, NoRecordRule
from tacit.gradients.inputs import check_losses
from tacit.gradients.module_state import restored_generators
from tacit.gradients.neighbours import is_near
from tacit.training.numbers_by_size import Place
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import Trace, TracedTensor, network_of, plain, untraced
from tacit.training.traced_operation import EARLIER, Node, Ref, item_of, mapped, writes
from tacit.verification.calls import tensors_in
from tacit.verification.programs import Step, difference
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import PUBLIC, Draws, Public, Records, WholeBatch
from tacit.verification.recordwise import leaves_of, observed

_FROM_TWICE = 1e-4  # about ten roundings of a gradient from another number of records
_COURSES = 1000  # remembered programs; a loop that runs another one at every step has no use for more
_TOLERANCE = 1e-6  # rounding of one value between two runs of the same operations, relative to the largest


def input_doubt(trace: Trace, value: TracedTensor, seen: SeenPrograms) -> str:
    """What the record types leave open of `value`, an input of the model; "" where each row follows its own record.

    Args:
        trace: of the batch.
        value: the input.
        seen: programs of batches before.

    Raises:
        MixesRecords: an operation mixes the records.
        InvalidInput: its rows are not those of the batch, or a value of an earlier batch is in it.
    """

    def made(again: _Again) -> Tensor:
        found = again.value(value).detach()
        again.check(found, _INPUT)
        return found

    return _doubt(_Again(trace), made, plain(value), (_INPUT, value.ref), seen)


def loss_doubt(loss: PrivateOutputs, found: Tensor, scale: int, seen: SeenPrograms) -> str:
    """What the record types leave open of a loss; "" where its gradient for each record follows that record.

    Args:
        loss: what `backward` was called on.
        found: gradients of `loss` in the outputs, shape of the outputs.
        scale: what `found` was multiplied by.
        seen: programs of batches before.

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
            if value.dim():
                again.check(value, _LOSS)
            (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
        if gradient is None:
            return torch.zeros_like(leaf)
        again.check(gradient, _LOSS)
        return gradient * scale

    return _doubt(_Again(trace, undone=scale > 1), made, found, (_LOSS, loss.ref), seen)


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

    def _before(self, node: Node) -> None:
        if self.mode is None:
            return
        self.mode.at = node.line
        others = [value for value in node.leaves if isinstance(value, Tensor)]
        for value, name in zip(others, node.others, strict=True):
            self.mode.public(value)
            if name is None:
                # Noted as unknown, whatever it holds; a draw by `torch.rand` alone may differ from row to row.
                draws = frozenset(Draws(axis, 1, size) for axis, size in enumerate(value.shape))
                self.mode.storages.assign(value, Public(draws), "", "")


def _doubt(
    again: _Again, made: Callable[[_Again], Tensor], before: Tensor, what: tuple[str, Ref], seen: SeenPrograms
) -> str:
    """Make a value once more, and require the one `before`, of the loop's own run."""
    mode, sentence = again.mode, what[0]
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
    if found.shape != before.shape or not is_near(found, before, _TOLERANCE):
        raise InvalidInput(sentence)
    seen.look(what, again.trace, mode)
    lines = () if mode is None else mode.foreign
    return "".join(f"{line} uses a tensor that is neither of this batch nor declared. " for line in lines).rstrip()


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


# Operations to which whole numbers tell a size or places; programs at two sizes show what these follow.
_SIZED = frozenset(
    (
        *("view", "reshape", "expand", "repeat", "tile", "split", "chunk", "narrow", "unflatten", "__getitem__"),
        *("rand", "randn", "new_zeros", "new_ones", "new_empty", "broadcast_to", "as_strided"),
        *("zeros", "ones", "full", "arange", "eye"),
    )
)


def numbers_of(trace: Trace) -> Iterator[tuple[Place, float]]:
    """(place, number) of every number that makes or changes values.

    Arithmetic with the size of the batch itself is judged where the loss is computed again from fewer rows.
    """
    for place, node in enumerate(trace.nodes):
        if node is None:
            continue
        name = getattr(node.function, "__name__", "")
        for order, value in enumerate(node.leaves):
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if isinstance(value, float) or not (name in _SIZED or (order in node.factors and value == trace.size)):
                yield (f"a number at {node.line}", node.function, place, order), float(value)


class SeenPrograms:
    """Programs of a loop's batches, operation by operation: one for each course, whatever the number of records.

    Attributes:
        lines: the user's lines at which that number was more than a size, not yet told.
    """

    def __init__(self) -> None:
        self._first: dict[Hashable, tuple[Hashable, int, list[Step]]] = {}
        self.lines: list[str] = []

    def look(self, what: Hashable, trace: Trace, mode: RecordMode | None) -> None:
        """Compare the program that `mode` typed with the first of its course, and numbers where those are equal."""
        if mode is None:
            return
        if len(self._first) >= _COURSES:
            self._first.clear()
        key, signature = (what, mode.undone, trace.course), trace.signature()
        said, size, program = self._first.setdefault(key, (signature, mode.count, mode.program))
        line = difference(program, mode.program, (size, mode.count), numbers=said == signature, mean=mode.undone)
        if line is not None:
            self.lines.append(line)


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
            if not is_near(own, copy, _FROM_TWICE):
                continue  # Not every record is in it twice.
            if is_near(own * scale, found, _FROM_TWICE):
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
                once[place] = _run_again(node, once, trace.size)
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
            found.append(_run_again(node, values, size, factors.union(more)))
            before, after = ([value.shape for value in tensors_in(each)] for each in (once, found[-1]))
            if writes(node.function) or all(map(_is_doubled, before, after)):
                return found[-1]
    return found[0]


def _is_doubled(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether one axis is twice as long."""
    changed = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
    return len(changed) == 1 and 2 * changed[0][0] == changed[0][1]


def _run_again(node: Node, values: dict[int, Any], size: int, doubled: Collection[int] = ()) -> Any:
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


_SENTENCES = {
    "mean": "loss must be the mean over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="sum" for a sum. Class weights '
    "and ignored targets make a mean divide by a private number.",
    "sum": "loss must be the sum over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="mean" for a mean.',
}
