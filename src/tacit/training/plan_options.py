"""`PlanOptions`: the options that every door to private training takes, and schedules of the noise multiplier."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

from tacit import check
from tacit.accounting import Accountant
from tacit.clipping import Clip
from tacit.mechanisms import Strategy
from tacit.sampling import Sampling
from tacit.tradeoff import Epsilon, Target


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
class ExponentialNoise(NoiseSchedule):
    """Geometric schedule:  start * (end / start)^(step / (steps - 1)).

    Attributes:
        start: noise multiplier of the first step, > 0.
        end: noise multiplier of the last step, > 0.

    Example:
        >>> ExponentialNoise(4.0, 1.0).multipliers(3)
        (4.0, 2.0, 1.0)
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        check.positive("start", self.start)
        check.positive("end", self.end)

    def at(self, step: int, steps: int) -> float:
        """Noise multiplier of step 0, 1, ..., steps - 1."""
        return self.start * (self.end / self.start) ** (step / max(1, steps - 1))


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


ENGINES = ("auto", "eager", "recorded", "compiled")
PRECISIONS = ("float32", "bfloat16")
COPIES = ("augmentations", "augment")
"""Fields that `fit` and `private_step` have a meaning for, which call the loss themselves."""


class PlanFields(TypedDict, total=False):
    """The fields of `PlanOptions` as keywords."""

    clip_norm: float | None
    clipping: Clip | None
    sampling: str | Sampling
    noise: str | Strategy
    noise_multiplier: Noise | None
    target: Target | None
    accountant: Accountant | str
    sample_rate: float | None
    batch_size: float | None
    expected_batch_size: float | None
    public_size: int | None
    steps: int | None
    epochs: float | None
    delta: float | None
    unsafe_no_noise: bool
    engine: str
    max_physical_batch_size: int | Literal["auto"] | None
    precision: str
    augmentations: int
    augment: Callable[..., Any] | None


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a private training run does: clip, noise, batches, length, target, and by what it is computed.

    `fit`, `make_private`, `private_step`, `PrivacyEngine` and the trainers of `tacit.integrations` take one as
    `options`, or its fields as keywords; a keyword replaces the field of `options`. A field that one of them has no
    meaning for is refused, never ignored. Values are checked where a run begins, because some rules need the data.

    Attributes:
        clip_norm: bound on the L2 norm of one record's gradient, > 0; None if `clipping` is given.
        clipping: another way to bound contributions, such as `PerLayerClip(1.0)`; its sensitivity replaces clip_norm.
        sampling: how batches are drawn: a `Sampling` or its name: "poisson", "fixed_size", "shuffled",
            "random_allocation", "balls_and_bins", "balanced_iteration", "cyclic_poisson" or "cyclic_allocation".
        noise: "independent", or correlated over the steps: "banded:8" (with one of the cyclic samplings or
            "balls_and_bins"), "banded:auto", or with "balls_and_bins" "blt:4", "square_root" or "tree"; or a strategy
            of as many steps.
        noise_multiplier: noise std / clip_norm, one for all steps, a list of one for each, or a `NoiseSchedule`; None
            to calibrate it to `target`.
        target: with `noise_multiplier`, a budget: the step that would cross it is not taken. Without, what to meet.
        accountant: the accountant that measures `target`, and the epsilon in the history.
        sample_rate: probability of each unit in a batch, in (0, 1]; None if `batch_size` is given.
        batch_size: expected number of units in a batch, in (0, n], and divisor of the noisy sum; that of the loader by
            default, where there is one.
        expected_batch_size: public divisor of the noisy sum, > 0, where `sample_rate` is given; or give `public_size`.
        public_size: declared number of units, >= 1, from which rate, length and divisor derive in place of n. Without
            it, or `sample_rate` with `expected_batch_size`, the settings tell n: add_remove is stated as zero_out.
        steps: number of steps, >= 1; None if `epochs` is given.
        epochs: expected passes over the data, > 0: round(epochs / sample_rate) steps; None if `steps` is given.
        delta: in [0, 1], at which epsilon is reported; warned about when >= 1/n. An `Epsilon` target has its own.
        unsafe_no_noise: allows noise_multiplier 0; written in the ledger.
        engine: "eager"; "recorded", which records the operations of one step for each of a few batch sizes and pays
            over hundreds of steps of small models; "compiled", which also spends seconds on compiling each recording
            and pays over thousands; or "auto": recorded where one recording is known to stand for all steps, the run
            has no seed, and a measurement shows that it pays over the steps that remain; eager otherwise.
        max_physical_batch_size: records that go through the model at a time, >= 1; a larger batch is processed in
            several physical batches, and noise added once. The result does not depend on it. "auto" takes as many as
            half of the free memory holds, and half as many where memory runs out; the eager engine only.
        precision: "float32", or "bfloat16" for the forward and backward pass only.
        augmentations: K, copies of each record in a step of `fit` or `private_step`; their gradients are averaged
            before the clip, so that the record counts once and costs what it does without. Takes K times the time.
        augment: a function or module that makes the copies, called K times in a step: `augment(inputs)` gives other
            rows of the rows of a batch, (batch, ...), each of its own row, public values and draws alone, which the
            record types check with the model. It keeps nothing from call to call. By the eager engine.

    Example:
        >>> options = PlanOptions(clip_norm=1.0, noise_multiplier=2.0, batch_size=20, steps=3)
        >>> sorted(options.given())
        ['batch_size', 'clip_norm', 'noise_multiplier', 'steps']
    """

    clip_norm: float | None = None
    clipping: Clip | None = None
    sampling: str | Sampling = "poisson"
    noise: str | Strategy = "independent"
    noise_multiplier: Noise | None = None
    target: Target | None = None
    accountant: Accountant | str = "pld"
    sample_rate: float | None = None
    batch_size: float | None = None
    expected_batch_size: float | None = None
    public_size: int | None = None
    steps: int | None = None
    epochs: float | None = None
    delta: float | None = None
    unsafe_no_noise: bool = False
    engine: str = "auto"
    max_physical_batch_size: int | Literal["auto"] | None = None
    precision: str = "float32"
    augmentations: int = 1
    augment: Callable[..., Any] | None = None

    def given(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by name."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if not _same(value, default)}

    @property
    def sized(self) -> bool:
        """Whether rate, length and divisor derive from declared numbers, so that no setting tells the true one."""
        return self.public_size is not None or (self.sample_rate is not None and self.expected_batch_size is not None)

    @property
    def reported_delta(self) -> float | None:
        """Delta of an `Epsilon` target, else `delta`."""
        return self.target.delta if isinstance(self.target, Epsilon) else self.delta

    def refuse(self, names: Iterable[str], *, where: str, hint: str) -> None:
        """Raise `InvalidInput` for a field among `names` that is given.

        Args:
            names: of fields that have no meaning in a call.
            where: the call.
            hint: what to do instead.
        """
        given = self.given()
        for name in names:
            if name in given:
                raise check.fail(name, f"left out of {where}", given[name], hint)


def options_of(options: PlanOptions | None, named: PlanFields, door: Callable[..., Any]) -> PlanOptions:
    """`options`, or the defaults, with the fields in `named` replaced.

    Args:
        options: as a public call takes them.
        named: fields by keyword.
        door: the function that takes them; its own keywords are named where one is unknown.

    Raises:
        InvalidInput: `options` is no `PlanOptions`, a keyword is unknown, or `engine` or `precision` breaks its rule.

    Example:
        >>> options_of(PlanOptions(steps=3), {"steps": 5}, print).steps
        5
    """
    options = PlanOptions() if options is None else check.instance("options", options, PlanOptions, "a PlanOptions")
    known = [each.name for each in fields(PlanOptions)]
    for name in named:
        if name not in known:
            own = [each for each in inspect.signature(door).parameters if each not in ("self", "named")]
            check.choice("keyword", name, [*known, *own])
    options = replace(options, **named)
    check.choice("engine", options.engine, ENGINES)
    check.choice("precision", options.precision, PRECISIONS)
    return options


def _same(value: object, default: object) -> bool:
    """Whether a value is the default; one of another type, such as an array, never is."""
    return value is default or (type(value) is type(default) and value == default)
