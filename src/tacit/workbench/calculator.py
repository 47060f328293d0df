"""The calculator: noise, rate, epochs, epsilon, delta and sampler of DP-SGD; one of them follows from the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian, Mechanism, Shuffled
from tacit.workbench.runs import ALPHA

SOLVED = ("epsilon", "noise_multiplier", "epochs")
"""What the calculator finds from the other settings."""
SAMPLERS = ("poisson", "shuffled")
_FALSE_ALARMS = 0.05
_LARGEST_STEPS = 1_000_000  # beyond it an answer takes longer than a person who moves a slider waits
_ROUNDS = 30  # halvings of a bracket: nine digits


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
    check.real("noise_multiplier", noise, low=0.1, high=1000.0)

    def steps_of(passes: float) -> int:
        return check.count("steps", max(1, round(passes * records / batch)), maximum=_LARGEST_STEPS)

    def run(sigma: float, steps: int) -> Mechanism:
        one = (
            Shuffled(Gaussian(sigma), records, batch)
            if sampler == "shuffled"
            else Gaussian(sigma).poisson(batch / records)
        )
        return one * steps

    def epsilon_of(sigma: float, steps: int, by: str) -> float:
        return float(accountant(by)(Ledger.of(run(sigma, steps))).epsilon(delta))

    if solved == "noise_multiplier":
        target = check.positive("epsilon", _real(given, "epsilon", "3"))
        noise = _smallest(lambda sigma, by: epsilon_of(sigma, steps_of(epochs), by) <= target, 0.1, 1000.0)
    elif solved == "epochs":
        target = check.positive("epsilon", _real(given, "epsilon", "3"))
        epochs = _most_epochs(lambda passes, by: epsilon_of(noise, steps_of(passes), by) <= target, batch, records)
    steps = steps_of(epochs)
    bound = accountant("rdp")(Ledger.of(run(noise, steps)))
    beta = bound.curve.beta(ALPHA)
    return Answer(
        noise_multiplier=noise,
        epochs=epochs,
        epsilon=epsilon_of(noise, steps, "pld"),
        detected=float(bound.tpr(_FALSE_ALARMS)),
        beta=beta,
        steps=steps,
        sample_rate=batch / records,
    )


def _smallest(enough: Callable[[float, str], bool], low: float, high: float) -> float:
    """The smallest noise that is enough: near that of the central limit theorem, then made safe by `pld`."""
    if not enough(high, "pld"):
        raise check.fail("epsilon", "reached by a noise multiplier of at most 1000", "less", "Ask for more epsilon.")
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle, "clt") else (middle, high)
    step, found = 1.005, high
    while not enough(found, "pld"):
        found, step = found * step, step**1.6
    return math.ceil(found * 1e4) / 1e4


def _most_epochs(allowed: Callable[[float, str], bool], batch: int, records: int) -> float:
    """The most epochs that are allowed, in whole steps: near those of the central limit theorem, then safe by `pld`."""
    low, high = 1, min(_LARGEST_STEPS, 10**6)
    if not allowed(batch / records, "pld"):
        raise check.fail("epsilon", "enough for one step", "less", "Raise epsilon or the noise.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle * batch / records, "clt") else (low, middle)
    steps = low
    shrink = 0.99
    while steps > 1 and not allowed(steps * batch / records, "pld"):
        steps, shrink = max(1, int(steps * shrink)), shrink**1.6
    return steps * batch / records


def _real(given: Mapping[str, str], name: str, default: str) -> float:
    text = given.get(name, "").strip() or default
    try:
        return float(text)
    except ValueError:
        raise check.fail(name, "a number", text[:20]) from None


def _whole(given: Mapping[str, str], name: str, default: str) -> int:
    value = _real(given, name, default)
    if value != value or math.isinf(value) or value != int(value):
        raise check.fail(name, "a whole number", value)
    return int(value)
