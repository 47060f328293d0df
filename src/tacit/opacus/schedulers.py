"""Schedulers of noise multiplier and clipping norm by epoch, called by the loop like learning-rate schedulers.

Each step is recorded with the noise that it had, so the accounting follows whatever a scheduler does. A scheduler may
look at the epoch only, never at the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from tacit import check
from tacit.training.wrappers import PrivateOptimizer


class Scheduler(ABC):
    """Base of schedulers that set one attribute of a private optimizer at every `step()`, called once an epoch.

    Attributes:
        last_epoch: number of calls so far.
        base: the attribute's value at first.
    """

    attribute: ClassVar[str]

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
        falls = self.last_epoch and self.last_epoch % self.step_size == 0
        return self._value * (self.gamma if falls else 1.0)


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

    attribute = "noise_multiplier"


class StepNoise(_Step):
    """Step decay:  noise_multiplier *= gamma, every `step_size` epochs."""

    attribute = "noise_multiplier"


class LambdaNoise(_Lambda):
    """Any function of the epoch:  noise_multiplier = its first value * noise_lambda(epoch)."""

    attribute = "noise_multiplier"

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
