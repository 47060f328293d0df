"""The trace of a batch: every torch operation on its rows and on the private outputs, so that it can be run again.

The loader yields `TracedTensor`s. Whatever is computed from them, and from the outputs of the private model, stands on
one `Trace`, which runs again under record types, draws repeated; see `batch_types`. Numbers that leave the trace
(`float(loss)`, `.item()`, `.numpy()`) are counted by source line.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import TrainingMisuse
from tacit.gradients.module_state import generators_now, restored_generators
from tacit.training.traced_operation import EARLIER, Node, Ref, draws, item_of, mapped, writes
from tacit.verification.calls import flat
from tacit.verification.reads import answer_to, user_line
from tacit.verification.recordwise import leaves_of
from tacit.verification.rules.layers import ignores_targets

# These give a tensor whose shape follows the values: the shape is the number that is read. The tensor stays traced.
_SHAPED = frozenset(("nonzero", "argwhere", "unique", "unique_consecutive", "bincount", "masked_select"))
# Functions that hand a value, or what decides a branch, to Python.
READS = _SHAPED | {
    *("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__bool__", "__complex__"),
    *("__repr__", "__format__", "__contains__", "data_ptr", "equal", "allclose", "is_nonzero", "__dlpack__"),
    *("untyped_storage", "storage", "__reduce_ex__"),
}
_PASSIVE = frozenset(
    ("size", "dim", "numel", "__len__", "is_floating_point", "is_complex", "stride", "get_device", "is_contiguous")
)


@dataclass
class Reads:
    """Numbers read from private values, by file and line.

    Attributes:
        lines: "file.py:31" -> how often.
        allowed: why reads are allowed just now, by a declaration; empty otherwise.
        told: called with a line at its first read.
    """

    lines: Counter[str] = field(default_factory=Counter)
    allowed: str = ""
    told: Callable[[str], object] = str

    def note(self, value: object = None) -> None:
        """Count a read at the nearest line outside of torch and tacit, unless `value` passes a check of torch's."""
        passed = isinstance(value, Tensor) and value.numel() == 1 and plain(value).item() is True
        if passed and (answer := answer_to()) is not None and answer.value is None:
            return
        if not self.allowed:
            line = user_line()
            self.lines[line] += 1
            if self.lines[line] == 1:
                self.told(line)


