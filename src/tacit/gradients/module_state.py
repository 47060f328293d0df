"""The state of a module: all that one forward pass can leave behind for the next; and the leaves of nested values.

Parameters and buffers are compared by value and bit by bit, because writes through `.data` change neither identity nor
version. Attributes are followed through lists, dictionaries and plain objects, three levels deep.
"""

import copy
import copyreg
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks


class Leaf:
    """Base of dataclasses that are leaves themselves."""


Path = tuple[str | int, ...]
"""Keys, positions and field names from the outermost container to a leaf."""


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of `value` with its path; fields of dataclasses and keys of mappings by name, items by position.

    Example:
        >>> list(leaves({"a": 1, "b": (2, None)}))
        [(('a',), 1), (('b', 0), 2), (('b', 1), None)]
    """
    found = _entries(value)
    if found is None:
        yield path, value
        return
    for key, item in found:
        yield from leaves(item, (*path, key))


def with_leaves(value: Any, change: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of `value`, of the same types, with `change(path, leaf)` in place of every leaf.

    Example:
        >>> with_leaves({"a": 1, "b": (2, 3)}, lambda path, leaf: 10 * leaf)
        {'a': 10, 'b': (20, 30)}
    """
    found = _entries(value)
    if found is None:
        return change(path, value)
    return _rebuilt(value, {key: with_leaves(item, change, (*path, key)) for key, item in found})


def leaf_at(value: Any, path: Path) -> Any:
    """The leaf of `value` at `path`.

    Raises:
        LookupError: there is none.
        AttributeError: a dataclass has no such field.
    """
    for key in path:
        value = value[key] if isinstance(value, Mapping | list | tuple) else getattr(value, str(key))  # type: ignore[index, call-overload]
    return value


def named(path: Path) -> str:
    """A path as it is written in code, from the name of the outermost container on.

    Example:
        >>> "outputs" + named(("hidden_states", 0))
        'outputs.hidden_states[0]'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def _entries(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and items of a container; None for a leaf."""
    if isinstance(value, Tensor):
        return None
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    if is_dataclass(value) and not isinstance(value, type | Leaf):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return None


def _rebuilt(value: Any, items: dict[Any, Any]) -> Any:
    if type(value) is dict:
        return items
    if isinstance(value, list | tuple):
        return type(value)(*items.values()) if hasattr(value, "_fields") else type(value)(items.values())
    if isinstance(value, Mapping) and not isinstance(value, MutableMapping):
        return type(value)(items)  # type: ignore[call-arg]
    # A copy keeps what a mapping of a class of its own holds besides its items.
    made = copy.copy(value)
    for key, item in items.items():
        if isinstance(value, Mapping):
            made[key] = item
        else:
            object.__setattr__(made, key, item)
    return made


State = dict[str, Any]

_DEPTH = 3  # containers inside containers: deeper state of a layer has not been met
# Hooks are code; what they write into a module is found there.
_FIXED = ("_parameters", "_buffers", "_modules", "training")
_LEAVES = (Tensor, np.ndarray, bool, int, float, complex, str, bytes, type(None))
_CODE = (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType)
_NO_STATE = (nn.Module, torch.dtype, torch.device, torch.Size, *_CODE)


def module_state(module: nn.Module) -> State:
    """Every parameter, buffer and attribute of `module` and its submodules, by dotted name; values are not copied.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> layer.calls = 3
        >>> [name for name in sorted(module_state(layer)) if not name.startswith("_")]
        ['bias', 'calls', 'in_features', 'out_features', 'weight']
    """
    found: State = {}
    for path, inner in module.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in (*inner._parameters.items(), *inner._buffers.items()):
            found[prefix + name] = None if value is None else value.detach()
        for name, value in vars(inner).items():
            if name not in _FIXED and "_hooks" not in name:
                found.update(_leaves(prefix + name, value, _DEPTH))
    return found


def _leaves(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _LEAVES):
        yield name, value.detach() if isinstance(value, Tensor) else value
    elif isinstance(value, torch.Generator):
        yield name, value.get_state()
    elif isinstance(value, np.random.Generator):
        yield name, repr(value.bit_generator.state)
    elif isinstance(value, random.Random):
        yield name, value.getstate()
    elif isinstance(value, _NO_STATE) or depth == 0:
        return
    else:
        items = list(_items(value))
        yield f"{name}.__len__", len(items)
        for key, item in items:
            yield from _leaves(f"{name}.{key}", item, depth - 1)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from list(value.items())
    elif isinstance(value, list | tuple | deque):
        yield from enumerate(list(value))
    elif isinstance(value, set | frozenset):
        yield from enumerate(sorted(value, key=repr))
    else:
        yield from list(getattr(value, "__dict__", {}).items())


