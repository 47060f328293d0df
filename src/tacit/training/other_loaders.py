"""Other loaders over the records of a private run: those of other runs, and those that measure between its steps."""

import hashlib
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakMethod, WeakSet, finalize, ref

import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from torch.utils.hooks import RemovableHandle

from tacit.accounting import Ledger
from tacit.budget.shared_ledger import tell_of_other_runs
from tacit.training.captured import Memory, data_leaves
from tacit.verification.reads import user_line

_PROCESS_KEY = os.urandom(16)  # hashes of records are compared in this process only
_ROWS = 1024  # evenly spaced rows that are hashed: as good as all of them to recognise a table, and quick
_ITERATE = DataLoader.__iter__


def tell_of_other_loaders(dataset: Any, ledger: Ledger) -> None:
    """Say so where another run of this process read records of the same data set with a ledger of its own."""
    whole, part = _records(dataset)
    tell_of_other_runs(_identity(whole), ledger, part)


class OtherLoaders:
    """Notices that a loader of the user's own goes over records of `dataset`, by data set and numbers, or by memory.

    Attributes:
        line: of the user's, at which the last one began; empty where none did.
    """

    def __init__(self, dataset: Any):
        self._whole, self._part = _records(dataset)
        self._memory = [Memory(each) for each in data_leaves(dataset)] if self._part is None else []
        self.line = ""
        _WATCHING.add(self)
        if DataLoader.__iter__ is _ITERATE:
            DataLoader.__iter__ = _noticed

    def begun(self, dataset: Any) -> None:
        """Note the line if `dataset` shares a record."""
        for part in dataset.datasets if isinstance(dataset, ConcatDataset) else (dataset,):
            whole, numbers = _records(part)
            apart = numbers is not None and self._part is not None and self._part.isdisjoint(numbers)
            held = [] if numbers is not None else list(data_leaves(whole))
            shared = any(own.overlaps(value) for own in self._memory for value in held)
            if shared or (not apart and _is_same(whole, self._whole)):
                self.line = user_line()


class ModuleCalls:
    """Notices which records are measured on between private steps, whichever module is called.

    Args:
        records: memory of the data set.
        model: that is trained.
        told: called with True where a module is given memory of the training records, and with False where `model`, or
            one of the same parameters, is given others.
    """

    def __init__(self, records: list[Memory], model: nn.Module, told: WeakMethod[Callable[[bool], None]]):
        self._records, self._told = records, told
        self._model, self._shapes = model, _shapes(model)
        self._hooks: list[RemovableHandle] = []
        finalize(self, _removed, self._hooks)

    def begin(self) -> None:
        """From here on the code that runs is the loop's own."""
        if not self._hooks:
            self._hooks.append(register_module_forward_pre_hook(partial(_look, WeakMethod(self.look))))

    def end(self) -> None:
        """From here on it is that of tacit, the private model or the data set."""
        _removed(self._hooks)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Code that runs inside is not the loop's own."""
        running = bool(self._hooks)
        self.end()
        try:
            yield
        finally:
            if running:
                self.begin()

    def look(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        """Tell where a plain tensor among `given` shares memory with the records, or `module` is the model."""
        values = (value for value in data_leaves(given) if type(value) is Tensor)
        plain = [value for value in values if not is_functorch_wrapped_tensor(value)]
        told = self._told()
        if told is None or not plain:
            return
        if any(own.holds(each) and own.overlaps(each) for each in plain for own in self._records):
            told(True)
        elif type(module) is type(self._model) and _shapes(module) == self._shapes:
            told(False)


def _shapes(module: nn.Module) -> list[torch.Size]:
    return [value.shape for value in module.parameters()]


_Look = Callable[[nn.Module, tuple[Any, ...]], None]


def _look(look: WeakMethod[_Look], module: nn.Module, given: tuple[Any, ...]) -> None:
    """Inert under every mode, and where torch compiles: what runs there is no code of the loop's own."""
    if torch.compiler.is_compiling() or _len_torch_dispatch_stack() or _len_torch_function_stack():
        return
    if (found := look()) is not None:
        found(module, given)


def _removed(hooks: list[RemovableHandle]) -> None:
    while hooks:
        hooks.pop().remove()


_WATCHING = WeakSet[OtherLoaders]()


def _noticed(self: DataLoader[Any]) -> Any:
    for each in list(_WATCHING):
        each.begun(self.dataset)
    return _ITERATE(self)


def _records(dataset: Any) -> tuple[Any, frozenset[int] | None]:
    """The data set behind its subsets, and the numbers of the records that are meant; None for all."""
    part = None
    while isinstance(dataset, Subset):
        inner = [int(index) for index in dataset.indices]
        part = frozenset(inner if part is None else (inner[index] for index in part))
        dataset = dataset.dataset
    return dataset, part


def _is_same(one: Any, other: Any) -> bool:
    """Whether two data sets hold the same records; tables of other shapes are not looked at."""
    if one is other or not (isinstance(one, TensorDataset) and isinstance(other, TensorDataset)):
        return one is other
    shapes = ([each.shape for each in table.tensors] for table in (one, other))
    return next(shapes) == next(shapes) and _identity(one) == _identity(other)


def _identity(dataset: Any) -> Hashable:
    """What stands for the records: a keyed hash of some rows of tensors, else the data set itself while it lives."""
    if not isinstance(dataset, TensorDataset):
        try:
            return _Living(dataset)
        except TypeError:
            # A list cannot be referred to weakly, and the same one cannot be told from another that took its place.
            return object()
    digest = hashlib.blake2b(key=_PROCESS_KEY, digest_size=16)
    for tensor in dataset.tensors:
        rows = tensor[:: max(1, len(tensor) // _ROWS)].detach().cpu().contiguous()
        digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode() + rows.view(torch.uint8).numpy().tobytes())
    return digest.digest()


class _Living:
    """An object by its identity, while it lives, whatever it takes for equal."""

    def __init__(self, value: object):
        self._reference, self._id = ref(value), id(value)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine = self._reference()
        return isinstance(other, _Living) and mine is not None and mine is other._reference()
