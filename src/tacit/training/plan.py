"""`Plan`: sampler, clip, noise and length of a private run, as one object that the accountants read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby

from tacit import check
from tacit.accounting import Ledger
from tacit.clipping import Clip, FlatClip
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, MatrixGaussian, Mechanism, Strategy, ToeplitzStrategy
from tacit.sampling import PoissonSampling, Sampling


@dataclass(frozen=True)
class Plan:
    """Plan of a private run: `steps` releases of a noisy clipped sum over private samples.

    One release is  (sum_{i in batch} clipped g_i + N(0, (noise_multiplier * sensitivity)^2 I)) / expected_batch_size,
    sensitivity that of `clip`; the divisor is the expected size, never the drawn one, so the release is
    post-processing of the noisy sum.

    Args:
        records: number of records n.
        sample_rate: in (0, 1]; probability of each unit (a record, or a user) in a batch.
        clip: bound on one unit's contribution; a plain number means flat clipping.
        noise_multiplier: noise std / sensitivity, > 0, or one for each step; zero only with `unsafe_no_noise`.
        steps: number of releases, >= 1.
        unsafe_no_noise: allows noise_multiplier 0; written in the ledger.
        sampling: how batches are drawn.
        divisor: of the noisy sum, a public number > 0; None for the mean number of units in a batch.
        strategy: C of noise that is correlated over the steps; None for independent noise. The sampling must keep a
            record's steps apart, and noise and clip stay the same: the run is one matrix mechanism.
        sized: whether rate, length and divisor derive from declared numbers, and not from `records`.

    Raises:
        InvalidInput: a field breaks its rule.

    Example:
        >>> plan = Plan(records=1000, sample_rate=0.05, clip=1.0, noise_multiplier=1.1, steps=40)
        >>> plan.expected_batch_size
        50.0
    """

    records: int
    sample_rate: float
    clip: Clip
    noise_multiplier: float | tuple[float, ...]
    steps: int
    unsafe_no_noise: bool = False
    sampling: Sampling = field(default_factory=PoissonSampling)
    divisor: float | None = None
    strategy: Strategy | None = None
    sized: bool = False

    def __post_init__(self) -> None:
        check.count("records", self.records)
        check.probability("sample_rate", self.sample_rate, open_low=True, hint="Use batch_size / n.")
        check.count("steps", self.steps, hint="Use round(epochs / sample_rate).")
        if not isinstance(self.clip, Clip):
            object.__setattr__(self, "clip", FlatClip(self.clip))
        if isinstance(self.noise_multiplier, tuple) and len(self.noise_multiplier) != self.steps:
            raise check.fail("noise_multiplier", f"a list of {self.steps}", f"{len(self.noise_multiplier)} values")
        if (self.sampling.separates or self.sampling.whole_run) and self.strategy is None:
            object.__setattr__(self, "strategy", ToeplitzStrategy(self.steps, (1.0,)))
        if self.strategy is not None:
            self._check_strategy(self.strategy)
            object.__setattr__(self, "sampling", self.sampling.for_steps(self.strategy.iterations))
        every = self.sampling.steps_alike(self.records, self.sample_rate)
        odd = [start for start in self._starts[:-1] if start % every]
        if odd:
            rule = f"the same for {every} steps (a pass) with {self.sampling.type} sampling"
            raise check.fail("noise_multiplier", rule, f"a change at step {odd[0]}", f"Use StepNoise(every={every}).")

    def _check_strategy(self, strategy: Strategy) -> None:
        """Raise `InvalidInput` for what is not proven with correlated noise."""
        if strategy.iterations > self.steps:
            raise check.fail("strategy", f"one of at most {self.steps} steps", f"{strategy.iterations}")
        if not self.sampling.separates and (strategy.bands > 1 or not self.sampling.whole_run):
            hint = 'Use sampling="cyclic_poisson" or "cyclic_allocation" for bands, "balls_and_bins" for any noise.'
            raise check.fail("sampling", "one that keeps a record's steps apart", self.sampling.type, hint)
        if isinstance(self.noise_multiplier, tuple):
            raise check.fail("noise_multiplier", "one number for correlated noise", "a schedule")
        base = self.clip.mechanism(self.noise_multiplier, self.unsafe_no_noise)
        if self.clip.statistics or self.clip.of_mean or type(base) is not Gaussian or base.unsafe:
            rule = "a fixed bound on each record, with noise, where steps are correlated or kept apart"
            raise check.fail("clipping", rule, self.clip.spec()["type"], "Use clip_norm=...")

    @property
    def tells_records(self) -> bool:
        """Whether settings, which are released, tell the number of records: then no add/remove guarantee holds."""
        return not self.sized or self.sampling.reads_records

    @property
    def correlation(self) -> Strategy | None:
        """`strategy`, unless it makes noise that is independent from step to step."""
        return self.strategy if self.strategy is not None and self.strategy.bands > 1 else None

    @cached_property
    def runs(self) -> tuple[tuple[Mechanism, int], ...]:
        """Stretches of equal steps in order: (mechanism of each step, number of steps)."""
        if not isinstance(self.noise_multiplier, tuple):
            return ((self._described(self.noise_multiplier), self.steps),)
        return tuple((self._described(value), len(list(group))) for value, group in groupby(self.noise_multiplier))

    @cached_property
    def _starts(self) -> list[int]:
        """First step of every stretch, and the end of the last."""
        return [0, *accumulate(steps for _, steps in self.runs)]

    @property
    def mechanism(self) -> Mechanism:
        """One step, as the accountants see it; raises `InvalidInput` where steps differ, for which see `record`."""
        if len(self.runs) > 1:
            raise InvalidInput("mechanism must be asked step by step of a plan with a noise schedule. Use `record`.")
        return self.mechanism_at(0)

    def noise_at(self, step: int) -> float:
        """Noise multiplier of step 0, 1, ...; the last one's beyond the plan."""
        if not isinstance(self.noise_multiplier, tuple):
            return self.noise_multiplier
        return self.noise_multiplier[min(step, self.steps - 1)]

    def mechanism_at(self, step: int) -> Mechanism:
        """Step 0, 1, ... as the accountants see it; beyond the plan steps are like the last."""
        return self.runs[min(bisect_right(self._starts, step), len(self.runs)) - 1][0]

    def record(self, ledger: Ledger, note: str = "", steps: int | None = None, *, start: int = 0) -> None:
        """Write planned steps into `ledger`.

        Args:
            ledger: the ledger to write.
            note: of each entry.
            steps: number of steps, all by default.
            start: the first step, >= 0.
        """
        end = self.steps if steps is None else start + steps
        for (mechanism, length), first in zip(self.runs, self._starts, strict=False):
            inside = min(first + length, end) - max(first, start)
            if inside > 0:
                ledger.add(mechanism, inside, note)

    @property
    def clip_norm(self) -> float:
        """Sensitivity of one release before the division: the unit of the noise multiplier."""
        return self.clip.sensitivity

    @property
    def expected_batch_size(self) -> float:
        """Divisor of the noisy sum: `divisor`, or the mean number of units in a batch."""
        if self.divisor is not None:
            return self.divisor
        return self.sampling.units(self.records) * self.sample_rate

    def _described(self, noise_multiplier: float) -> Mechanism:
        base = self.clip.mechanism(noise_multiplier, self.unsafe_no_noise)
        if self.strategy is not None:
            base = MatrixGaussian(noise_multiplier, self.strategy)
        return self.sampling.mechanism(base, self.records, self.sample_rate)


def ledger_after(ledger: Ledger, plan: Plan, steps: int, *, start: int = 0) -> Ledger:
    """A copy of `ledger` after further steps of `plan`.

    Args:
        ledger: left as it is.
        plan: the plan.
        steps: number of steps.
        start: the first step, >= 0.
    """
    trial = ledger.resumable()
    plan.record(trial, "training", steps, start=start)
    return trial
