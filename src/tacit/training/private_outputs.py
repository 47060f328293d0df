"""What a private model is given and returns: arguments with rows, and `PrivateOutputs`, whose `backward()` clips.

`GradScaler` scales losses of a private model for autocast to float16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from tacit import check
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.gradients.inputs import Arguments, Inputs, SharedTensor
from tacit.gradients.module_state import Path, leaves, named, with_leaves
from tacit.gradients.outputs import MixedValue, RowShape, parts_of
from tacit.training.trace import Trace, TracedTensor, follows_rows, plain, traced_call
from tacit.verification.calls import flat

_OPTIONS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, Enum, SharedTensor)


def model_inputs(positional: tuple[Any, ...], named_arguments: dict[str, Any]) -> Inputs:
    """Arguments of one call as the engine takes them: tensors alone, or tensors beside public options.

    Raises:
        InvalidInput: an argument is neither a tensor with rows nor a plain value, or there is no tensor.
    """
    given = {name: value for name, value in named_arguments.items() if value is not None}
    rows = 0
    for path, leaf in leaves((positional, given)):
        if isinstance(leaf, Tensor) and leaf.dim():
            rows += 1
        elif isinstance(leaf, Tensor) or not isinstance(leaf, _OPTIONS):
            raise _no_rows(path, leaf)
    if not rows:
        raise _no_rows((0, 0), positional[0] if positional else None)
    if not given and all(isinstance(value, Tensor) for value in positional):
        return positional
    if not positional and all(isinstance(value, Tensor) for value in given.values()):
        return given
    return Arguments.of(positional, given)


def _name(path: Path) -> str | int:
    """Of an argument: its position or name, and the way into it."""
    return path[1] if len(path) == 2 else named(path[1:]).lstrip(".")


def _no_rows(path: tuple[str | int, ...], leaf: Any) -> Exception:
    rule = "a tensor whose first axis is the batch, or a plain value"
    return check.fail(f"argument {_name(path)!r} of the model", rule, type(leaf).__name__, "Set options on the module.")


class PublicOptions:
    """Options of the model's calls: whatever follows a batch, such as its length, would differ between two.

    Example:
        >>> options = PublicOptions()
        >>> options.check(Arguments.of((torch.ones(2, 1),), {"training": True}))
    """

    def __init__(self) -> None:
        self._first: dict[str, object] = {}
        self._shared: dict[Path, SharedTensor] = {}

    def marked(self, call: Any, size: int) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
        """The arguments of a call, with what was kept at the first one for each tensor without a row for each record.

        A square one has none, as a mask may be as long as a batch by chance; nor has one that had none before.

        Args:
            call: positional and named arguments.
            size: number of records.

        Returns:
            The arguments; each tensor that all records share, and what was kept of it.

        Raises:
            TrainingMisuse: one has another value than in an earlier call, or its records along another axis.
        """
        tensors = [value for _, value in leaves(call) if isinstance(value, Tensor)]
        found: list[tuple[Tensor, Tensor]] = []
        if not any(value.dim() and len(value) == size for value in tensors):
            return call, found

        def mark(path: Path, value: Any) -> Any:
            if not isinstance(value, Tensor) or value.requires_grad:
                return value
            if isinstance(value, TracedTensor) and follows_rows(value):
                return value
            square = value.dim() == 2 and value.shape[0] == value.shape[1] and value.stride(0) > 0
            if path not in self._shared and value.dim() and len(value) == size and not square:
                return value
            name = _name(path)
            if isinstance(value, TracedTensor) and not square and size in value.shape[1:] and path not in self._shared:
                raise TrainingMisuse(
                    f"argument {name!r} of the model must have its records along the first axis; got them along "
                    "another. Make it inside of the model, or transpose it there."
                )
            now = SharedTensor(plain(value))
            kept = self._shared.setdefault(path, SharedTensor(now.value.clone()))
            if kept != now:
                raise _changed(name)
            found.append((value, kept.value))
            return kept

        return with_leaves(call, mark), found

    def check(self, given: Inputs) -> None:
        """Raise `TrainingMisuse` if an option has another value than in an earlier call."""
        for name, value in given.options if isinstance(given, Arguments) else ():
            first = self._first.setdefault(name, value)
            if type(first) is not type(value) or first != value:
                raise _changed(name)


def _changed(name: str | int) -> TrainingMisuse:
    return TrainingMisuse(
        f"argument {name!r} of the model must stay the same in every call; got another value. A number "
        "that follows the batch would be private: pass a tensor with one row for each record."
    )


Backward = Callable[["PrivateOutputs"], None]


class PrivateOutputs(TracedTensor):
    """Outputs of a private model, or a value computed from them; the trace of the batch records every operation.

    Attributes:
        root: the outputs that a gradient flows from: a leaf that requires one, or outputs without one.
        backpropagate: called with a loss.
        loss_scale: what a `GradScaler` has multiplied this loss by.
    """

    root: Tensor
    backpropagate: Backward
    loss_scale: float = 1.0

    @classmethod
    def of(cls, root: Tensor, trace: Trace, backpropagate: Backward) -> PrivateOutputs:
        """`root`, of shape (batch, ...), as a value on the trace of its batch; `backpropagate` gets a loss of it."""
        outputs = trace.root(root.view_as(root), cls)
        trace.outputs[outputs.ref.node] = root
        assert isinstance(outputs, PrivateOutputs)
        outputs.root, outputs.backpropagate = root, backpropagate
        return outputs

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        origin = _origin([value for value in flat((args, named)) if isinstance(value, PrivateOutputs)])
        if origin is None:
            return traced_call(func, args, named, TracedTensor)
        result = traced_call(func, args, named, PrivateOutputs)
        for value in flat(result):
            if isinstance(value, PrivateOutputs):
                value.root, value.backpropagate = origin.root, origin.backpropagate
        return result

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Pass the loss to the private model; of the arguments of `Tensor.backward` only `retain_graph` is accepted.

        Args:
            gradient: None.
            retain_graph: without effect.
            create_graph: False.
            inputs: None.

        Raises:
            TypeError: `gradient`, `create_graph` or `inputs` is given.
            TrainingMisuse: a loss was scaled, and this is another value.
        """
        if gradient is not None or create_graph or inputs is not None:
            raise TypeError(
                "backward of a private loss takes no gradient, create_graph or inputs. "
                "For weights call (losses * weights).backward() on one loss per example."
            )
        if self.loss_scale != self.trace.loss_scale:
            raise TrainingMisuse(
                "backward must be called on what scaler.scale(losses) returned; got another value. Scale last."
            )
        self.backpropagate(self)


def _origin(values: list[PrivateOutputs]) -> PrivateOutputs | None:
    """The value whose outputs go on: those that a gradient flows from, if there are any."""
    made = [value for value in values if hasattr(value, "root")]
    return next((value for value in made if value.root.requires_grad), made[0] if made else None)


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


class GradScaler:
    """Loss scaling with the calls of `torch.amp.GradScaler`, for private training under autocast to float16.

    Gradients pass back through the model `init_scale` times as large, so that small ones stay above the least number of
    float16. They are divided by it in float32 before they are clipped: the clipping norm, the noise and the guarantee
    are those of a run without scaling. A record whose scaled gradient exceeds the range of float16 inside of the model
    is computed again alone; one that exceeds it at the outputs of the model contributes nothing.

    The scale is constant. `torch.amp.GradScaler` halves its own when a gradient overflows and skips the step, and both
    would tell of the records of the batch.

    Args:
        device: as of `torch.amp.GradScaler`; unused, as the scale is a number.
        init_scale: the scale, a power of two in [1, 65536], so that scaling rounds nothing.
        enabled: False for a scale of 1.

    Raises:
        InvalidInput: `init_scale` is no such number.

    Examples:
        >>> import torch, tacit
        >>> from torch import nn
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 5), torch.randint(2, (40,)))
        >>> model = nn.Linear(5, 2)
        >>> private = tacit.make_private(
        ...     model,
        ...     torch.optim.SGD(model.parameters(), lr=0.1),
        ...     torch.utils.data.DataLoader(data, batch_size=8),
        ...     clip_norm=1.0,
        ...     noise_multiplier=1.0,
        ...     epochs=1,
        ... )
        >>> scaler = tacit.training.GradScaler()
        >>> for x, y in private.loader:
        ...     with torch.autocast("cpu", dtype=torch.float16):
        ...         losses = nn.functional.cross_entropy(private.model(x), y, reduction="none")
        ...     scaler.scale(losses).backward()
        ...     scaler.step(private.optimizer)
        ...     scaler.update()
    """

    def __init__(self, device: str = "cuda", init_scale: float = 1024.0, *, enabled: bool = True):
        if not (1 <= init_scale <= 65536 and math.frexp(init_scale)[0] == 0.5):
            raise InvalidInput(f"init_scale must be a power of two in [1, 65536]; got {init_scale}.")
        self._scale = float(init_scale) if enabled else 1.0
        self._enabled = enabled

    def scale(self, outputs: Tensor) -> Tensor:
        """The loss times the scale; `backward` must be called on what this returns.

        Args:
            outputs: a loss of the outputs of a private model.

        Raises:
            TrainingMisuse: the loss comes from no private model, or was scaled before.
        """
        if not isinstance(outputs, PrivateOutputs):
            raise TrainingMisuse(
                "scale must be given a loss of the outputs of private.model in train mode; got another value. Use "
                "torch.amp.GradScaler for a model that is not private."
            )
        if outputs.trace.loss_scale != 1:
            raise TrainingMisuse("scale must be called once for each batch; got a second call.")
        scaled = outputs * self._scale
        assert isinstance(scaled, PrivateOutputs)
        scaled.trace.loss_scale = scaled.loss_scale = self._scale
        return scaled

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: gradients of a private step are unscaled before they are clipped."""

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **named: Any) -> Any:
        """`optimizer.step(*args, **named)`; no step is skipped."""
        return optimizer.step(*args, **named)

    def update(self, new_scale: float | None = None) -> None:
        """Do nothing, as the scale is constant; raise `InvalidInput` for another scale."""
        if new_scale is not None and new_scale != self._scale:
            raise InvalidInput("new_scale must be left out: the scale of private gradients is constant; got one.")

    def get_scale(self) -> float:
        """The scale."""
        return self._scale

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, float]:
        """State for a checkpoint: the scale."""
        return {"scale": self._scale}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Load the scale of a checkpoint; raises `InvalidInput` where it is another."""
        self.update(state_dict["scale"])
