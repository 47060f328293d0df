"""The trace of a batch: every torch operation on its rows and on the private outputs, so that it can be run again.

The loader yields `TracedTensor`s. Whatever is computed from them, and from the outputs of the private model, stands on
one `Trace`. The trace runs again with half of the rows replaced at fixed shape, draws repeated: an input of the model,
or the gradient of a loss, that belongs to a row outside of that half must stay as it was. Numbers that leave the trace
(`float(loss)`, `.item()`, `.numpy()`) are counted by source line.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.errors import TrainingMisuse
from tacit.gradients.model_probe import with_others
from tacit.training.autograd import flat, writes

_OWN = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)
# These give a tensor whose shape follows the values: the shape is the number that is read. The tensor stays traced.
_SHAPED = frozenset(("nonzero", "unique", "bincount", "masked_select"))
# Functions that hand a value, or what decides a branch, to Python.
READS = _SHAPED | {
    *("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__bool__", "__complex__"),
    *("__repr__", "__format__", "__contains__", "data_ptr", "equal", "allclose", "is_nonzero", "__dlpack__"),
    *("untyped_storage", "storage", "__reduce_ex__"),
}
_DRAWS = ("rand", "normal", "bernoulli", "multinomial", "poisson", "uniform", "exponential", "dropout", "geometric")
_PASSIVE = frozenset(
    ("size", "dim", "numel", "__len__", "is_floating_point", "is_complex", "stride", "get_device", "is_contiguous")
)


@dataclass(frozen=True)
class Ref:
    """The value of node `node` of a trace; item `item` where the operation returned several."""

    node: int
    item: int | None = None


@dataclass
class Node:
    """One operation: what ran, on what, in which modes, and the generators' states before an operation that draws."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    grad: bool
    autocast: tuple[str, torch.dtype] | None = None
    generators: tuple[Tensor, Tensor | None] | None = None


@dataclass
class Reads:
    """Numbers read from private values, by file and line.

    Attributes:
        lines: "file.py:31" -> how often.
        allowed: why reads are allowed just now, by a declaration; empty otherwise.
        declared: the declarations that were used.
        told: called with a line at its first read.
    """

    lines: Counter[str] = field(default_factory=Counter)
    allowed: str = ""
    declared: set[str] = field(default_factory=set)
    told: Callable[[str], object] = str

    def note(self) -> None:
        """Count a read at the nearest line outside of torch and tacit."""
        if self.allowed:
            self.declared.add(self.allowed)
            return
        line = user_line()
        self.lines[line] += 1
        if self.lines[line] == 1:
            self.told(line)


def user_line() -> str:
    """File and number of the innermost line that runs outside of torch and tacit."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OWN, _TORCH)):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


EARLIER = object()
"""Stands on a trace for a value of an earlier batch, which belongs to no record of this one."""


class Trace:
    """All operations on the rows of one batch, in order.

    Args:
        size: rows of the batch.
        reads: where numbers that leave the trace are counted.
        known: whether a tensor from outside of the trace may enter a loss.

    Attributes:
        nodes: operations; None where a root stands.
        roots: node -> value at the start, as it was.
        outputs: node -> leaf of the private model's outputs.
        unknown: lines that brought other tensors into a loss.
        written: whether any value was written into, so that identity says nothing any more.
        refusal: what `backward` on a value that did not pass the private model says.
    """

    _made = count()

    def __init__(self, size: int, reads: Reads, known: Callable[[Tensor], bool] = lambda value: True):
        self.size, self.reads, self.known = size, reads, known
        self.nodes: list[Node | None] = []
        self.roots: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.unknown: set[str] = set()
        self.written = False
        self.refusal = _NOT_PRIVATE
        self.order = next(self._made)
        self._device = "cpu"

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
        drawn = _states(device) if _draws(function, kwargs) else None
        self.nodes.append(Node(function, *given, torch.is_grad_enabled(), autocast, drawn))
        return len(self.nodes) - 1

    def run(self, wanted: Ref, roots: dict[int, Tensor]) -> Any:
        """The value of `wanted` when the roots have other values; `EARLIER` if a value of an earlier batch is in it."""
        # What was written into may be another view of the same memory, so then every operation runs again.
        needed = set(range(len(self.nodes))) if self.written else self._needed(wanted)
        values: dict[int, Any] = {}
        state = _states(self._device)
        try:
            for place, node in enumerate(self.nodes):
                if place in needed:
                    values[place] = roots[place] if node is None else _again(node, values)
        finally:
            _restore(state)
        return _item(values, wanted)

    def _needed(self, wanted: Ref) -> set[int]:
        """The nodes that `wanted` depends on."""
        needed = {wanted.node}
        for place in range(wanted.node, -1, -1):
            node = self.nodes[place]
            if node is not None and place in needed:
                needed |= {value.node for value in flat((node.args, node.kwargs)) if isinstance(value, Ref)}
        return needed

    def replaced(self, half: Tensor, new: bool) -> dict[int, Tensor]:
        """The roots with other rows where `half` is true; see `with_others`."""
        return {
            place: with_others(value, half, new=new) if value.dim() and len(value) == self.size else value.clone()
            for place, value in self.roots.items()
        }

    @property
    def signature(self) -> tuple[object, ...]:
        """All operations in order, by name and by the numbers given to them; the size of the batch is a letter."""
        return tuple("root" if node is None else self._said(node) for node in self.nodes)

    def _said(self, node: Node) -> tuple[object, ...]:
        given = (value for value in flat((node.args, node.kwargs)) if isinstance(value, int | float))
        numbers = ("n" if value == self.size else value for value in given)
        return getattr(node.function, "__name__", ""), *numbers


_NOT_PRIVATE = (
    "backward must be called on losses of the private model's outputs; got a value of the batch that did not pass the "
    "private model. Compute outputs by private.model(inputs), not by a copy or private.model.module."
)


class TracedTensor(Tensor):
    """A value computed from the rows of the batch in hand."""

    trace: Trace  # type: ignore[assignment]  (hides the matrix trace, which torch.trace still gives)
    ref: Ref

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return traced_call(func, args, kwargs or {}, TracedTensor)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise `TrainingMisuse`: gradients of records flow through the private model alone."""
        raise TrainingMisuse(self.trace.refusal)


