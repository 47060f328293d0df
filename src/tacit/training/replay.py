"""A recorded graph as one straight Python function, for models so small that Python's way to them costs the most.

No compiler is involved: the function calls the recorded operations one after the other, so it is ready in a fraction
of a second. What a recording holds only for autograd's sake is left out, and what it computes twice is computed once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

_aten = torch.ops.aten
_SAME = (_aten.detach.default, _aten.alias.default)
_RESHAPING = (_aten.view.default, _aten.expand.default, _aten._unsafe_view.default)
_RANDOM = torch.Tag.nondeterministic_seeded


def replay(recorded: GraphModule) -> Callable[..., Any]:
    """The function that `recorded` describes, on the same tensors; its outputs come as a flat list."""
    graph = recorded.graph
    _drop_what_does_nothing(graph)
    _share(graph)
    graph.eliminate_dead_code()
    return _function(recorded)


def _drop_what_does_nothing(graph: Graph) -> None:
    for node in list(graph.nodes):
        if node.target in _SAME or (node.target in _RESHAPING and _shape(node) == _shape(node.args[0])):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _share(graph: Graph) -> None:
    """Operations on the same arguments are done once, unless their result or argument is written into."""
    written = {node for node in graph.nodes if _mutates(node) for node in _origins(node.args[0])}
    seen: dict[object, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or _mutates(node) or _random(node):
            continue
        if any(origin in written for part in (node, *node.all_input_nodes) for origin in _origins(part)):
            continue
        key = (node.target, repr(node.args), repr(node.kwargs))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.erase_node(node)
        seen.setdefault(key, node)


def _origins(node: Any) -> Iterator[Node]:
    """The node and everything that it may be a view of."""
    while isinstance(node, Node):
        yield node
        views = node.op == "call_function" and (node.target is operator.getitem or _views(node))
        node = node.args[0] if views or _mutates(node) else None


def _mutates(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def _views(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(argument.alias_info is not None for argument in schema.arguments[:1])


def _random(node: Node) -> bool:
    return _RANDOM in getattr(node.target, "tags", ())


def _shape(node: Any) -> object:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return tuple(value.shape) if isinstance(value, Tensor) else node


def _function(recorded: GraphModule) -> Callable[..., Any]:
    """Straight code: one line an operation, every value let go after its last use."""
    nodes = list(recorded.graph.nodes)
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

    lines = []
    for node in nodes:
        if node.op == "get_attr":
            lines.append(f"{node.name} = {written(getattr(recorded, str(node.target)))}")
        elif node.op == "output":
            lines.append(f"return {written(tree_leaves(node.args[0]))}")
        elif node.op == "call_function":
            # The operation itself: the wrapper around it costs as much as a small operation.
            call = written(getattr(node.target, "_op", node.target))
            named = [f"{key}={written(value)}" for key, value in node.kwargs.items()]
            lines.append(f"{node.name} = {call}({', '.join([*map(written, node.args), *named])})")
            done = [value.name for value in node.all_input_nodes if last[value] is node and value.op != "placeholder"]
            lines += [f"del {', '.join(done)}"] if done else []
    arguments = ", ".join(node.name for node in nodes if node.op == "placeholder")
    exec(f"def run({arguments}):\n    " + "\n    ".join(lines), known)
    return known["run"]
