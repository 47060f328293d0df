"""Noise multipliers that change from step to step: named shapes, or any list."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tacit import check


class NoiseSchedule(ABC):
    """The noise multiplier of every step of a run, a function of its number alone and never of the data."""

    @abstractmethod
    def at(self, step: int, steps: int) -> float:
        """Noise multiplier of step 0, 1, ..., steps - 1."""

    def multipliers(self, steps: int) -> tuple[float, ...]:
        """One noise multiplier for each of `steps` steps."""
        return tuple(self.at(step, steps) for step in range(steps))


Noise = float | Sequence[float] | NoiseSchedule


@dataclass(frozen=True)
class LinearNoise(NoiseSchedule):
    """From `start` in the first step to `end` in the last by equal differences."""

    start: float
    end: float

    def __post_init__(self) -> None:
        _check_ends(self.start, self.end)

    def at(self, step: int, steps: int) -> float:
        return self.start + (self.end - self.start) * _share(step, steps)


@dataclass(frozen=True)
class ExponentialNoise(NoiseSchedule):
    """From `start` in the first step to `end` in the last by equal ratios."""

    start: float
    end: float

    def __post_init__(self) -> None:
        _check_ends(self.start, self.end)

    def at(self, step: int, steps: int) -> float:
        return self.start * (self.end / self.start) ** _share(step, steps)


@dataclass(frozen=True)
class CosineNoise(NoiseSchedule):
    """From `start` in the first step to `end` in the last along half a cosine wave."""

    start: float
    end: float

    def __post_init__(self) -> None:
        _check_ends(self.start, self.end)

    def at(self, step: int, steps: int) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * _share(step, steps))) / 2


@dataclass(frozen=True)
class StepNoise(NoiseSchedule):
    """`start`, multiplied by `factor` after every `every` steps."""

    start: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        check.positive("start", self.start)
        check.positive("factor", self.factor)
        check.count("every", self.every)

    def at(self, step: int, steps: int) -> float:
        return self.start * self.factor ** (step // self.every)


def resolved(noise_multiplier: Noise, steps: int) -> float | tuple[float, ...]:
    """One noise multiplier for all steps, or a tuple of one for each; raises `InvalidInput` for another length."""
    if isinstance(noise_multiplier, NoiseSchedule):
        noise_multiplier = noise_multiplier.multipliers(steps)
    if not isinstance(noise_multiplier, Sequence):
        return noise_multiplier
    if isinstance(noise_multiplier, str):
        raise check.fail("noise_multiplier", "a number, a list of numbers or a NoiseSchedule", noise_multiplier)
    if len(noise_multiplier) != steps:
        raise check.fail(
            "noise_multiplier",
            f"one number or a list of {steps} (one for each step)",
            f"{len(noise_multiplier)} values",
        )
    values = tuple(noise_multiplier)
    return values[0] if len(set(values)) == 1 else values


def _share(step: int, steps: int) -> float:
    return step / max(1, steps - 1)


def _check_ends(start: float, end: float) -> None:
    check.positive("start", start)
    check.positive("end", end)
