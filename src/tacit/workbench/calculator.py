"""The calculator: noise, rate, epochs, epsilon, delta and sampler of DP-SGD; one of them follows from the others."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.calibration import largest_steps, smallest
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Mechanism, Shuffled
from tacit.tradeoff import Epsilon
from tacit.workbench.runs import ALPHA

SOLVED = ("epsilon", "noise_multiplier", "epochs")
"""What the calculator finds from the other settings."""
SAMPLERS = ("poisson", "shuffled")
FIELDS = {
    "records": ("Records in the data", "10000"),
    "batch_size": ("Expected batch size", "100"),
    "noise_multiplier": ("Noise multiplier (std / clipping norm)", "1.1"),
    "epochs": ("Epochs", "10"),
    "epsilon": ("Epsilon", "3"),
    "delta": ("Delta", "1e-5"),
}
"""Fields of the form: label, and what stands there at first."""
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
    """All settings with the one that was solved for, and the exact accountant's epsilon.

    Attributes:
        fixed: settings that stayed as they were.
        solved: what was found, one of `SOLVED`.
        noise_multiplier: std / clipping norm.
        epochs: passes over the data in expectation.
        epsilon: by `pld`, an upper bound.
        steps: of training.
    """

    fixed: Settings
    solved: str
    noise_multiplier: float
    epochs: float
    epsilon: float
    steps: int

    @property
    def found(self) -> str:
        """The value that was found, as its field shows it; rounded upwards where it is epsilon."""
        value = getattr(self, self.solved)
        return f"{math.ceil(value * 1e4) / 1e4 if self.solved == 'epsilon' else value:.10g}"

    @property
    def curve(self) -> tuple[float, np.ndarray]:
        """The largest chance that a member is found at 5 % false alarms, and the type II errors at `ALPHA`."""
        beta = _curve(self.fixed, self.noise_multiplier, self.steps)
        return 1 - float(beta[-1]), beta[:-1]


def faults(given: Mapping[str, str]) -> dict[str, str]:
    """A sentence for each field of the form that breaks its rule; what is found is not read."""
    return _read(given)[1]


def _read(given: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers of the form, and a sentence for each field that breaks its rule."""
    solved = given.get("solve", "epsilon")
    read: dict[str, float] = {}
    rules: dict[str, Callable[[str, float], object]] = {
        "records": lambda label, value: check.count(label, value, maximum=1e12),
        "batch_size": lambda label, value: check.count(label, value, maximum=read.get("records", math.inf)),
        "noise_multiplier": lambda label, value: check.real(label, value, low=_LEAST_NOISE, high=_LARGEST_NOISE),
        "epochs": lambda label, value: check.positive(label, value) and _check_steps(label, value, read),
        "epsilon": check.positive,
        "delta": lambda label, value: _check_delta(label, value, read),
    }
    found = {}
    for name, rule in rules.items():
        label = FIELDS[name][0].partition(" (")[0]
        if name != solved:
            try:
                value = check.read_real(label, given.get(name, FIELDS[name][1]).strip())
                rule(label, value)
                read[name] = value
            except InvalidInput as error:
                found[name] = str(error)
    return read, found


def _check_delta(label: str, delta: float, read: Mapping[str, float]) -> None:
    check.probability(label, delta, open_low=True, open_high=True)
    records = read.get("records", 0.0)
    if delta * records >= 1:
        hint = "A larger one lets a whole record through."
        raise check.fail(label, f"below 1 / records = {1 / records:.3g}", delta, hint)


def _check_steps(label: str, epochs: float, read: Mapping[str, float]) -> None:
    steps = epochs * read.get("records", 0.0) / read.get("batch_size", 1.0)
    check.that(steps <= _LARGEST_STEPS, label, f"few enough for {_LARGEST_STEPS:,} steps", epochs)


def calculate(given: Mapping[str, str]) -> Answer:
    """The answer for the fields of the form; raises `InvalidInput` for a field that breaks its rule."""
    solved = check.choice("solve", given.get("solve", "epsilon"), SOLVED)
    sampler = check.choice("sampler", given.get("sampler", "poisson"), SAMPLERS)
    value, wrong = _read(given)
    for sentence in wrong.values():
        raise InvalidInput(sentence)
    value[solved] = 0.0
    records, batch, epochs = value["records"], value["batch_size"], value["epochs"]
    fixed, noise = Settings(sampler, int(records), int(batch), value["delta"]), value["noise_multiplier"]
    if solved == "noise_multiplier":
        noise = _smallest_noise(fixed, fixed.steps(epochs), value["epsilon"])
    elif solved == "epochs":
        epochs = _most_steps(fixed, noise, value["epsilon"]) * batch / records
    steps = fixed.steps(epochs)
    return Answer(fixed, solved, noise, epochs, _epsilon(fixed, noise, steps), steps)


@lru_cache(_KEPT)
def _epsilon(fixed: Settings, noise: float, steps: int) -> float:
    return float(accountant("pld")(Ledger.of(fixed.run(noise, steps))).epsilon(fixed.delta))


@lru_cache(_KEPT)
def _curve(fixed: Settings, noise: float, steps: int) -> np.ndarray:
    """Certified type II errors at `ALPHA` and, last, at 5 % false alarms."""
    return accountant("pld")(Ledger.of(fixed.run(noise, steps))).curve.beta(np.append(ALPHA, _FALSE_ALARMS))


@lru_cache(_KEPT)
def _smallest_noise(fixed: Settings, steps: int, target: float) -> float:
    """The smallest noise that is enough, rounded up to four digits."""
    found = smallest("noise_multiplier", lambda noise: fixed.run(noise, steps), Epsilon(target, fixed.delta)).value
    if found > _LARGEST_NOISE:
        raise check.fail("epsilon", "reached by a noise multiplier of at most 1000", "less", "Ask for more epsilon.")
    return max(math.ceil(found * 1e4) / 1e4, _LEAST_NOISE)


@lru_cache(_KEPT)
def _most_steps(fixed: Settings, noise: float, target: float) -> int:
    """The most steps that are allowed."""
    if _epsilon(fixed, noise, 1) > target:
        raise check.fail("epsilon", "enough for one step", "less", "Raise epsilon or the noise.")
    if _epsilon(fixed, noise, _LARGEST_STEPS) <= target:
        return _LARGEST_STEPS
    return int(largest_steps(Epsilon(target, fixed.delta), partial(fixed.run, noise)).value)
