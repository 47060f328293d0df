"""Outputs of a private model in the containers that the module returns, and refusals in place of mixed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from torch import Tensor, nn

from tacit.errors import TrainingMisuse
from tacit.gradients.module_state import with_leaves
from tacit.gradients.outputs import MixedValue, RowShape, parts_of
from tacit.training.trace import TracedTensor

# Losses of `tacit.losses` by a part of the name of the class whose mean they replace, the most special first.
_LOSSES = (
    ("ForCausalLM", "causal_lm(outputs.logits, labels)"),
    ("LMHeadModel", "causal_lm(outputs.logits, labels)"),
    ("ForMaskedLM", "masked_lm(outputs.logits, labels)"),
    ("ForTokenClassification", "token_classification(outputs.logits, labels)"),
    ("ForConditionalGeneration", "seq2seq_lm(outputs.logits, labels)"),
    ("Classification", "sequence_classification(outputs.logits, labels)"),
)


def private_values(outputs: Tensor, structure: Any, module: nn.Module) -> Any:
    """What `module` returned, with private outputs in their places.

    Args:
        outputs: packed private outputs, shape (batch, ...), or the only one.
        structure: with a `RowShape` for every private output; see `OutputForm.structure`.
        module: names the loss that replaces a mean.
    """
    parts = dict(parts_of(structure))
    trace = getattr(outputs, "trace", None)

    def value(path: tuple[str | int, ...], leaf: Any) -> Any:
        if isinstance(leaf, RowShape):
            # One operation for each part, without numbers in it that could be taken for sizes of the batch.
            return outputs if len(parts) == 1 else _applied(parts[path], outputs)
        if isinstance(leaf, Tensor) and trace is not None:
            return trace.root(leaf)
        return Refusal(leaf, module) if isinstance(leaf, MixedValue) else leaf

    return with_leaves(structure, value)


def values_on_trace(outputs: Any, size: int, on_trace: Callable[[Tensor], Tensor], module: nn.Module) -> Any:
    """Outputs for the records of a pending batch, each with rows as `on_trace` makes it.

    Args:
        outputs: what `module` returned.
        size: number of records.
        on_trace: rows -> the same rows on the trace of the batch.
        module: names the loss that replaces a mean.
    """

    def value(path: tuple[str | int, ...], leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.dim() and len(leaf) == size:
            return on_trace(leaf)
        return Refusal(MixedValue(path), module) if path else leaf

    return with_leaves(outputs, value)


def _applied(part: Callable[[Tensor], Tensor], outputs: Tensor) -> Tensor:
    if isinstance(outputs, TracedTensor):
        return type(outputs).__torch_function__(part, (type(outputs),), (outputs,))
    return part(outputs)


class Refusal:
    """Stands for an output that mixes the records of the batch; every use raises `TrainingMisuse`."""

    def __init__(self, value: MixedValue, module: nn.Module):
        self.__dict__["_message"] = _sentence(value.name, type(getattr(module, "base_model", module)).__name__, module)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TrainingMisuse(self.__dict__["_message"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        refused = next(value for value in (*args, *(kwargs or {}).values()) if isinstance(value, cls))
        refused._refuse()

    def __repr__(self) -> str:
        return "<a value that mixes the records of the batch>"

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = __float__ = __int__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = __format__ = _refuse


def _sentence(name: str, class_name: str, module: nn.Module) -> str:
    if "loss" not in name and name != "[0]":
        return (
            f"outputs{name} must not be used in private training: it has no row for each record, so it mixes the "
            "examples of the batch. Compute the loss from outputs that have one."
        )
    names = [class_name, *(type(part).__name__ for part in module.modules())]
    call = next((call for one in names for part, call in _LOSSES if part in one), "")
    loss = f"tacit.losses.{call}" if call else 'cross_entropy(outputs.logits, labels, reduction="none")'
    return (
        f"outputs{name} must not be used in private training: a mean over the batch divides by what all of its records "
        f"count, so no record's share of it is bounded. Write: losses = {loss}; losses.backward()"
    )