class Trace:
    """All operations on the rows of one batch, in order.

    Args:
        size: rows of the batch.
        reads: where numbers that leave the trace are counted.
        known: names a tensor from outside of the trace, equal for equal values; None for one of unknown origin.

    Attributes:
        nodes: operations; None where a root stands.
        roots: node -> value at the start, as it was.
        outputs: node -> leaf of the private model's outputs.
        written: whether any value was written into, so that identity says nothing any more.
        loss_scale: what a `GradScaler` has multiplied a loss by.
        refusal: what `backward` on a value that did not pass the private model says.
        over: whether another batch is in hand, or none.
    """

    _made = count()

    def __init__(self, size: int, reads: Reads, known: Callable[[Tensor], Hashable | None] = id):
        self.size, self.reads, self.known = size, reads, known
        self.nodes: list[Node | None] = []
        self.roots: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.written = self.over = False
        self.loss_scale, self.refusal = 1.0, _NOT_PRIVATE
        self.order = next(self._made)
        self._device = "cpu"
        self._signed: tuple[int, tuple[Hashable, ...], tuple[Hashable, ...]] = 0, (), ()

    def root(self, value: Tensor, kind: type[TracedTensor] | None = None) -> TracedTensor:
        """`value`, whose rows are those of the batch, as the start of what is computed from it."""
        place = len(self.nodes)
        self.nodes.append(None)
        self.roots[place] = value.detach()
        if value.device.type != "cpu":
            self._device = value.device.type
        return self.mark(value.as_subclass(kind or TracedTensor), Ref(place))

    def mark(self, value: TracedTensor, ref: Ref) -> TracedTensor:
        """`value` as the result of `ref`."""
        value.trace, value.ref = self, ref
        return value

    def is_root(self, value: TracedTensor) -> bool:
        """Whether `value` is a row tensor as the loader yielded it."""
        return value.trace is self and value.ref.node in self.roots and value.ref.item is None and not self.written

    def append(self, function: Callable[..., Any], args: Any, kwargs: Any, writing: bool) -> int:
        """Record an operation before it runs; returns its node.

        Args:
            function: the operation.
            args: its arguments, traced or not.
            kwargs: its named arguments.
            writing: whether it writes into one of them.
        """
        if writing and not self.written:
            # What is written into may share memory with a root: keep the roots as they were.
            self.roots = {place: value.clone() for place, value in self.roots.items()}
            self.written = True
        device = self._device
        autocast = (device, torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None
        given = refer(args, self), refer(kwargs, self)
        drawn = generators_now() if draws(function, kwargs) else None
        leaves = flat(given)
        others = tuple(self._named(value) for value in leaves if isinstance(value, Tensor))
        ignores = ignores_targets(function, args, kwargs)
        node = Node(function, *given, torch.is_grad_enabled(), user_line(), leaves, others, autocast, drawn, ignores)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def run(self, wanted: Ref, roots: dict[int, Tensor], before: Callable[[Node], object]) -> Any:
        """The value of `wanted` from the values `roots`; `EARLIER` if a value of an earlier batch is in it.

        Args:
            wanted: the value.
            roots: node -> value.
            before: called with each operation before it runs.
        """
        values: dict[int, Any] = {**roots}
        with restored_generators():
            for place, node in self.behind(wanted):
                before(node)
                values[place] = node.again(lambda value: item_of(values, value) if isinstance(value, Ref) else value)
        return item_of(values, wanted)

    def follows_rows(self, value: Ref) -> bool:
        """Whether rows of the batch, or outputs for them, may be in `value`: in one of draws alone they are not."""
        return any(place in self.roots for place in self._needed(value))

    def unknown(self, wanted: Ref) -> list[str]:
        """Lines at which a tensor of unknown origin enters the value of `wanted`."""
        return sorted({node.line for _, node in self.behind(wanted) if None in node.others})

    @property
    def course(self) -> tuple[Hashable, ...]:
        """All operations in order, without what was given to them."""
        return tuple(node.function for node in self.nodes if node is not None)

    def behind(self, wanted: Ref) -> list[tuple[int, Node]]:
        """(place, operation) of all that `wanted` depends on, in order."""
        return [(place, node) for place in self._needed(wanted) if (node := self.nodes[place]) is not None]

    def _needed(self, wanted: Ref) -> list[int]:
        """The nodes that `wanted` depends on, in order."""
        if self.written:
            # What was written into may be another view of the same memory, so then every operation counts.
            return list(range(len(self.nodes)))
        needed = {wanted.node}
        for place in range(wanted.node, -1, -1):
            node = self.nodes[place]
            if node is not None and place in needed:
                needed |= node.sources
        return sorted(needed)

    def signature(self, numbers: bool = True) -> tuple[Hashable, ...]:
        """All operations in order, with all that was given to them; the size of the batch is a letter.

        Args:
            numbers: whether numbers that are no whole ones, which change no record type, are told apart.
        """
        if self._signed[0] != len(self.nodes):
            said = tuple(
                self._shape(self.roots[place]) if node is None else self._program(node)
                for place, node in enumerate(self.nodes)
            )
            without = tuple(tuple(float if isinstance(part, float) else part for part in each) for each in said)
            self._signed = len(self.nodes), said, without
        return self._signed[1] if numbers else self._signed[2]

    def _named(self, value: Tensor) -> Hashable | None:
        """What tells a tensor from outside of the trace from others of another shape, origin or value."""
        name = self.known(value)
        return None if name is None else (name, value.dtype, tuple(map(self._number, value.shape)))

    def _shape(self, root: Tensor) -> tuple[Hashable, ...]:
        return root.dtype, root.stride() if root.dim() > 1 else (), tuple(map(self._number, root.shape))

    def _number(self, value: float) -> Hashable:
        """`value`, or a letter where it is the number of records or its inverse."""
        if isinstance(value, bool) or (isinstance(value, float) and self.size < 2):
            return value  # A factor of 1.0 or 0.0 is none of one record or of none.
        return "n" if value == self.size else "1/n" if isinstance(value, float) and value == 1 / self.size else value

    def _program(self, node: Node) -> tuple[Hashable, ...]:
        said: list[Hashable] = [node.function, node.grad, node.autocast, node.others, node.ignores]
        for value in node.leaves:
            parts = (value.start, value.stop, value.step) if isinstance(value, slice) else (value,)
            for part in parts:
                if isinstance(part, int | float):
                    said.append(self._number(part))
                elif not isinstance(part, Tensor):
                    said.append(part)
        return tuple(said)


_NOT_PRIVATE = (
    "backward must be called on losses of the private model's outputs; got a value of the batch that did not pass the "
    "private model. Compute outputs by private.model(inputs), not by a copy or private.model.module."
)
_TO_INPUTS = (
    "backward with inputs= must be torch.autograd.grad(losses.sum(), inputs) in a private loop, which gives the "
    "gradients of inputs and writes none."
)


class TracedTensor(Tensor):
    """A value computed from the rows of the batch in hand."""

    trace: Trace  # type: ignore[assignment]  (hides the matrix trace, which torch.trace still gives)
    ref: Ref

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return traced_call(func, args, kwargs or {}, TracedTensor)

    def as_subclass(self, cls: Any) -> Any:
        """The value without its trace, which counts as a read: nothing follows what becomes of it."""
        if follows_rows(self):
            self.trace.reads.note(self)
        return untraced(self, cls)

    def __deepcopy__(self, memo: object) -> Any:
        return self.detach().clone()

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if self.dim() == 0 else str(self)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise `TrainingMisuse`: gradients of records flow through the private model alone.

        What follows draws of a batch that is over, and no record, has ordinary gradients.
        """
        if self.trace.over and not follows_rows(self):
            return untraced(self).backward(*args, **kwargs)
        if kwargs.get("inputs") is not None:
            raise TrainingMisuse(_TO_INPUTS)
        leaf = next(iter(leaves_of([self])), None)
        raise TrainingMisuse(self.trace.refusal + (f" It trains {network_of(leaf)}." if leaf is not None else ""))


def traced_call(func: Any, args: Any, kwargs: Any, kind: type[TracedTensor]) -> Any:
    """Run an operation on traced values, record it on their trace, and trace what it returns.

    Args:
        func: the operation.
        args: its arguments, at least one of them traced.
        kwargs: its named arguments.
        kind: class of the tensors that it returns.
    """
    name = getattr(func, "__name__", "")
    passive = name in _PASSIVE or func in _PASSIVE_FUNCTIONS
    values = [] if passive else flat((args, kwargs))
    traces = [value.trace for value in values if isinstance(value, TracedTensor) and hasattr(value, "trace")]
    if not traces:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    # Of values of two batches the later one goes on.
    trace = max(traces, key=lambda one: one.order)
    shaped = name in _SHAPED or _is_shaped(name, args, kwargs)
    if (shaped or name in READS) and _any_follows(values):
        trace.reads.note(values[0])
    if name in READS and not shaped:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    place = trace.append(func, args, kwargs, writes(func))
    try:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
    except Exception:
        if _any_follows(values):  # Which values an operation refuses is a number that a handler reads.
            trace.reads.note()
        raise
    return wrapped(result, trace, place, kind)


def _is_shaped(name: str, args: Any, kwargs: Any) -> bool:
    """Whether the size of a result follows values: of a mask, a condition alone, repeats, or classes not counted."""
    if name in ("__getitem__", "repeat_interleave"):
        masks = (torch.bool, torch.uint8) if name == "__getitem__" else (torch.int32, torch.int64)
        return any(isinstance(each, TracedTensor) and each.dtype in masks for each in flat((args[1:], kwargs)))
    alone = len(args) + len(kwargs) == 1
    return alone and name in ("where", "one_hot")


def untraced(value: Tensor, kind: type[Tensor] = Tensor) -> Any:
    """A value as one of another class, without its trace."""
    return Tensor.as_subclass(value, kind)


def _any_follows(values: list[Any]) -> bool:
    return any(isinstance(value, TracedTensor) and follows_rows(value) for value in values)


def follows_rows(value: TracedTensor) -> bool:
    """Whether rows of the batch, or outputs for them, may be in `value`."""
    return not hasattr(value, "trace") or value.trace.follows_rows(value.ref)


_PASSIVE_NAMES = (
    *("shape", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim", "_version", "grad_fn", "grad"),
    *("is_cuda", "is_sparse", "is_quantized", "is_nested", "names", "itemsize", "nbytes", "is_meta", "is_mps"),
)
_PASSIVE_FUNCTIONS = frozenset(
    getattr(getattr(Tensor, name), way)
    for name in _PASSIVE_NAMES
    for way in ("__get__", "__set__")
    if hasattr(getattr(Tensor, name, None), way)
)


def wrapped(result: Any, trace: Trace, place: int, kind: type[TracedTensor]) -> Any:
    """The result of node `place` with its tensors on the trace.

    Args:
        result: what the operation returned.
        trace: of the batch.
        place: number of the node.
        kind: class of the tensors.
    """

    def marked(value: Any, item: int | None = None) -> Any:
        if not isinstance(value, Tensor):
            return value
        traced = value if isinstance(value, TracedTensor) else value.as_subclass(kind)
        return trace.mark(traced, Ref(place, item))

    if not isinstance(result, list | tuple):
        return marked(result)
    items = [marked(value, item) for item, value in enumerate(result)]
    return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)


def refer(values: Any, trace: Trace) -> Any:
    """`values` with those on the trace replaced by references; other tensors stay as they are now."""

    def referred(value: Any) -> Any:
        if not isinstance(value, TracedTensor) or not hasattr(value, "trace"):
            return value
        if value.trace is trace:
            return value.ref
        return EARLIER if follows_rows(value) else plain(value)

    return mapped(values, referred)


def plain(value: Any) -> Any:
    """A value without its trace, and without a gradient."""
    return untraced(value).detach() if isinstance(value, TracedTensor) else value


def network_of(leaf: Tensor) -> str:
    """The network of which `leaf` is a parameter, with its shape there, for a message; the shape alone without one."""
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    holding = [(module, name) for module in modules for name, value in module.named_parameters() if value is leaf]
    named = f"shape {tuple(leaf.shape)}"
    if not holding:
        return named
    module, name = max(holding, key=lambda found: found[1].count("."))  # The outermost has the longest name.
    return f"the parameter {name!r} of the network {type(module).__name__}, {named}"
