"""`CompiledSum`: the clipped sum as one recorded graph for each size of padded batch, compiled or replayed.

`replay` turns a recorded graph into one straight Python function, for models so small that dispatch costs the most.
No compiler is involved: the function calls the recorded operations in order, so it is ready in a fraction of a second.
Operations that serve only autograd are dropped.

A process that is killed while it compiles leaves a truncated object in torch's folder. Every later compilation of the
same graph loads it and fails. So the library has a folder of its own, which is left when it is damaged.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

import tacit
from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients import ClippedSum, FlatGradient
from tacit.gradients.engine import Trace, capture_gradients
from tacit.gradients.flat_gradient import Buffers, Total, extended, fused
from tacit.gradients.inputs import Inputs, Loss, PhysicalBatch, arguments_of, map_tensors, rows, tensors
from tacit.gradients.module_state import call_with
from tacit.gradients.rounding import precise_products
from tacit.training.captured import ReachedState, reached_by
from tacit.training.cuda_graph import CudaGraph, StepGraph

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_SHARED = "torchinductor_"
_MARK = "damaged"
# What loading an object raises that is not whole; a compiler that fails raises others.
_LOADING = (ImportError, OSError, EOFError, UnpicklingError)

Result = TypeVar("Result")


def compiled_in_own_folder(compile_graph: Callable[[], Result]) -> Result:
    """What `compile_graph` returns, with torch's cache in a folder of this version; once more where that is damaged.

    Args:
        compile_graph: compiles by inductor.

    Example:
        >>> compiled_in_own_folder(lambda: 1)
        1
    """
    base = Path(_default())
    folder = _folder(base)
    try:
        with _in(folder):
            return compile_graph()
    except Exception:
        if _folder(base) == folder:
            raise
    from torch._inductor.utils import clear_caches

    # Drop what torch knows of objects in a folder that is left, those that failed to load among them.
    clear_caches()
    with _in(_folder(base)):
        return compile_graph()


def _default() -> str:
    """The folder that the user chose, or one in the user's own cache.

    Torch's own lies in the shared temporary folder under a name that others can take first; what is in it is executed.
    Torch writes that name into the variable as soon as it asks for it, so that it is nobody's choice.
    """
    chosen = os.environ.get(_VARIABLE)
    if chosen and not chosen.startswith(str(Path(tempfile.gettempdir()) / _SHARED)):
        return chosen
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(cache / "tacit" / "compiled")


def _folder(base: Path) -> Path:
    """The first folder of this version that no damage was found in."""
    versions = base / f"tacit-{tacit.__version__}-torch-{torch.__version__}"
    return next(folder for number in count() if not ((folder := versions / str(number)) / _MARK).exists())


@contextmanager
def _in(folder: Path) -> Iterator[None]:
    """Torch's cache is in `folder`, which is marked where it is damaged."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(folder)
    try:
        yield
    except Exception as error:
        # Inductor wraps what a loader raises in classes of its own.
        if _damaged(error, folder):
            (folder / _MARK).touch()
        raise
    finally:
        os.environ.pop(_VARIABLE)
        if before is not None:
            os.environ[_VARIABLE] = before


def _damaged(error: BaseException | None, folder: Path) -> bool:
    """Whether `error`, or what it was raised from, is that an object in `folder` could not be loaded."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    named = any(str(folder) in str(each) for each in chain)
    return any(isinstance(each, EOFError | UnpicklingError) or (named and isinstance(each, _LOADING)) for each in chain)


# Most small tensors kept for later steps: weights by batch size, scales by noise; beyond it the cache starts anew.
_MAX_CONSTANTS = 64


class CompiledSum:
    """Clipped sum of a batch by a recorded graph, for `PrivateUpdate`.

    Poisson batches differ in size, and every size would need a graph of its own. A batch is filled up with copies of
    its first record to a multiple of an eighth of the expected size; copies have weight 0, so they contribute exactly
    nothing.

    Args:
        clipped: the clipped sum to record.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        expected_batch_size: > 0.
        max_physical_batch_size: records that go through the graph at a time, >= 1.
        compiler: whether to compile the graph; otherwise it is replayed.

    Raises:
        InvalidInput: the clip makes a mean itself or releases statistics.
        UnsupportedModel: the model's gradients cannot be captured or its graph cannot be compiled.
    """

    def __init__(
        self,
        clipped: ClippedSum,
        loss: Loss,
        expected_batch_size: float,
        max_physical_batch_size: int | None = None,
        *,
        compiler: bool = True,
    ):
        if clipped.clip.of_mean or clipped.clip.statistics:
            raise InvalidInput(f'engine must be "eager" for {clipped.clip.type} clipping; got "compiled".')
        self._clipped, self._loss, self._compiler = clipped, loss, compiler
        self._max_size = max_physical_batch_size
        self._multiple = max_physical_batch_size or max(1, round(expected_batch_size / 8))
        self._fixed = {name: p for name, p in clipped.model.named_parameters() if name not in clipped.trainable}
        self._fixed |= dict(clipped.model.named_buffers())
        self._parameters = [*clipped.trainable.values(), *self._fixed.values()]
        self._graphs: dict[tuple[object, ...], StepGraph] = {}
        self._constants: dict[tuple[object, ...], Tensor] = {}
        self._buffers = Buffers()
        self._reached: ReachedState | None = None
        self._pool: Any = None

    def changed(self) -> bool:
        """Whether something that the model or the loss reads was bound anew; then all graphs are dropped."""
        changed = self._reached is not None and self._reached.changed()
        if changed:
            self._graphs.clear()
        return changed

    def __call__(self, inputs: Inputs, targets: Tensor) -> FlatGradient | None:
        """The clipped sum; None for a batch with an example out of range, or an empty one.

        Args:
            inputs: tensor (batch, ...), or a tuple or dict of them.
            targets: shape (batch, ...).
        """
        count = len(targets)
        if not count:
            return None
        size, total = self._max_size or count, Total(self._clipped.trainable)
        for start in range(0, count, size):
            part = slice(start, start + size)
            whole = size >= count
            found = self._physical_batch(*((inputs, targets) if whole else (rows(inputs, part), targets[part])), count)
            if found is None:
                return None
            total.add(FlatGradient.of(found, self._clipped.trainable, self._clipped.slack, self._clipped.dtype))
        return total.gradient()

    def _physical_batch(self, inputs: Inputs, targets: Tensor, drawn: int) -> Tensor | None:
        """Clipped sum of one physical batch of a logical batch of `drawn` records."""
        count = len(targets)
        size = self.size(count)
        if size > count:
            inputs, targets = self._filled(inputs, targets, size)
        weights = self._weights(size, count)
        arguments = [*self._parameters, *tensors(inputs), targets, weights]
        graph = self._graph(inputs, targets, arguments, drawn)
        with torch.no_grad(), precise_products():
            total, in_range = graph(*arguments)
        return total if in_range else None

    def _filled(self, inputs: Inputs, targets: Tensor, size: int) -> tuple[Inputs, Tensor]:
        """The records, and the first of them again up to `size`."""
        places = count()

        def filled(values: Tensor) -> Tensor:
            first, place = values[:1], next(places)
            whole = extended(values, size)
            if whole is None:
                whole = self._buffers.like(place, first.expand(size, *values.shape[1:]))
                whole[: len(values)] = values
            whole[len(values) :] = first
            return whole

        with torch.no_grad():
            return map_tensors(filled, inputs), filled(targets)

    def size(self, count: int) -> int:
        """The size to which a batch of `count` records is filled up."""
        return -(-count // self._multiple) * self._multiple

    def _weights(self, size: int, count: int) -> Tensor:
        """1 for each of `count` records, 0 for what fills them up to `size`."""
        return self._constant(
            ("weights", size, count),
            lambda: (torch.arange(size) < count).to(self._parameters[0].device, self._clipped.dtype),
        )

    def _constant(self, key: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        """A small tensor that most steps use again."""
        if key not in self._constants:
            if len(self._constants) > _MAX_CONSTANTS:
                self._constants.clear()
            self._constants[key] = make()
        return self._constants[key]

    def _graph(self, inputs: Inputs, targets: Tensor, arguments: list[Tensor], drawn: int) -> StepGraph:
        # A graph holds the blocks of its sum. A logical batch of several physical ones counts as the next power of two,
        # so that few sizes need a graph of their own.
        chosen = len(targets) if drawn <= len(targets) else 2 ** (drawn - 1).bit_length()
        key = (chosen, self._clipped.model.training, *((x.shape, x.dtype) for x in (*tensors(inputs), targets)))
        if key not in self._graphs:
            self._graphs[key] = self._compiled(inputs, targets, arguments, chosen)
            self._reached = reached_by(self._clipped.model, self._loss)
        return self._graphs[key]

    def _compiled(self, inputs: Inputs, targets: Tensor, arguments: list[Tensor], drawn: int) -> StepGraph:
        # Autograd runs while the graph is recorded, never when it runs: the inputs of the graph are plain tensors.
        plain = [value.detach() for value in arguments]
        trace = self._trace(inputs, targets)
        try:
            if not self._compiler:
                return self._replayed(self._record(trace, inputs, drawn, plain, {}))
            return self._by_inductor(trace, inputs, drawn, plain)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise UnsupportedModel(f'the model cannot be compiled ({reason}). Use engine="eager".') from error

    def _trace(self, inputs: Inputs, targets: Tensor) -> Trace:
        """The path that captures follow."""
        return self._clipped.trace(self._loss, inputs, targets)

    def _replayed(self, recorded: GraphModule) -> StepGraph:
        """The function that `recorded` describes, on CUDA as a graph of the device."""
        run = replay(recorded)
        if not self._parameters[0].is_cuda:
            return run
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return CudaGraph(run, len(self._parameters), self._pool)

    def _by_inductor(self, trace: Trace, inputs: Inputs, drawn: int, plain: list[Tensor]) -> StepGraph:
        # Importing inductor takes seconds, which a replayed graph need not wait for. The decompositions of pooling use
        # `lowering` without importing it.
        import torch._inductor.lowering  # noqa: F401
        from torch import _inductor
        from torch._inductor import config
        from torch._inductor.decomposition import select_decomp_table

        compile_graph: Any = _inductor.compile  # Typed for every kind of graph; a recorded one is called like its step.
        with fused():
            recorded = self._record(trace, inputs, drawn, plain, select_decomp_table())
        # Compiled headers lie in the shared temporary folder whatever folder is chosen; all code would include them.
        headers = "cpp_cache_precompile_headers"
        with config.patch({headers: False} if hasattr(config, headers) else {}):
            return compiled_in_own_folder(partial(compile_graph, recorded, plain))

    def _record(
        self, trace: Trace, inputs: Inputs, drawn: int, arguments: list[Tensor], decompositions: Any
    ) -> GraphModule:
        from torch.fx.experimental.proxy_tensor import make_fx

        run = make_fx(
            lambda *given: self._step(trace, inputs, drawn, list(given)),
            tracing_mode="fake",
            decomposition_table=decompositions,
        )
        return run(*arguments)

    def _step(self, trace: Trace, like: Inputs, drawn: int, given: list[Tensor]) -> tuple[Tensor, ...]:
        """The recorded computation, on the tensors that `_physical_batch` lists; inputs have the form of `like`."""
        *batch, targets, weights = given[len(self._parameters) :]
        records = iter(batch)
        inputs = map_tensors(lambda _: next(records), like)
        trainable = dict(zip(self._clipped.trainable, given, strict=False))
        values = trainable | dict(zip(self._fixed, given[len(trainable) :], strict=False))
        units = replace(self._clipped.privacy_units, drawn=drawn)
        batch = PhysicalBatch(self._loss, inputs, targets, units)
        found = capture_gradients(partial(self._outputs, values), trainable, batch, trace)
        factors = self._clipped.factors(found.squared_norms) * weights
        return found.weighted_sum(trainable, factors).flat, self._clipped.within_range(found.squared_norms).all()

    def _outputs(self, values: dict[str, Tensor], inputs: Inputs) -> Any:
        """What the model returns with `values` in place of its parameters and buffers."""
        return call_with(self._clipped.model, values, *arguments_of(inputs))


_aten = torch.ops.aten
_IDENTITIES = (_aten.detach.default, _aten.alias.default)
_RESHAPING = (_aten.view.default, _aten.expand.default, _aten._unsafe_view.default)


def replay(recorded: GraphModule, resumed: int = 0) -> Callable[..., Any]:
    """The function that `recorded` describes, on the same tensors; its outputs come as a flat list.

    Args:
        recorded: the graph.
        resumed: how many of its last arguments come later: then it is a generator that gives its last output, takes
            them, and gives the others.
    """
    graph = recorded.graph
    _drop_no_ops(graph)
    graph.eliminate_dead_code()
    return _function(recorded, resumed)


def _drop_no_ops(graph: Graph) -> None:
    for node in list(graph.nodes):
        if node.target in _IDENTITIES or (node.target in _RESHAPING and _shape(node) == _shape(node.args[0])):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _shape(node: Any) -> object:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return tuple(value.shape) if isinstance(value, Tensor) else node


def _function(recorded: GraphModule, resumed: int) -> Callable[..., Any]:
    """Straight code: one line per operation; every value is deleted after its last use."""
    nodes = list(recorded.graph.nodes)
    given = [node for node in nodes if node.op == "placeholder"]
    later = given[len(given) - resumed :]
    last = {value: node for node in nodes for value in node.all_input_nodes}
    known: dict[str, Any] = {}

    def written(value: Any) -> str:
        if isinstance(value, Node):
            return value.name
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(written, value))}]"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        known[f"constant{len(known)}"] = value
        return f"constant{len(known) - 1}"

    outputs = tree_leaves(nodes[-1].args[0])
    lines, waits = [], bool(resumed)
    for node in nodes:
        if waits and any(value in later for value in node.all_input_nodes):
            lines.append(f"{', '.join(map(written, later))} = yield {written(outputs.pop())}")
            waits = False
        if node.op == "get_attr":
            lines.append(f"{node.name} = {written(getattr(recorded, str(node.target)))}")
        elif node.op == "output":
            lines.append(f"{'yield' if resumed else 'return'} {written(outputs)}")
        elif node.op == "call_function":
            # The operation itself: the wrapper around it costs as much as a small operation.
            call = written(getattr(node.target, "_op", node.target))
            named = [f"{key}={written(value)}" for key, value in node.kwargs.items()]
            lines.append(f"{node.name} = {call}({', '.join([*map(written, node.args), *named])})")
            done = [value.name for value in node.all_input_nodes if last[value] is node and value.op != "placeholder"]
            lines += [f"del {', '.join(done)}"] if done else []
    arguments = ", ".join(map(written, given[: len(given) - resumed]))
    exec(f"def run({arguments}):\n    " + "\n    ".join(lines), known)
    return known["run"]
