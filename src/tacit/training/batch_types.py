"""Record types of what a loop makes of a batch: inputs of the model, and the gradient of a loss in its outputs.

The trace of the batch runs again, operation by operation, with the rows and the outputs of the model typed as those of
the records. Where it types, what belongs to a record is a function of that record and of public values, in this batch
and in every other that runs the same operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

from tacit.errors import InvalidInput, NoRecordRule
from tacit.gradients.neighbours import is_near
from tacit.training.numbers_by_size import Place
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import Trace, TracedTensor, plain
from tacit.training.traced_operation import EARLIER, Node, Ref
from tacit.verification.programs import Step, difference
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import PUBLIC, Draws, Public, Records, WholeBatch
from tacit.verification.recordwise import observed

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


_COURSES = 1000  # remembered programs; a loop that runs another one at every step has no use for more


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
