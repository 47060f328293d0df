"""`check_recordwise`: whether a program treats the records of a batch apart, by the types of its operations."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from tacit import check
from tacit.errors import MixesRecords, NoRecordRule, told
from tacit.verification import reads
from tacit.verification.calls import depends, refuse, tensors_in
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import OneRecord, Part, Public, Records, WholeBatch
from tacit.verification.rules.sequence import PACKING, PACKING_FILES

_OF_VALUES = ("tensor", "as_tensor", "asarray")


@dataclass(frozen=True)
class Recordwise:
    """What a record-wise program did.

    Attributes:
        operations: names of the operations on values of records, in order, forward and backward.
        reads: lines at which Python read a number of the records, "train.py:31".
        foreign: lines at which a tensor met the records that no observed operation made and that is neither a parameter
            nor a buffer; whether it follows the records is not known.

    Example:
        >>> Recordwise(("aten.mul",), (), ()).reads
        ()
    """

    operations: tuple[str, ...]
    reads: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def check_recordwise(function: Callable[..., Any], *records: Tensor) -> Recordwise:
    """Type every operation of `function(*records)`, and of the gradient of what it returns, by its record rule.

    If it returns, entry i along the records' axis of every output, and its gradient, is a function of record i, of
    public values and of draws of its own: each operation is one whose rule says so. Assumed are public values,
    kernels that compute no row from another, and that the program is one at every size; see `docs/train.md`.

    Args:
        function: a module or function, in the modes in which it trains.
        records: tensors of shape (B, ...), B >= 2, the records along axis 0.

    Raises:
        MixesRecords: an operation follows several records, has no rule, or keeps records; it names the operation, the
            line and a mend.
        InvalidInput: `records` are no tensors of one length of at least two.

    Example:
        >>> x = torch.randn(8, 3)
        >>> check_recordwise(lambda x: (x - 1).square().sum(1), x).operations[:2]
        ('aten.sub', 'aten.pow')
        >>> check_recordwise(lambda x: x - x.mean(0), x)
        Traceback (most recent call last):
            ...
        tacit.errors.MixesRecords: every operation must treat the records of a batch apart; got aten.mean at ...
    """
    lengths = {len(value) if isinstance(value, Tensor) and value.dim() else 0 for value in records}
    if len(lengths) != 1 or min(lengths) < 2:
        raise check.fail("records", "tensors of one length of at least 2, records along axis 0", sorted(lengths))
    mode = RecordMode(lengths.pop())
    given = [_fresh(value) for value in records]
    for value in given:
        mode.records(value, Records(0))
    with observed(mode), torch.enable_grad():
        output = function(*given)
        check_gradients(mode, check_outputs(mode, output))
    return Recordwise(tuple(mode.operations), tuple(mode.reads), tuple(mode.foreign))


_BATCHED = "batched_mm"


@contextmanager
def observed(mode: RecordMode) -> Iterator[None]:
    """Type every operation inside; parameters and buffers of modules that run are public."""
    stack = ExitStack()

    def known(module: nn.Module, _: object) -> None:
        for value in (*module.parameters(), *module.buffers()):
            mode.public(value)
        # transformers computes a mixture of experts in one of several equal ways; this one sorts no tokens.
        config = getattr(module, "config", None)
        way = getattr(config, "_experts_implementation", None)
        if way not in (None, _BATCHED):
            stack.callback(setattr, config, "_experts_implementation", way)
            config._experts_implementation = _BATCHED  # type: ignore[union-attr]

    with stack:
        hook = register_module_forward_pre_hook(known)
        stack.callback(hook.remove)
        stack.enter_context(ReadMode(mode))
        stack.enter_context(mode)
        try:
            yield
        except NotImplementedError as error:
            hint = "Use plain strided tensors"
            refuse("storage", mode.line(), told(error), hint, NoRecordRule)
        except Exception:
            # TorchScript and others wrap what an operation raises.
            if mode.refused is not None:
                raise mode.refused from None
            raise
        if mode.refused is not None:
            raise mode.refused


def check_outputs(mode: RecordMode, output: object, unused: bool = False) -> list[Tensor]:
    """The outputs that are the records', each along one axis.

    Args:
        mode: that typed the program.
        output: what it returned.
        unused: whether numbers of the whole batch may be among them, as others see to it that nobody uses them.

    Raises:
        MixesRecords: an output is of several records.
    """
    found = []
    for value in output_tensors(output):
        kind = mode.kind(value)
        if unused and isinstance(kind, WholeBatch):
            continue
        if isinstance(kind, WholeBatch | Part):
            refuse(kind.operation, kind.line, "its result is of several records, and is returned")
        if isinstance(kind, OneRecord):
            refuse("select", "", "the value of one record is returned", "Return one for each record")
        if isinstance(kind, Records):
            found.append(value)
        elif mode.is_unknown(value):
            mode.foreign.setdefault("what is returned", 1)
    return found


def check_gradients(mode: RecordMode, outputs: list[Tensor]) -> None:
    """Type the backward pass from `outputs` to all leaves; gradients of records stay theirs."""
    outputs = [value for value in outputs if value.requires_grad]
    leaves = leaves_of(outputs)
    if not leaves:
        return
    cotangents = [torch.ones_like(value) for value in outputs]
    for value, cotangent in zip(outputs, cotangents, strict=True):
        mode.storages.assign(cotangent, mode.kind(value), "backward", "")
    found = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    for leaf, gradient in zip(leaves, found, strict=True):
        if gradient is not None and isinstance(mode.kind(leaf), Public):
            kind = mode.kind(gradient)
            if isinstance(kind, Records):
                refuse("backward", "", "a parameter has an entry for each position of the batch", "Use one for all")


def leaves_of(outputs: list[Tensor]) -> list[Tensor]:
    """The tensors whose gradients the graph of `outputs` ends in."""
    todo: list[Any] = [value.grad_fn for value in outputs]
    seen, found = set[Any](), []
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        todo.extend(each for each, _ in node.next_functions)
    return found


def output_tensors(output: object) -> list[Tensor]:
    """The tensors of what a program returned; objects with a table of values count."""
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()  # type: ignore[attr-defined]
    if not isinstance(output, Tensor | list | tuple | dict) and hasattr(output, "__dict__"):
        output = vars(output)
    return tensors_in(output)


def _fresh(value: Tensor) -> Tensor:
    copied = value.detach().clone(memory_format=torch.contiguous_format)
    return copied.requires_grad_() if copied.is_floating_point() or copied.is_complex() else copied


class ReadMode(TorchFunctionMode):
    """Sees what hands the memory of a tensor to Python without an operation.

    Args:
        mode: that knows the types.
    """

    def __init__(self, mode: RecordMode):
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        frame = sys._getframe(1)
        handed = name in reads.HANDED_OUT and args and isinstance(args[0], Tensor) and not reads.is_own(frame)
        if handed and reads.answer_to(frame) is None:
            self._mode.public_reads = True
            if depends(self._mode.kind(args[0])):
                self._mode.read(reads.user_line(frame))
        if name in PACKING and frame.f_code.co_filename in PACKING_FILES:
            return PACKING[name](self._mode, frame, func, args)
        mode, before = self._mode, (self._mode.answering, self._mode.of_array)
        # The range check of classes whose number is given chooses nothing.
        mode.answering = before[0] or (name == "one_hot" and len(args) + len(kwargs or ()) > 1)
        mode.of_array = name in _OF_VALUES and any(hasattr(each, "__array__") for each in args)
        kwargs = kwargs or {}
        if name == "cdist" and kwargs.get("compute_mode", "").endswith("if_necessary"):
            # The number of rows chooses between two ways to the same distances: one program whatever the batch.
            kwargs = kwargs | {"compute_mode": "donot_use_mm_for_euclid_dist"}
        try:
            return func(*args, **kwargs)
        except MixesRecords:
            raise
        except Exception:
            # Which values an operation refuses is a number that a handler reads.
            if any(depends(mode.kind(value)) for value in tensors_in(args)):
                mode.read(reads.user_line(frame))
            raise
        finally:
            mode.answering, mode.of_array = before
