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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.errors import TrainingMisuse

_OWN = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)
# These give a tensor whose shape follows the values: the shape is the number that is read. The tensor stays traced.
_SHAPED = frozenset(("nonzero", "unique", "bincount", "masked_select"))
# Functions that hand a value, or what decides a branch, to Python.
_READS = _SHAPED | {
    *("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__bool__", "__complex__"),
    *("__repr__", "__format__", "__contains__", "data_ptr", "equal", "allclose", "is_nonzero", "__dlpack__"),
    *("untyped_storage", "storage", "__reduce_ex__"),
}
_DRAWS = ("rand", "normal", "bernoulli", "multinomial", "poisson", "uniform", "exponential", "dropout", "geometric")
_PASSIVE = frozenset(
    ("__get__", "__set__", "size", "dim", "numel", "__len__", "is_floating_point", "is_complex", "stride")
)


@dataclass(frozen=True)
class Ref:
    """The value of node `node` of a trace; item `item` where the operation returned several."""

    node: int
    item: int | None = None


@dataclass
class Node:
    """One operation: what ran, on what, and the state of the generator before an operation that draws."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    grad: bool
    generator: Tensor | None = None


@dataclass
class Reads:
    """Numbers read from private values, by file and line.

    Attributes:
        lines: "file.py:31" -> how often.
        allowed: why reads are allowed just now, by a declaration; empty otherwise.
        declared: the declarations that were used.
    """

    lines: Counter[str] = field(default_factory=Counter)
    allowed: str = ""
    declared: set[str] = field(default_factory=set)

    def note(self) -> None:
        """Count a read at the nearest line outside of torch and tacit."""
        if self.allowed:
            self.declared.add(self.allowed)
            return
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith((_OWN, _TORCH)):
            frame = frame.f_back
        self.lines[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1


class Trace:
    """All operations on the rows of one batch, in order.

    Args:
        size: rows of the batch.
        reads: where numbers that leave the trace are counted.
    """

    def __init__(self, size: int, reads: Reads):
        self.size, self.reads = size, reads
        self.nodes: list[Node | None] = []
        self.roots: dict[int, Tensor] = {}
        self.unknown: set[str] = set()
        self._outputs: set[int] = set()

    def root(self, value: Tensor, *, output: bool = False) -> TracedTensor:
        """`value`, whose rows are those of the batch, as the start of what is computed from it."""
        place = len(self.nodes)
        self.nodes.append(None)
        self.roots[place] = value.detach()
        if output:
            self._outputs.add(place)
        return self.mark(value.as_subclass(TracedTensor), Ref(place))

    def mark(self, value: TracedTensor, ref: Ref) -> TracedTensor:
        """`value` as the result of `ref`."""
        value.trace, value.ref = self, ref
        return value

    def append(self, function: Callable[..., Any], args: Any, kwargs: Any) -> int:
        """Record an operation before it runs; returns its node."""
        drawn = any(part in getattr(function, "__name__", "") for part in _DRAWS)
        given = (refer(args, self), refer(kwargs, self))
        self.nodes.append(Node(function, *given, torch.is_grad_enabled(), torch.get_rng_state() if drawn else None))
        return len(self.nodes) - 1

    def run(self, wanted: list[Ref], roots: dict[int, Tensor]) -> list[Any]:
        """The values of `wanted` when the roots have other values; operations run in order, on copies."""
        last = max((ref.node for ref in wanted), default=-1)
        values: list[Any] = []
        state = torch.get_rng_state()
        try:
            for place, node in enumerate(self.nodes[: last + 1]):
                values.append(roots[place] if node is None else _again(node, values))
        finally:
            torch.set_rng_state(state)
        return [_item(values, ref) for ref in wanted]

    def replaced(self, half: Tensor) -> dict[int, Tensor]:
        """The roots with other rows where `half` is true: reals as 1 - 1.5 times another row, integers another row."""
        return {place: _with_others(value, half) for place, value in self.roots.items()}

    @property
    def signature(self) -> tuple[str, ...]:
        """The names of all operations, in order."""
        return tuple("root" if node is None else getattr(node.function, "__name__", "") for node in self.nodes)


class TracedTensor(Tensor):
    """A value computed from the rows of the batch in hand."""

    trace: Trace  # type: ignore[assignment]  (hides the matrix trace, which torch.trace still gives)
    ref: Ref

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return traced_call(func, args, kwargs or {})

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Refused: a gradient of this value would not be clipped."""
        raise TrainingMisuse(
            "backward must be called on losses of the private model's outputs; got a value of the batch that did not "
            "pass the private model. Compute outputs by private.model(inputs), not by a copy or private.model.module."
        )


def traced_call(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on traced values, record it on their trace, and trace what it returns."""
    trace = next(value.trace for value in flat((args, kwargs)) if isinstance(value, TracedTensor))
    name = getattr(func, "__name__", "")
    if name in _PASSIVE or func in _PASSIVE_FUNCTIONS:
        with torch._C.DisableTorchFunctionSubclass():
            return plain_items(func(*args, **kwargs))
    if name in _READS:
        trace.reads.note()
        if name not in _SHAPED:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
    place = trace.append(func, args, kwargs)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    return wrapped(result, trace, place)


_PASSIVE_NAMES = ("shape", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim", "_version", "grad_fn")
_PASSIVE_FUNCTIONS = frozenset(getattr(Tensor, name).__get__ for name in _PASSIVE_NAMES)


def wrapped(result: Any, trace: Trace, place: int) -> Any:
    """The result of node `place` with its tensors on the trace."""
    if isinstance(result, TracedTensor):
        return trace.mark(result, Ref(place))
    if isinstance(result, Tensor):
        return trace.mark(result.as_subclass(TracedTensor), Ref(place))
    if isinstance(result, list | tuple):
        items = [
            trace.mark(item.as_subclass(TracedTensor), Ref(place, at)) if isinstance(item, Tensor) else item
            for at, item in enumerate(result)
        ]
        if hasattr(result, "_fields") or type(result).__module__ == "torch.return_types":
            return type(result)(items) if not hasattr(result, "_fields") else type(result)(*items)
        return type(result)(items)
    return result


def refer(value: Any, trace: Trace) -> Any:
    """`value` with traced tensors replaced by references; other tensors stay as they are now."""
    if isinstance(value, TracedTensor):
        return value.ref if value.trace is trace else value.as_subclass(Tensor).detach()
    if isinstance(value, dict):
        return {key: refer(item, trace) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [refer(item, trace) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def plain_items(value: Any) -> Any:
    """`value`, or a tensor without its trace."""
    return value.as_subclass(Tensor) if isinstance(value, TracedTensor) else value


def flat(value: Any) -> Iterator[Any]:
    """Everything inside lists, tuples and dicts."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        yield from flat(list(value.values()))
    else:
        yield value


@contextmanager
def allowed(reads: Reads, why: str) -> Iterator[None]:
    """Numbers read inside are declared: `why` says what becomes of them."""
    before, reads.allowed = reads.allowed, why
    try:
        yield
    finally:
        reads.allowed = before


def _again(node: Node, values: list[Any]) -> Any:
    if node.generator is not None:
        torch.set_rng_state(node.generator)
    args, kwargs = _resolved(node.args, values), _resolved(node.kwargs, values)
    with torch.set_grad_enabled(node.grad and torch.is_grad_enabled()):
        return node.function(*args, **kwargs)


def _resolved(value: Any, values: list[Any]) -> Any:
    if isinstance(value, Ref):
        return _item(values, value)
    if isinstance(value, dict):
        return {key: _resolved(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [_resolved(item, values) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _item(values: list[Any], ref: Ref) -> Any:
    return values[ref.node] if ref.item is None else values[ref.node][ref.item]


def _with_others(value: Tensor, half: Tensor) -> Tensor:
    changed, where = value.clone(), half.to(value.device)
    other = torch.roll(value, 1, 0)
    if value.is_floating_point():
        other = 1.0 - 1.5 * other.nan_to_num(0.0, 0.0, 0.0)
    elif value.dtype == torch.bool:
        other = ~value if torch.equal(other, value) else other
    elif value.numel() and torch.equal(other, value):
        other = value.amax() + value.amin() - value
    changed[where] = other[where].to(value.dtype)
    return changed
