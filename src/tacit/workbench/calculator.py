"""The calculator: noise, rate, epochs, epsilon, delta and sampler of DP-SGD; one of them follows from the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.calibration import largest_steps, smallest
from tacit.mechanisms import Gaussian, Mechanism, Shuffled
from tacit.tradeoff import Epsilon
from tacit.workbench.runs import ALPHA

SOLVED = ("epsilon", "noise_multiplier", "epochs")
"""What the calculator finds from the other settings."""
SAMPLERS = ("poisson", "shuffled")
_FALSE_ALARMS = 0.05
_LARGEST_STEPS = 1_000_000  # beyond it an answer takes longer than a person who moves a slider waits
_LEAST_NOISE, _LARGEST_NOISE = 0.1, 1000.0
_KEPT = 4096  # answers that stay in memory: what a person moves through in an hour


@dataclass(frozen=True)
class Settings:
    """What stays as it is while the calculator searches for noise or epochs.

    Attributes:
        sampler: one of `SAMPLERS`.
        records: n.
        batch: expected size of a batch.
        delta: of epsilon.
    """

    sampler: str
    records: int
    batch: int
    delta: float

    def run(self, noise: float, steps: int) -> Mechanism:
        """The mechanism of so many steps."""
        if self.sampler == "shuffled":
            return Shuffled(Gaussian(noise), self.records, self.batch) * steps
        return Gaussian(noise).poisson(self.batch / self.records) * steps

    def steps(self, epochs: float) -> int:
        """The whole steps of so many epochs."""
        return check.count("steps", max(1, round(epochs * self.records / self.batch)), maximum=_LARGEST_STEPS)


@dataclass(frozen=True)
class Answer:
    """All settings with the one that was solved for, and what they guarantee.

    Attributes:
        noise_multiplier: std / clipping norm.
        epochs: passes over the data in expectation.
        epsilon: by `pld`, an upper bound.
        detected: largest chance that a member is found at 5 % false alarms, by `rdp`.
        beta: certified type II errors at `ALPHA`, by `rdp`.
        steps: of training.
        sample_rate: of Poisson sampling, or the share of a shuffled batch.
    """

    noise_multiplier: float
    epochs: float
    epsilon: float
    detected: float
    beta: np.ndarray
    steps: int
    sample_rate: float


def calculate(given: Mapping[str, str]) -> Answer:
    """The answer for the fields of the form; raises `InvalidInput` for a field that breaks its rule."""
    records = check.count("records", _whole(given, "records", "10000"), maximum=1e12)
    batch = check.count("batch_size", _whole(given, "batch_size", "100"), maximum=records)
    delta = check.probability("delta", _real(given, "delta", "1e-5"), open_low=True, open_high=True)
    solved = check.choice("solve", given.get("solve", "epsilon"), SOLVED)
    sampler = check.choice("sampler", given.get("sampler", "poisson"), SAMPLERS)
    noise = check.positive("noise_multiplier", _real(given, "noise_multiplier", "1.1"))
    epochs = check.positive("epochs", _real(given, "epochs", "10"))
    check.real("noise_multiplier", noise, low=_LEAST_NOISE, high=_LARGEST_NOISE)
    fixed = Settings(sampler, records, batch, delta)
    if solved == "noise_multiplier":
        target = check.positive("epsilon", _real(given, "epsilon", "3"))
        noise = _smallest_noise(fixed, fixed.steps(epochs), target)
    elif solved == "epochs":
        target = check.positive("epsilon", _real(given, "epsilon", "3"))
        epochs = _most_steps(fixed, noise, target) * batch / records
    steps = fixed.steps(epochs)
    detected, beta = _curve(fixed, noise, steps)
    return Answer(
        noise_multiplier=noise,
        epochs=epochs,
        epsilon=_epsilon(fixed, noise, steps),
        detected=detected,
        beta=beta,
        steps=steps,
        sample_rate=batch / records,
    )


@lru_cache(_KEPT)
def _epsilon(fixed: Settings, noise: float, steps: int) -> float:
    return float(accountant("pld")(Ledger.of(fixed.run(noise, steps))).epsilon(fixed.delta))


@lru_cache(_KEPT)
def _curve(fixed: Settings, noise: float, steps: int) -> tuple[float, np.ndarray]:
    """The chance that a member is found at 5 % false alarms, and the type II errors at `ALPHA`."""
    bound = accountant("rdp")(Ledger.of(fixed.run(noise, steps)))
    return float(bound.tpr(_FALSE_ALARMS)), bound.curve.beta(ALPHA)


@lru_cache(_KEPT)
def _smallest_noise(fixed: Settings, steps: int, target: float) -> float:
    """The smallest noise that is enough, rounded up to four digits."""
    found = smallest("noise_multiplier", lambda noise: fixed.run(noise, steps), Epsilon(target, fixed.delta)).value
    if found > _LARGEST_NOISE:
        hint = "Ask for more epsilon."
        raise check.fail("epsilon", "reached by a noise multiplier of at most 1000", "less", hint)
    return max(math.ceil(found * 1e4) / 1e4, _LEAST_NOISE)


@lru_cache(_KEPT)
def _most_steps(fixed: Settings, noise: float, target: float) -> int:
    """The most steps that are allowed."""
    if _epsilon(fixed, noise, 1) > target:
        raise check.fail("epsilon", "enough for one step", "less", "Raise epsilon or the noise.")
    if _epsilon(fixed, noise, _LARGEST_STEPS) <= target:
        return _LARGEST_STEPS
    return int(largest_steps(Epsilon(target, fixed.delta), partial(fixed.run, noise)).value)


def _real(given: Mapping[str, str], name: str, default: str) -> float:
    return check.read_real(name, given.get(name, "").strip() or default)


def _whole(given: Mapping[str, str], name: str, default: str) -> int:
    value = _real(given, name, default)
    if value != value or math.isinf(value) or value != int(value):
        raise check.fail(name, "a whole number", value)
    return int(value)
