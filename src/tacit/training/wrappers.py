"""`PrivateModel` and `PrivateOptimizer`: an ordinary training loop over them is a private run."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.gradients import first_batch_check
from tacit.gradients.deferred import DeferredSum, Recording
from tacit.gradients.inputs import PhysicalBatch, tensors
from tacit.gradients.module_state import leaves, with_leaves
from tacit.training.batch_session import DRAWS, BatchSession
from tacit.training.batch_types import cotangents
from tacit.training.private_outputs import PrivateOutputs, PublicOptions, model_inputs, private_values, values_on_trace
from tacit.training.private_step import apply_release, check_mode
from tacit.training.replayed_passes import LoopEngine
from tacit.training.sharded import local
from tacit.training.trace import TracedTensor, plain, untraced


class Withheld(Tensor):
    """Zeros where a gradient would stand before its release: clipping them by value says what to do instead."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "clamp" in getattr(func, "__name__", ""):
            raise TrainingMisuse(
                "gradients must be clipped record by record, which clip_norm does; got clip_grad_value_ after a "
                "private backward, when no gradient is released. Leave it out."
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class PrivateModel(nn.Module):
    """Model whose training-mode outputs carry private gradients; in evaluation mode it equals `module`.

    State dictionaries are those of `module`, a copy is a copy of `module` alone, and other attributes are those of
    `module`.

    Attributes:
        session: shared with the private optimizer and loader.
    """

    def __init__(self, module: nn.Module, session: BatchSession):
        super().__init__()
        self.module = module
        self.session = session
        self._options = PublicOptions()
        expected = session.run.plan.expected_batch_size
        self.clipped = DeferredSum(module, session.run.clip, expected_batch_size=expected)
        session.run.cover_rounding(self.clipped.slack)
        self._engine = LoopEngine(session.run)
        self._checked = False

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the module returns; in train mode `backward` on a loss of its outputs clips.

        Tensors, one row for each record, may stand in mappings, sequences and dataclasses, among arguments and among
        outputs. Numbers, texts, None, and tensors without a row for each record, such as a causal mask, are public
        options, the same in every batch. An output without a row for each record, such as a mean loss, is replaced by
        one that refuses every use.

        Raises:
            TrainingMisuse: the model is given another batch, or an option changes.
            InvalidInput: an argument is no tensor with rows, nor a plain value.
        """
        with DRAWS.apart(), self.session.checks.calls.paused():
            return self._called(inputs, named)

    def _called(self, inputs: Any, named: Any) -> Any:
        session, values = self.session, [value for _, value in leaves((inputs, named))]
        call = inputs, named
        inputs, named = with_leaves(call, lambda _, value: plain(value))
        if not self.training or not torch.is_grad_enabled():
            session.checks.evaluated((inputs, named), any(isinstance(each, TracedTensor) for each in values))
            return self._without_gradient(values, self._evaluated(inputs, named))
        shared: list[tuple[Tensor, Tensor]] = []
        if (batch := session.pending) is not None:
            call, shared = self._options.marked(call, batch.size)
            values = [value for _, value in leaves(call)]
        given = model_inputs(*with_leaves(call, lambda _, value: plain(value)))
        self._options.check(given)
        self._gather()
        session.check_size([len(value) for value in tensors(given)])
        assert session.trace is not None
        session.checks.check_inputs([value for value in values if isinstance(value, Tensor)], session.trace)
        for value, kept in shared:
            session.checks.check_shared(value, kept, session.trace)
        self._follow_frozen()
        self._gather()
        steady = session.checks.before_forward(given)
        drawn = None if session.unit_ids is not None else session.drawn
        recording = self._engine.record(self.clipped, given, drawn, steady=steady)
        root = recording.outputs.requires_grad_()
        autocast = torch.is_autocast_enabled(root.device.type)
        outputs = PrivateOutputs.of(root, session.trace, partial(self._summed, recording, autocast))
        return private_values(outputs, recording.structure, self.module)

    def _gather(self) -> None:
        """Where parameters are sharded, gather them unless they are there; every rank runs the model as often."""
        if self.session.run.whole is not None:
            self.session.run.whole.gather()

    def _evaluated(self, inputs: Any, named: Any) -> Any:
        """Outputs of the module; gathered parameters stay until the step is taken, or where a graph needs them."""
        whole = self.session.run.whole
        self._gather()
        outputs = self.module(*inputs, **named)
        if whole is not None and not torch.is_grad_enabled() and not self.session.summed:
            whole.free()
        return outputs

    def _without_gradient(self, values: list[Any], outputs: Any) -> Any:
        """Outputs without private gradients; those of the pending batch stay on its trace, as they may enter a loss."""
        batch, trace = self.session.pending, self.session.trace
        if batch is None or trace is None:
            return outputs
        if not any(isinstance(value, TracedTensor) and value.trace is trace for value in values):
            return outputs
        self.session.checks.check_inputs([value for value in values if isinstance(value, Tensor)], trace)

        def on_trace(rows: Tensor) -> Tensor:
            if rows.requires_grad:
                trace.refusal = _EVALUATION
                return trace.root(rows)
            return PrivateOutputs.of(rows, trace, lambda loss: untraced(loss).backward())

        return values_on_trace(outputs, batch.size, on_trace, self.module)

    def _follow_frozen(self) -> None:
        """Leave out parameters that were frozen since; their gradients are neither clipped nor released."""
        checks = self.session.checks
        if checks.guard.frozen():
            self.session.check_between("parameters must be frozen")
            checks.guard.check_weights()
            probe = self.clipped.probe
            expected = self.session.run.plan.expected_batch_size
            self.clipped = DeferredSum(self.module, self.clipped.clip, expected_batch_size=expected)
            self.clipped.probe = probe
            checks.model = self.clipped
            checks.guard.released()

    def _summed(self, recording: Recording, autocast: bool, outputs: PrivateOutputs) -> None:
        session = self.session
        with session.checks.calls.paused():
            DRAWS.begin(None)
            session.check_first()
            check_mode(self)
            if recording.replayed is None:
                session.checks.after_forward(recording.inputs)
            loss, reduction = untraced(outputs), session.reduction
            found = cotangents(outputs, reduction)
            session.checks.check_loss(outputs, found, "none" if loss.dim() else reduction)
            if outputs.loss_scale != 1:
                found = found.float() / outputs.loss_scale
            if len(found) and not self._checked:
                first_batch_check(self.clipped, recording.form.inner_product, recording.inputs, found)
                self._checked = True
            units, factor = session.unit_ids, outputs.loss_scale
            total, norms = self.clipped.release(recording, found, units, drawn=session.drawn, loss_scale=factor)
            monitor = session.run.monitor
            monitor.follows(self.clipped.clip, session.run.clip)
            if monitor.due and not autocast:
                batch = PhysicalBatch(recording.form.inner_product, recording.inputs, found)
                monitor.compare_sum(self.clipped, batch, total, session.run.clip)
            session.record(total, norms)
            if session.run.whole is None:
                smallest = min(self.clipped.trainable.values(), key=Tensor.numel)
                smallest.grad = torch.zeros_like(smallest).as_subclass(Withheld)

    @property
    def _module(self) -> nn.Module:
        """The module under the name that loops of Opacus use."""
        return self.module

    def stay_eager(self) -> None:
        """Replay no passes in this run."""
        self._engine.stay_eager()

    @property
    def _stored(self) -> nn.Module:
        """The module whose parameters last: that with shards, where there is one."""
        return self.module if self.session.run.whole is None else self.session.run.whole.sharded

    def state_dict(self, *args: Any, **named: Any) -> Any:
        """State of the module; sharded where its parameters are."""
        return self._stored.state_dict(*args, **named)

    def load_state_dict(self, *args: Any, **named: Any) -> Any:
        """Load the state of the module: for evaluation, or inside `private.postprocessing`.

        Raises:
            TrainingMisuse: other weights are loaded in train mode, which no release made.
        """
        if args and isinstance(args[0], Mapping):
            self.session.checks.check_loaded(_held(self.state_dict()), _held(args[0]), self.training)
        loaded = self._stored.load_state_dict(*args, **named)
        if self.session.run.whole is not None:
            self.session.run.whole.free()
        return loaded

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
        self.session = session

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "_model", "session"):
            raise AttributeError(name)
        return getattr(self.original, name)

    @property
    def noise_multiplier(self) -> float:
        """Noise std / clip_norm of the next steps; each step is recorded with the noise that it had."""
        return self.session.run.plan.noise_at(self.session.run.taken)

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self._assign("noise_multiplier", value)

    @property
    def max_grad_norm(self) -> float:
        """Bound on the L2 norm of one record's gradient in the next batches; the noise scales with it."""
        return self.session.run.clip.sensitivity

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        self._assign("max_grad_norm", value)

    def schedule(self, name: str, value: float) -> None:
        """Set a setting for the next steps to a value that follows from the epoch alone.

        Args:
            name: "noise_multiplier" or "max_grad_norm".
            value: > 0.

        Raises:
            TrainingMisuse: the setting must stay as it is here.
        """
        check.choice("name", name, ("noise_multiplier", "max_grad_norm"))
        if name == "max_grad_norm":
            self.session.check_between("max_grad_norm must change")
        self.session.checks.check_settings(name)
        if name == "noise_multiplier":
            self.session.run.change_noise(value)
            return
        self.session.run.change_clip(value)
        self._model.clipped.clip = self.session.run.clip

    def _assign(self, name: str, value: float) -> None:
        """Take a setting from user code, and note it in mid-run: nobody knows what it was computed from."""
        if self.session.run.taken and value != getattr(self, name):
            says = (
                f"{name} was assigned in mid-run, and may follow from the records: use a schedule of the epoch "
                '(tacit.opacus), or private.declare("settings", "why it is public")'
            )
            self.session.checks.facts.missing("settings", says)
        self.schedule(name, value)

    @property
    def batch_complete(self) -> bool:
        """Whether backward was called on the last physical batch, so that `step` will step."""
        return self.session.complete

    @property
    def expected_batch_size(self) -> float:
        """Divisor of the noisy sum; that of the plan throughout the run."""
        return self.session.run.plan.expected_batch_size

    @expected_batch_size.setter
    def expected_batch_size(self, value: float) -> NoReturn:
        raise TrainingMisuse(
            f"expected_batch_size must stay {self.expected_batch_size:g}, which the run was planned with; got "
            f"{value!r}. Give batch_size, or sample_rate and expected_batch_size, to make_private."
        )

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Parameter groups of the original optimizer; assigned ones would reach nobody."""
        return self.original.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """State of the original optimizer; an assigned one would reach nobody."""
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

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Add noise to the clipped sum of the logical batch, record the step, and let the original optimizer step.

        After a physical batch that is not the last of its logical batch, nothing happens.

        Args:
            closure: runs the model on the batch in hand and calls `backward` once; called once, before the release.

        Returns:
            What `closure` returns, a value of private records like the loss; None without one.

        Raises:
            TrainingMisuse: the loop is not that of a private step; the closure returns a value for each record.
        """
        check_mode(self._model)
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
            if isinstance(value, Tensor) and value.dim():
                raise TrainingMisuse(
                    "closure must return one number or nothing, as torch.optim asks; got a value for each record. "
                    "Return losses.mean()."
                )
        with self.session.checks.calls.paused():
            self._released()
        return value

    def _released(self) -> None:
        if self.session.complete:
            self.session.checks.before_step(self.session.drawn or 0)
        released = self.session.release()
        if released is not None:
            self._model.clipped.clip = released.clip
            run = self.session.run
            apply_release(run.stepped_on(self._model.clipped.trainable), self.original, released)
            if run.whole is not None:
                run.whole.free()
            self.session.checks.stepped()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Raise: `torch.amp.GradScaler` asks for this before it steps."""
        raise TrainingMisuse(
            "private steps must run without torch.amp.GradScaler, whose scale follows the gradients of the records; "
            "got one. Use tacit.training.GradScaler, which has the same calls and a constant scale."
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private optimizer cannot be copied or pickled; save its state_dict() instead.")


def _held(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state dictionary with this rank's parts of sharded tensors."""
    return {name: local(value) if isinstance(value, Tensor) else value for name, value in state.items()}


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


_EVALUATION = "model must be in train mode for backward; got eval mode. Call private.model.train() first."
