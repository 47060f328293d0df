"""The record types of a model and its loss on the rows of a batch: what is refused, and what nobody knows."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from tacit.errors import MixesRecords, NoRecordRule
from tacit.gradients.inputs import Inputs, Loss, losses_of, map_tensors, outputs_of, tensors
from tacit.gradients.module_state import copy_to_run, module_state
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import Records
from tacit.verification.recordwise import check_gradients, check_outputs, observed

TYPED = "record types of every operation, forward and backward"
"""How a fact is known that the types of this page decide."""
Doubts = tuple[tuple[str, str], ...]
"""(fact, sentence) for each fact that the record types leave open."""


@dataclass(frozen=True)
class RecordCheck:
    """What the record types of one pass say.

    Attributes:
        operations: how many operations on records' values were typed; 0 where the pass could not be typed.
        doubts: facts that they leave open.
        branches: whether Python read a draw, so that the next pass may run other operations.
    """

    operations: int = 0
    doubts: Doubts = ()
    branches: bool = False


@dataclass(frozen=True)
class Known:
    """Tensors whose origin is known without an observed operation.

    Attributes:
        public: declared by the user.
        cleared: names of a module's state that its own passes make, alike for any records.
        alive: identities of the tensors that were there before the first pass; what came later the passes made.
    """

    public: tuple[Tensor, ...] = ()
    cleared: frozenset[str] = frozenset()
    alive: frozenset[int] | None = None


def tensors_alive() -> frozenset[int]:
    """Identities of all tensors that Python holds now."""
    return frozenset(id(each) for each in gc.get_objects() if issubclass(type(each), Tensor))


def check_records(
    model: nn.Module, inputs: Inputs, targets: Tensor | None, loss: Loss | None, known: Known | None = None
) -> RecordCheck:
    """Type the forward pass of a copy of `model`, of `loss` if it is given, and the backward pass.

    Args:
        model: in train mode.
        inputs: at least two rows.
        targets: of the loss.
        loss: one value per record.
        known: which tensors are no unknown ones.

    Raises:
        MixesRecords: an operation mixes the records, or keeps them.
    """
    known = Known() if known is None else known
    copied, restore = copy_to_run(model)
    for inner in copied.modules():
        if getattr(inner, "scale_grad_by_freq", False):
            # Gradients of parameters are made record by record, where counts are those of one record.
            vars(inner)["scale_grad_by_freq"] = False
    try:
        found = _typed(copied, (inputs, targets, loss), known)
    except NoRecordRule as error:
        return RecordCheck(0, (("model_rows", f"{error} Or declare it: facts.declare('model_rows', 'why')"),))
    except MixesRecords:
        raise
    except Exception as error:
        # What runs in one mode only, or under a compiler of its own, fails here in many ways.
        says = f"the operations of a pass could not be typed ({type(error).__name__}); or declare it:"
        return RecordCheck(0, (("model_rows", f"{says} facts.declare('model_rows', 'why')"),))
    finally:
        restore()
    return found


def _typed(model: nn.Module, given: tuple[Inputs, Tensor | None, Loss | None], known: Known) -> RecordCheck:
    inputs, targets, loss = given
    fresh = map_tensors(lambda value: value.detach().clone(), inputs)
    labels = None if targets is None else targets.detach().clone()
    values = tensors(fresh) if labels is None else [*tensors(fresh), labels]
    mode, draws = RecordMode(len(values[0])), _draws_of_python()
    for value in known.public:
        mode.public(value)
    mode.alive = known.alive
    for name, value in module_state(model).items():
        if isinstance(value, Tensor) and name in known.cleared:
            mode.public(value)
        elif isinstance(value, Tensor):
            mode.attributes.add(value.untyped_storage()._cdata)
    for value in values:
        mode.records(value, Records(0))
    with observed(mode), torch.enable_grad():
        outputs: Any = outputs_of(model, fresh)
        of_model = frozenset(mode.foreign)
        if loss is not None and labels is not None:
            outputs = losses_of(loss, outputs, labels)
        # Without the loss, a mean among the outputs may be there as long as no loss uses it.
        check_gradients(mode, check_outputs(mode, outputs, unused=loss is None))
    branches = mode.branches or draws != _draws_of_python()
    return RecordCheck(len(mode.operations), tuple(_doubts(mode, of_model)), branches)


def _draws_of_python() -> tuple[object, ...]:
    """The states of the generators of Python and NumPy."""
    return random.getstate(), repr(np.random.get_state(legacy=False))  # noqa: NPY002


def _doubts(mode: RecordMode, of_model: frozenset[str]) -> Iterable[tuple[str, str]]:
    for line in mode.reads:
        yield "numbers_read", f"{line} reads a number of the records: compute with tensors of the records alone"
    for line in mode.foreign:
        fact = "model_rows" if line in of_model else "loss_rows"
        yield fact, f"{line} uses a tensor of unknown origin: register it as a buffer, or declare it public"


def program_of(model: nn.Module) -> tuple[object, ...]:
    """What decides which operations a forward pass runs, besides attributes: modes, classes and hooks of all modules.

    Example:
        >>> layer = nn.Dropout()
        >>> program_of(layer) == program_of(layer.eval())
        False
    """
    parts = [
        (each.training, type(each).forward, vars(each).get("forward"), *map(len, _hooks(each)))
        for each in model.modules()
    ]
    return (*parts, len(_global_forward_hooks), len(_global_forward_pre_hooks))


def _hooks(module: nn.Module) -> tuple[Any, ...]:
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks
