"""`PrivateModel` and `PrivateOptimizer`: an ordinary training loop over them is a private run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.gradients import first_batch_check
from tacit.gradients.deferred import DeferredSum, Recording, inner_product
from tacit.gradients.inputs import Inputs, PhysicalBatch, tensors
from tacit.training.autograd import SizeTracker, flat, mapped
from tacit.training.batch_session import BatchSession
from tacit.training.loader import PrivateLoader
from tacit.training.private_outputs import PrivateOutputs, cotangents
from tacit.training.private_step import apply_release, check_mode
from tacit.training.step_check import settings_of
from tacit.training.trace import TracedTensor, plain


class PrivateModel(nn.Module):
    """Model whose training-mode outputs carry private gradients; in evaluation mode it equals `module`.

    State dictionaries are those of `module`, a copy is a copy of `module` alone, and other attributes are those of
    `module`.
    """

    def __init__(self, module: nn.Module, session: BatchSession):
        super().__init__()
        self.module = module
        self._session = session
        self._sizes = SizeTracker()
        self.clipped = DeferredSum(module, session.run.clip)
        self._checked = False

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Outputs of the module; in train mode their `backward` clips."""
        session, values = self._session, list(flat((inputs, named)))
        inputs, named = mapped(inputs, plain), mapped(named, plain)
        if not self.training or not torch.is_grad_enabled():
            return self._without_gradient(values, self.module(*inputs, **named))
        given = _as_inputs(self.module, inputs, named)
        if session.dry_run is not None:
            return session.dry_run.forward(self.module, given)
        session.check_size([len(value) for value in tensors(given)])
        assert session.trace is not None
        session.checks.check_inputs(values, session.trace)
        self._follow_frozen()
        session.checks.before_forward(given)
        recording = self.clipped.record(given)
        root = recording.outputs.requires_grad_()
        autocast = torch.is_autocast_enabled(root.device.type)
        backpropagate = partial(self._backpropagate, recording, autocast)
        return PrivateOutputs.of(root, session.pending, session.trace, backpropagate)

    def _without_gradient(self, values: list[Any], outputs: Tensor) -> Tensor:
        """Outputs without private gradients; those of the pending batch stay on its trace, as they may enter a loss."""
        batch, trace = self._session.pending, self._session.trace
        rows = isinstance(outputs, Tensor) and outputs.dim()
        if batch is None or trace is None or not rows or len(outputs) != batch.size:
            return outputs
        if not any(isinstance(value, TracedTensor) and value.trace is trace for value in values):
            return outputs
        self._session.checks.check_inputs(values, trace)
        if outputs.requires_grad:
            trace.refusal = _EVALUATION
            return trace.root(outputs)
        return PrivateOutputs.of(outputs, batch, trace, _backward_past_model)

    def _follow_frozen(self) -> None:
        """Leave out parameters that were frozen since; their gradients are neither clipped nor released."""
        checks = self._session.checks
        if checks.guard.frozen():
            self._session.check_between("parameters must be frozen")
            checks.guard.check_weights()
            probe = self.clipped.probe
            self.clipped = DeferredSum(self.module, self.clipped.clip)
            self.clipped.probe = probe
            checks.model = self.clipped
            checks.guard.released()

    def _backpropagate(self, recording: Recording, autocast: bool, outputs: PrivateOutputs) -> None:
        session = self._session
        session.check_first()
        check_mode(self)
        session.checks.after_forward(recording.inputs)
        loss, reduction = outputs.as_subclass(Tensor), session.reduction
        due = session.checks.due("loss", outputs.trace)
        # A mean or a sum may be one of single losses in one batch and not in the next, as where targets are ignored.
        turn = session.backwards if due or not loss.dim() else None
        found = cotangents(loss, outputs.made, outputs.tape, reduction, turn, self._sizes)
        scale = len(found) if reduction == "mean" and not loss.dim() else 1
        session.checks.check_loss(outputs, outputs.tape.root, found, scale, due=due)
        if len(found) and not self._checked:
            first_batch_check(self.clipped, inner_product, recording.inputs, found)
            self._checked = True
        total, norms = self.clipped.release(recording, found, session.unit_ids)
        monitor = session.run.monitor
        if monitor.due and not autocast:
            batch = PhysicalBatch(inner_product, recording.inputs, found)
            monitor.compare_sum(self.clipped, batch, total, session.run.clip)
        session.record(total, norms)

    @property
    def session(self) -> BatchSession:
        """The session that the private model, optimizer and loader share."""
        return self._session

    def state_dict(self, *args: Any, **named: Any) -> Any:
        """State of the module."""
        return self.module.state_dict(*args, **named)

    def load_state_dict(self, *args: Any, **named: Any) -> Any:
        """Load the state of the module: for evaluation, or inside `private.postprocessing`.

        Raises:
            TrainingMisuse: other weights are loaded in train mode, which no release made.
        """
        if args and isinstance(args[0], Mapping):
            self._session.checks.check_loaded(self.module.state_dict(), args[0], self.training)
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
    """Optimizer whose step releases one noisy gradient and records it; its state and groups are the original's."""

    def __init__(self, optimizer: Optimizer, model: PrivateModel, session: BatchSession):
        # Optimizer.__init__ is left out: it would make second parameter groups.
        self.original = optimizer
        self._model = model
        self._session = session

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "_model", "_session"):
            raise AttributeError(name)
        return getattr(self.original, name)

    @property
    def noise_multiplier(self) -> float:
        """Noise std / clip_norm of the next steps; each step is recorded with the noise that it had."""
        return self._session.run.plan.noise_at(self._session.run.taken)

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        if self._session.dry_run is not None:
            self._session.dry_run.settings.append(("noise_multiplier", value))
            return
        self._session.checks.check_settings("noise_multiplier")
        self._session.run.change_noise(value)

    @property
    def max_grad_norm(self) -> float:
        """Bound on the L2 norm of one record's gradient in the next batches; the noise scales with it."""
        return self._session.run.clip.sensitivity

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        if self._session.dry_run is not None:
            self._session.dry_run.settings.append(("max_grad_norm", value))
            return
        self.check_between_batches("max_grad_norm must change")
        self._session.checks.check_settings("max_grad_norm")
        self._session.run.change_clip(value)
        self._model.clipped.clip = self._session.run.clip

    def check_between_batches(self, action: str) -> None:
        """Raise `TrainingMisuse` if a part of a logical batch has been summed up and not released."""
        self._session.check_between(action)

    def steps_on(self, loader: PrivateLoader) -> bool:
        """Whether `loader` came from the same call of make_private."""
        return loader.belongs_to(self._session)

    @property
    def batch_complete(self) -> bool:
        """Whether backward was called on the last physical batch, so that `step` will step."""
        return self._session.complete

    @property
    def expected_batch_size(self) -> float:
        """Divisor of the noisy sum."""
        return self._session.run.plan.expected_batch_size

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Parameter groups of the original optimizer."""
        return self.original.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """State of the original optimizer."""
        return self.original.state

    def state_dict(self) -> dict[str, Any]:
        """State of the original optimizer, for a checkpoint."""
        return self.original.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the original optimizer."""
        self.original.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Raise `TrainingMisuse`: the private model knows only the parameters of its beginning."""
        raise TrainingMisuse("optimizer must hold its parameters before make_private; got a group added after it.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the original optimizer."""
        self.original.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Add noise to the clipped sum of the logical batch, record the step, and let the original optimizer step.

        After a physical batch that is not the last of its logical batch, nothing happens.
        """
        check_mode(self._model)
        if closure is not None:
            raise check.fail("closure", "None", type(closure).__name__, "Call losses.backward() before step().")
        if self._session.dry_run is not None:
            self._session.dry_run.step(settings_of(self.original))
            return
        if self._session.complete:
            self._session.checks.before_step()
        released = self._session.release()
        if released is not None:
            self._model.clipped.clip = released.clip
            apply_release(self._model.clipped.trainable, self.original, released)
            self._session.checks.stepped()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Raise: `torch.amp.GradScaler` asks for this before it steps."""
        raise TrainingMisuse(
            "private steps must run without a GradScaler, which scales losses before they are clipped; got one. Use "
            "torch.autocast with bfloat16, which needs no scaling."
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private optimizer cannot be copied or pickled; save its state_dict() instead.")


def _run_eagerly(function: Any) -> None:
    """Let `torch.compile` leave `function`, and all that it calls, as it is; the compiler is not imported for that."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return
    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))


# Rows and outputs that remember what is done to them cannot be compiled; compile the model before make_private.
_run_eagerly(PrivateModel.forward)


def _backward_past_model(loss: PrivateOutputs) -> None:
    loss.as_subclass(Tensor).backward()


_EVALUATION = "model must be in train mode for backward; got eval mode. Call private.model.train() first."


def _as_inputs(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Inputs:
    """Arguments of the model as a tuple of tensors, or as a dict if any was given by its name."""
    if named:
        bound = inspect.signature(module.forward).bind(*inputs, **named)
        named = {name: value for name, value in bound.arguments.items() if value is not None}
    for name, value in named.items() if named else enumerate(inputs):
        if not isinstance(value, Tensor) or not value.dim():
            rule = "a tensor whose first axis is the batch"
            hint = "Set options on the module before make_private."
            raise check.fail(f"argument {name!r} of the model", rule, type(value).__name__, hint)
    return named or inputs
