"""Noise schedules: noise multipliers that change from step to step, as named shapes or any list."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tacit import check


class NoiseSchedule(ABC):
    """Noise multiplier of every step of a run: a function of the step number alone, never of the data.

    Example:
        >>> class Alternating(NoiseSchedule):
        ...     def at(self, step, steps): return 1.0 + step % 2
        >>> Alternating().multipliers(4)
        (1.0, 2.0, 1.0, 2.0)
    """

    @abstractmethod
    def at(self, step: int, steps: int) -> float:
        """Noise multiplier of step 0, 1, ..., steps - 1."""

    def multipliers(self, steps: int) -> tuple[float, ...]:
        """One noise multiplier for each of `steps` steps."""
        return tuple(self.at(step, steps) for step in range(steps))


Noise = float | Sequence[float] | NoiseSchedule


@dataclass(frozen=True)
class _BetweenEnds(NoiseSchedule):
    """Base of the schedules that go from `start` in the first step to `end` in the last."""

    start: float
    end: float

    def __post_init__(self) -> None:
        check.positive("start", self.start)
        check.positive("end", self.end)

    def at(self, step: int, steps: int) -> float:
        """Noise multiplier of step 0, 1, ..., steps - 1."""
        return self._at(step / max(1, steps - 1))

    @abstractmethod
    def _at(self, progress: float) -> float:
        """Noise multiplier after the share `progress` of the run, in [0, 1]."""


@dataclass(frozen=True)
class LinearNoise(_BetweenEnds):
    """Linear schedule:  start + (end - start) * step / (steps - 1).

    Attributes:
        start: noise multiplier of the first step, > 0.
        end: noise multiplier of the last step, > 0.

    Example:
        >>> LinearNoise(3.0, 1.0).multipliers(3)
        (3.0, 2.0, 1.0)
    """

    def _at(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


@dataclass(frozen=True)
class ExponentialNoise(_BetweenEnds):
    """Geometric schedule:  start * (end / start)^(step / (steps - 1)).

    Attributes:
        start: noise multiplier of the first step, > 0.
        end: noise multiplier of the last step, > 0.

    Example:
        >>> ExponentialNoise(4.0, 1.0).multipliers(3)
        (4.0, 2.0, 1.0)
    """

    def _at(self, progress: float) -> float:
        return self.start * (self.end / self.start) ** progress


@dataclass(frozen=True)
class CosineNoise(_BetweenEnds):
    """Cosine schedule:  end + (start - end) * (1 + cos(pi * step / (steps - 1))) / 2.

    Attributes:
        start: noise multiplier of the first step, > 0.
        end: noise multiplier of the last step, > 0.

    Example:
        >>> CosineNoise(3.0, 1.0).multipliers(3)
        (3.0, 2.0, 1.0)
    """

    def _at(self, progress: float) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class StepNoise(NoiseSchedule):
    """Step schedule:  start * factor^floor(step / every).

    Attributes:
        start: noise multiplier of the first step, > 0.
        factor: what it is multiplied by after every `every` steps, > 0.
        every: number of steps with equal noise, >= 1.

    Example:
        >>> StepNoise(4.0, factor=0.5, every=2).multipliers(4)
        (4.0, 4.0, 2.0, 2.0)
    """

    start: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        check.positive("start", self.start)
        check.positive("factor", self.factor)
        check.count("every", self.every)

    def at(self, step: int, steps: int) -> float:
        """Noise multiplier of step 0, 1, ..., steps - 1."""
        return self.start * self.factor ** (step // self.every)


def resolve_noise(noise_multiplier: Noise, steps: int) -> float | tuple[float, ...]:
    """One noise multiplier for all steps, or a tuple of one for each; raises `InvalidInput` for another length."""
    if isinstance(noise_multiplier, NoiseSchedule):
        noise_multiplier = noise_multiplier.multipliers(steps)
    if not isinstance(noise_multiplier, Sequence):
        return noise_multiplier
    if isinstance(noise_multiplier, str):
        raise check.fail("noise_multiplier", "a number, a list of numbers or a NoiseSchedule", noise_multiplier)
    if len(noise_multiplier) != steps:
        rule = f"one number or a list of {steps} (one for each step)"
        raise check.fail("noise_multiplier", rule, f"{len(noise_multiplier)} values")
    values = tuple(noise_multiplier)
    return values[0] if len(set(values)) == 1 else values