def traced_call(func: Any, args: Any, kwargs: Any, kind: type[TracedTensor]) -> Any:
    """Run an operation on traced values, record it on their trace, and trace what it returns.

    Args:
        func: the operation.
        args: its arguments, at least one of them traced.
        kwargs: its named arguments.
        kind: class of the tensors that it returns.
    """
    name = getattr(func, "__name__", "")
    if name in _PASSIVE or func in _PASSIVE_FUNCTIONS:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    values = list(flat((args, kwargs)))
    traces = [value.trace for value in values if isinstance(value, TracedTensor) and hasattr(value, "trace")]
    if not traces:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    # Of values of two batches the later one goes on.
    trace = max(traces, key=lambda one: one.order)
    if name in READS:
        trace.reads.note()
        if name not in _SHAPED:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
    if kind is not TracedTensor and not all(_is_known(value, trace) for value in values):
        trace.unknown.add(user_line())
    place = trace.append(func, args, kwargs, writes(func))
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    return _wrapped(result, trace, place, kind)


def _is_known(value: Any, trace: Trace) -> bool:
    return not isinstance(value, Tensor) or isinstance(value, TracedTensor) or trace.known(value)


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


def _wrapped(result: Any, trace: Trace, place: int, kind: type[TracedTensor]) -> Any:
    """The result of node `place` with its tensors on the trace."""
    if isinstance(result, Tensor):
        return _marked(result, trace, Ref(place), kind)
    if isinstance(result, list | tuple):
        items = [
            _marked(item, trace, Ref(place, at), kind) if isinstance(item, Tensor) else item
            for at, item in enumerate(result)
        ]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


def _marked(value: Tensor, trace: Trace, ref: Ref, kind: type[TracedTensor]) -> TracedTensor:
    traced = value if isinstance(value, TracedTensor) else value.as_subclass(kind)
    return trace.mark(traced, ref)


def refer(value: Any, trace: Trace) -> Any:
    """`value` with traced tensors replaced by references; other tensors stay as they are now."""
    if isinstance(value, TracedTensor) and hasattr(value, "trace"):
        return value.ref if value.trace is trace else EARLIER
    if isinstance(value, dict):
        return {key: refer(item, trace) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [refer(item, trace) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def plain(value: Any) -> Any:
    """A value without its trace, and without a gradient."""
    return value.as_subclass(Tensor).detach() if isinstance(value, TracedTensor) else value


@contextmanager
def allowed(reads: Reads, why: str) -> Iterator[None]:
    """Numbers read inside are declared: `why` says what becomes of them."""
    before, reads.allowed = reads.allowed, why
    try:
        yield
    finally:
        reads.allowed = before


def _draws(function: Callable[..., Any], kwargs: Any) -> bool:
    name = getattr(function, "__name__", "")
    return any(part in name for part in _DRAWS) or "dropout_p" in kwargs or "attention" in name or "lstm" in name


def _states(device: str) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state() if device == "cuda" else None


def _restore(states: tuple[Tensor, Tensor | None]) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])


def _again(node: Node, values: dict[int, Any]) -> Any:
    args, kwargs = _resolved(node.args, values), _resolved(node.kwargs, values)
    if any(value is EARLIER for value in flat((args, kwargs))):
        return EARLIER
    if node.generators is not None:
        _restore(node.generators)
    autocast = torch.autocast(*node.autocast) if node.autocast is not None else nullcontext()
    with torch.set_grad_enabled(node.grad and torch.is_grad_enabled()), autocast:
        return node.function(*args, **kwargs)


def _resolved(value: Any, values: dict[int, Any]) -> Any:
    if isinstance(value, Ref):
        return _item(values, value)
    if isinstance(value, dict):
        return {key: _resolved(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [_resolved(item, values) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _item(values: dict[int, Any], ref: Ref) -> Any:
    value = values[ref.node]
    return value if ref.item is None or value is EARLIER else value[ref.item]
