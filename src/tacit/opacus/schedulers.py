"""Schedulers of noise multiplier and clipping norm by epoch, called by the loop like learning-rate schedulers.

Each step is recorded with the noise that it had, so the accounting follows whatever a scheduler does. A scheduler may
look at the epoch only, never at the data.

Checkpoints of `PrivacyEngine` in safetensors: reading the file runs no code.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.optim import Optimizer

from tacit import check, serialization
from tacit.errors import InvalidInput
from tacit.training.checkpoint import packed, read_safetensors, unpacked
from tacit.training.wrappers import PrivateOptimizer


class Scheduler(ABC):
    """Base of schedulers that set one attribute of a private optimizer at every `step()`, called once an epoch.

    Attributes:
        last_epoch: number of calls so far.
        base: the attribute's value at first.
    """

    attribute: ClassVar[str] = "noise_multiplier"

    def __init__(self, optimizer: PrivateOptimizer, *, last_epoch: int = -1):
        if not isinstance(optimizer, PrivateOptimizer):
            raise check.fail("optimizer", "the optimizer that make_private returned", type(optimizer).__name__)
        self.optimizer = optimizer
        self.last_epoch = last_epoch
        self.base = self._value
        self.step()

    @property
    def _value(self) -> float:
        return getattr(self.optimizer, self.attribute)

    @abstractmethod
    def _next(self) -> float:
        """The value for epoch `last_epoch`; at 0 the first of all."""

    def step(self) -> None:
        """Begin the next epoch."""
        self.last_epoch += 1
        self.optimizer.schedule(self.attribute, self._next())

    def state_dict(self) -> dict[str, Any]:
        """State for `load_state_dict`: where the scheduler is, and its settings, but not a function of the epoch."""
        return {"last_epoch": self.last_epoch, "base": self.base, "value": self._value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`, with the settings that it holds."""
        self.last_epoch, self.base = state_dict["last_epoch"], state_dict["base"]
        self.optimizer.schedule(self.attribute, state_dict["value"])


class _Step(Scheduler):
    def __init__(self, optimizer: PrivateOptimizer, *, step_size: int, gamma: float, last_epoch: int = -1):
        self._set(step_size, gamma)
        super().__init__(optimizer, last_epoch=last_epoch)

    def _set(self, step_size: int, gamma: float) -> None:
        self.step_size, self.gamma = check.count("step_size", step_size), check.positive("gamma", gamma)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"step_size": self.step_size, "gamma": self.gamma}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._set(state_dict["step_size"], state_dict["gamma"])
        super().load_state_dict(state_dict)

    def _next(self) -> float:
        return self._value * (self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else 1.0)


class _Exponential(_Step):
    def __init__(self, optimizer: PrivateOptimizer, *, gamma: float, last_epoch: int = -1):
        super().__init__(optimizer, step_size=1, gamma=gamma, last_epoch=last_epoch)


class _Lambda(Scheduler):
    def __init__(self, optimizer: PrivateOptimizer, factor: Callable[[int], float], last_epoch: int):
        self._factor = factor
        super().__init__(optimizer, last_epoch=last_epoch)

    def _next(self) -> float:
        return self.base * self._factor(self.last_epoch)


class ExponentialNoise(_Exponential):
    """Exponential decay:  noise_multiplier *= gamma, every epoch."""


class StepNoise(_Step):
    """Step decay:  noise_multiplier *= gamma, every `step_size` epochs."""


class LambdaNoise(_Lambda):
    """Any function of the epoch:  noise_multiplier = its first value * noise_lambda(epoch)."""

    def __init__(self, optimizer: PrivateOptimizer, *, noise_lambda: Callable[[int], float], last_epoch: int = -1):
        super().__init__(optimizer, noise_lambda, last_epoch)


class ExponentialGradClip(_Exponential):
    """Exponential decay:  max_grad_norm *= gamma, every epoch."""

    attribute = "max_grad_norm"


class StepGradClip(_Step):
    """Step decay:  max_grad_norm *= gamma, every `step_size` epochs."""

    attribute = "max_grad_norm"


class LambdaGradClip(_Lambda):
    """Any function of the epoch:  max_grad_norm = its first value * scheduler_function(epoch)."""

    attribute = "max_grad_norm"

    def __init__(
        self, optimizer: PrivateOptimizer, *, scheduler_function: Callable[[int], float], last_epoch: int = -1
    ):
        super().__init__(optimizer, scheduler_function, last_epoch)


# Header entry that tells these files from model files and from the checkpoints of `fit`.
_KIND = "tacit.opacus checkpoint"

Target = str | Path | IO[bytes]
"""A path, or a binary file that is open, such as `io.BytesIO`."""


def write(path: Target, state: Mapping[str, Any]) -> None:
    """Write `state`, plain values and tensors by name; an interruption leaves the previous file at a path as it was."""
    tensors: dict[str, Tensor] = {}
    form = packed(dict(state), tensors, "state")
    content = save(tensors, {"kind": _KIND, "state": json.dumps(form)})
    if isinstance(path, str | Path):
        serialization.write_bytes(path, content)
    else:
        path.write(content)


def read(path: Target) -> dict[str, Any]:
    """The state that `write` wrote; raises `InvalidInput` for a file that is missing, truncated or of another kind."""
    if isinstance(path, str | Path):
        header, tensors = read_safetensors("path", path, "checkpoint")
    else:
        header, tensors = _parsed(path.read())
    if header.get("kind") != _KIND:
        hint = "Checkpoints of Opacus hold pickled code and are not read; save with this engine."
        raise check.fail("path", "a checkpoint that save_checkpoint wrote", str(path), hint)
    return unpacked(json.loads(header["state"]), tensors)


def _parsed(content: bytes) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Header and tensors of the bytes of a safetensors file: the length of the header, the header, the tensors."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise InvalidInput(f"path must be a complete safetensors file; got {len(content)} bytes. {error}") from None
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {}), tensors


def named_parts(
    optimizer: Optimizer | None, noise_scheduler: Scheduler | None, grad_clip_scheduler: Scheduler | None
) -> dict[str, Any]:
    """The parts that are given, under the names that they have in a checkpoint."""
    parts = {
        "optimizer_state_dict": optimizer,
        "noise_scheduler_state_dict": noise_scheduler,
        "grad_clip_scheduler_state_dict": grad_clip_scheduler,
    }
    return {name: part for name, part in parts.items() if part is not None}