def copied_state(module: nn.Module) -> State:
    """The state of `module`, of which a copy is made where a value can be written into."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value.copy() if isinstance(value, np.ndarray) else value
        for name, value in module_state(module).items()
    }


def changed_names(before: State, after: State) -> list[str]:
    """Names whose value is not the same, bit by bit, in both states, or that only one of them has.

    Example:
        >>> changed_names({"a": 1, "b": torch.zeros(2)}, {"a": 2, "b": torch.zeros(2)})
        ['a']
    """
    names = list(dict.fromkeys((*before, *after)))
    return [name for name in names if name not in before or name not in after or not same(before[name], after[name])]


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal bit by bit; NaN equals NaN."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.shape != right.shape or left.dtype != right.dtype or left.device != right.device:
            return False
        return torch.equal(left, right) or bool(((left == right) | ((left != left) & (right != right))).all())
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if type(left) is not type(right):
        return False
    return left == right or (isinstance(left, float) and left != left and right != right)


def call_with(module: nn.Module, values: Mapping[str, Tensor], positional: Any, named: Mapping[str, Any]) -> Any:
    """`torch.func.functional_call`, after which the module holds its own parameters and buffers again.

    Of a submodule that stands at two names, torch puts the given tensor back, not the parameter.

    Args:
        module: called with `values` in place of its parameters and buffers.
        values: by name; a value that several names share may be given under one of them.
        positional: arguments.
        named: arguments.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> both = nn.Sequential(layer, layer)
        >>> call_with(both, {"0.weight": torch.full((1, 1), 3.0)}, (torch.ones(1, 1),), {}).item()
        9.0
        >>> isinstance(layer.weight, nn.Parameter)
        True
    """
    tables = [table for inner in module.modules() for table in (inner._parameters, inner._buffers)]
    before = [(table, dict(table)) for table in tables]
    try:
        return functional_call(module, dict(values), positional, dict(named))
    finally:
        for table, own in before:
            table.update(own)  # type: ignore[arg-type]


def _reduced(generator: torch.Generator) -> tuple[Any, tuple[torch.device, Tensor]]:
    """What a copy or a pickle of a generator is made of."""
    return _generator, (generator.device, generator.get_state())


def _generator(device: torch.device, state: Tensor) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(state)
    return generator


# torch's own reduction gives away a reference of None at every copy that it does not hold: the process dies of it.
copyreg.pickle(torch.Generator, _reduced)


@contextmanager
def copy_to_run(model: nn.Module, *, by_record: bool = False) -> Iterator[nn.Module]:
    """A copy of the module; the module itself, whose state is put back at the end, where it cannot be copied.

    Gradients that are made record by record are divided by no counts, which would be those of one record.
    """
    inner = getattr(model, "_orig_mod", model)
    try:
        copied, restore = copy.deepcopy(inner), None
    except Exception:
        # Attributes with a graph, locks and open files cannot be copied; they fail in many ways.
        copied, restore = inner, _restorer(inner)
    for each in copied.modules():
        if by_record and getattr(each, "scale_grad_by_freq", False):
            vars(each)["scale_grad_by_freq"] = False
    try:
        yield copied
    finally:
        if restore is not None:
            restore()


def _restorer(model: nn.Module) -> Callable[[], None]:
    values = [(value, value.detach().clone()) for value in (*model.parameters(), *model.buffers())]
    attributes = [(vars(inner), dict(vars(inner))) for inner in model.modules()]
    buffers = [(inner._buffers, dict(inner._buffers)) for inner in model.modules()]
    boxes = [box for own, _ in attributes for box in own.values() if isinstance(box, list | dict)]
    containers = [(box, box.copy()) for box in boxes]
    gradients = [(value, value.grad) for value in model.parameters()]

    def restore() -> None:
        for own, before in (*attributes, *buffers):
            own.clear()
            own.update(before)
        for box, before in containers:
            box.clear()
            box.update(before) if isinstance(box, dict) else box.extend(before)
        for value, before in values:
            value.data.copy_(before)
        for value, gradient in gradients:
            value.grad = gradient

    return restore


def draws_of_python() -> tuple[object, ...]:
    """The states of the generators of Python and NumPy, to be compared."""
    name, key, *place = np.random.get_state()  # noqa: NPY002 (models draw from it)
    return random.getstate(), name, np.asarray(key).tobytes(), *place


def generators_now() -> Callable[[], None]:
    """A function that puts every global generator where it is now."""
    cpu, cuda = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    draws, python = np.random.get_state(), random.getstate()  # noqa: NPY002 (models draw from it)

    def start() -> None:
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        np.random.set_state(draws)  # noqa: NPY002
        random.setstate(python)

    return start


@contextmanager
def restored_generators() -> Iterator[Callable[[], None]]:
    """As `generators_now`; they are put there at the end too."""
    start = generators_now()
    try:
        yield start
    finally:
        start()


def program_of(model: nn.Module) -> tuple[object, ...]:
    """What decides which operations a forward pass runs, besides attributes: modes, classes and hooks of all modules.

    Example:
        >>> layer = nn.Dropout()
        >>> program_of(layer) == program_of(layer.eval())
        False
    """
    modules = list(model.modules())
    parts = [(each.training, vars(each).get("forward"), *map(len, _hooks(each))) for each in modules]
    return (*parts, *[type(each).forward for each in modules], hooks_of_all_modules())


def hooks_of_all_modules() -> int:
    """Number of hooks of others on every module of the process."""
    hooks = (*_global_forward_hooks.values(), *_global_forward_pre_hooks.values())
    return sum(not getattr(getattr(each, "func", each), "__module__", "").startswith("tacit.") for each in hooks)


def _hooks(module: nn.Module) -> tuple[Any, ...]:
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks
