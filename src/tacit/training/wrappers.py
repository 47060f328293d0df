"""The model and optimizer that `make_private` hands back: an ordinary loop over them is a private run."""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.gradients import first_batch_check
from tacit.gradients.deferred import DeferredSum, Recording, inner_product
from tacit.gradients.inputs import Inputs, tensors
from tacit.training.autograd import Made, Sizes, Tape, mapped
from tacit.training.batch_session import BatchSession
from tacit.training.loader import PrivateLoader
from tacit.training.private_outputs import PrivateOutputs, cotangents, plain
from tacit.training.private_step import check_mode, update


class PrivateModel(nn.Module):
    """`module` whose training-mode outputs carry private gradients; in evaluation mode it is `module` itself.

    State dictionaries are those of `module`, a copy is a copy of `module` alone, and other attributes are its own.
    """

    def __init__(self, module: nn.Module, exchange: BatchSession):
        super().__init__()
        self.module = module
        self._exchange = exchange
        self._sizes = Sizes()
        self.clipped = DeferredSum(module, exchange.run.clip)
        self._audited = False

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        inputs, named = mapped(inputs, plain), mapped(named, plain)
        if not self.training or not torch.is_grad_enabled():
            return self._beside(self.module(*inputs, **named))
        given = _together(self.module, inputs, named)
        self._exchange.check_size([len(value) for value in tensors(given)])
        recording = self.clipped.record(given)
        root = recording.outputs.requires_grad_()
        return PrivateOutputs.of(root, self._exchange.in_hand, partial(self._backpropagate, recording))

    def _beside(self, outputs: Tensor) -> Tensor:
        """Outputs without gradients, kept on a tape while they may be those of the batch in hand and enter its loss."""
        piece = self._exchange.in_hand
        rows = isinstance(outputs, Tensor) and outputs.dim() and not outputs.requires_grad
        if piece is None or not rows or len(outputs) != piece.size:
            return outputs
        return PrivateOutputs.of(outputs, piece, _without_gradients)

    def _backpropagate(self, recording: Recording, loss: Tensor, made: Made, tape: Tape) -> None:
        exchange = self._exchange
        exchange.check_first()
        check_mode(self)
        found = cotangents(loss, made, tape, exchange.reduction, exchange.backwards, self._sizes)
        if len(found) and not self._audited:
            first_batch_check(self.clipped, inner_product, recording.inputs, found)
            self._audited = True
        exchange.record(*self.clipped.release(recording, found, exchange.members))

    def state_dict(self, *args: Any, **named: Any) -> Any:
        return self.module.state_dict(*args, **named)

    def load_state_dict(self, *args: Any, **named: Any) -> Any:
        return self.module.load_state_dict(*args, **named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        return copy.deepcopy(self.module, memo)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private model cannot be pickled; save its state_dict() instead.")


class PrivateOptimizer(Optimizer):
    """`optimizer` whose step releases one noisy gradient and records it; its state and groups are the original's."""

    def __init__(self, optimizer: Optimizer, model: PrivateModel, exchange: BatchSession):
        # Optimizer.__init__ is left out: it would make second parameter groups.
        self.original = optimizer
        self._model = model
        self._exchange = exchange

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "_model", "_exchange"):
            raise AttributeError(name)
        return getattr(self.original, name)

    @property
    def noise_multiplier(self) -> float:
        """Noise of the steps to come, std / clip_norm; each step is recorded with the noise that it had."""
        return self._exchange.run.plan.noise_at(self._exchange.run.taken)

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self._exchange.run.change_noise(value)

    @property
    def max_grad_norm(self) -> float:
        """Bound on the L2 norm of one record's gradient in the batches to come; the noise follows it."""
        return self._exchange.run.clip.sensitivity

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        self.check_between_batches("max_grad_norm must change")
        self._exchange.run.change_clip(value)
        self._model.clipped.clip = self._exchange.run.clip

    def check_between_batches(self, what: str) -> None:
        """Raise `TrainingMisuse` when a batch has been summed up in part, or not been released yet."""
        self._exchange.check_between(what)

    def steps_on(self, loader: PrivateLoader) -> bool:
        """Whether `loader` came from the same call of make_private."""
        return loader.belongs_to(self._exchange)

    @property
    def batch_complete(self) -> bool:
        """Whether backward was called on the last piece of a batch, so that `step` will step."""
        return self._exchange.complete

    @property
    def expected_batch_size(self) -> float:
        """What the noisy sum is divided by."""
        return self._exchange.run.plan.expected_batch_size

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.original.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.original.state

    def state_dict(self) -> dict[str, Any]:
        return self.original.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.original.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        raise TrainingMisuse("optimizer must hold its parameters before make_private; got a group added after it.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.original.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Add noise to the clipped sum of the batch in hand, record it in the ledger, and let the original step.

        After a piece of a batch that is not its last, nothing happens.
        """
        check_mode(self._model)
        if closure is not None:
            raise check.fail("closure", "None", type(closure).__name__, "Call losses.backward() before step().")
        released = self._exchange.release()
        if released is not None:
            self._model.clipped.clip = released.clip
            update(self._model.clipped.trainable, self.original, released)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private optimizer cannot be copied or pickled; save its state_dict() instead.")


def _without_gradients(loss: Tensor, made: Made, tape: Tape) -> None:
    loss.backward()


def _together(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Inputs:
    """The arguments of the model as a tuple of tensors, or as a dict of named ones where any was given by its name."""
    if named:
        bound = inspect.signature(module.forward).bind(*inputs, **named)
        named = {name: value for name, value in bound.arguments.items() if value is not None}
    for name, value in named.items() if named else enumerate(inputs):
        if not isinstance(value, Tensor) or not value.dim():
            rule = "a tensor whose first axis is the batch"
            hint = "Set options on the module before make_private."
            raise check.fail(f"argument {name!r} of the model", rule, type(value).__name__, hint)
    return named or inputs
