"""The plan of a private run, and the run itself: sampler, clip, noise and ledger as one object."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit import check
from tacit.accounting import Accountant, Ledger, accountant
from tacit.clipping import FlatClip
from tacit.errors import BudgetExceeded, PrivacyWarning
from tacit.gradients import GradientSum
from tacit.mechanisms import Gaussian, Mechanism
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.sampling import Batch, PoissonSampler
from tacit.standing import Standing
from tacit.tradeoff import Target


@dataclass(frozen=True)
class Plan:
    """What will run: `steps` releases of a noisy clipped sum over Poisson samples.

    One release is  (sum_{i in batch} clipped g_i + N(0, (noise_multiplier * clip_norm)^2 I)) / expected_batch_size;
    the divisor is the expected size, never the drawn one, so the release is post-processing of the noisy sum.

    Args:
        records: number of records n.
        sample_rate: in (0, 1].
        clip_norm: bound on the L2 norm of one record's gradient.
        noise_multiplier: noise std / clip_norm, > 0; zero only with `unsafe_no_noise`.
        steps: number of releases, >= 1.
    """

    records: int
    sample_rate: float
    clip_norm: float
    noise_multiplier: float
    steps: int
    unsafe_no_noise: bool = False

    def __post_init__(self) -> None:
        check.count("records", self.records)
        check.count("steps", self.steps, hint="Use round(epochs / sample_rate).")
        FlatClip(self.clip_norm)
        _ = self.mechanism

    @property
    def mechanism(self) -> Mechanism:
        """One step, as the accountants see it."""
        return Gaussian(self.noise_multiplier, self.unsafe_no_noise).poisson(self.sample_rate)

    @property
    def expected_batch_size(self) -> float:
        """Mean number of records in a batch."""
        return self.records * self.sample_rate

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on every coordinate of the sum."""
        return self.noise_multiplier * self.clip_norm


class PrivateRun:
    """A plan in motion: it draws the batches, adds the noise and writes the ledger, so the three cannot disagree.

    Args:
        plan: what runs.
        stream: source of sampling and noise; a `SeededStream` marks the ledger as unsafe.
        ledger: where to record the steps (a new one by default).
        budget: no step is taken after which the whole ledger would miss this target.
        using: the accountant that measures the budget.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        stream: Stream | None = None,
        ledger: Ledger | None = None,
        budget: Target | None = None,
        using: Accountant | str = "pld",
    ):
        self.plan = plan
        self.ledger = ledger if ledger is not None else Ledger()
        self.stream = stream if stream is not None else SecureStream()
        self.sampler = PoissonSampler(plan.records, plan.sample_rate, self.stream)
        self.taken = 0
        self._limit = budget, using
        self._allowed = _affordable(self.ledger, plan, *self._limit)
        if not self.stream.secure:
            self.ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        if plan.unsafe_no_noise:
            self.ledger.mark_unsafe("unsafe_no_noise")

    @property
    def left(self) -> int:
        """How many of the planned steps may still be taken."""
        allowed = self.plan.steps if self._allowed is None else min(self.plan.steps, self._allowed)
        return allowed - self.taken

    def issue(self) -> Batch:
        """The next batch; raises `BudgetExceeded` when no further step may be taken."""
        self._check_budget()
        return self.sampler.issue()

    def charge(self, batch: Batch) -> None:
        """Use up `batch` and record its step, before anything of it is released."""
        self._check_budget()
        self.sampler.redeem(batch)
        self.taken += 1
        self.ledger.add(self.plan.mechanism, note="training")

    def release(self, batch: Batch, total: GradientSum) -> GradientSum:
        """Noisy mean of the clipped sum of `batch`, made in place after the charge."""
        self.charge(batch)
        noise = normal_like(total.flat, self.stream)
        return noisy_mean(total, noise, self.plan.noise_std, self.plan.expected_batch_size)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the ledger; of the stream only the position of a seeded one."""
        stream = self.stream.state() if isinstance(self.stream, SeededStream) else None
        return {"taken": self.taken, "sampler": self.sampler.state(), "stream": stream}

    def restore(self, state: dict[str, Any], *, ledger: Ledger, spent: Ledger) -> None:
        """Go on where `state` was taken; a secure stream draws from its new key.

        Args:
            ledger: what had run by then.
            spent: that, and what a process that was killed may have run since, and shown in its logs. All of it counts,
                but for a seeded stream, which takes those steps again exactly as they were: one release.
        """
        repeats = isinstance(self.stream, SeededStream) and state["stream"] is not None
        if isinstance(self.stream, SeededStream) and repeats:
            self.stream.restore(state["stream"])
        self.ledger.advance(ledger if repeats else spent)
        self.sampler.restore(state["sampler"])
        self.taken = state["taken"]
        further = _affordable(self.ledger, self.plan, *self._limit)
        self._allowed = None if further is None else self.taken + further

    def _check_budget(self) -> None:
        if self._allowed is not None and self.taken >= self._allowed:
            raise BudgetExceeded(
                f"step {self.taken + 1} would cross the privacy budget; it was not taken. "
                f"It allows {self._allowed} steps of {self.plan.mechanism}; use more noise or fewer steps."
            )


def noisy_mean(total: GradientSum, noise: Tensor, noise_std: float, expected_batch_size: float) -> GradientSum:
    """(sum + noise_std * noise) / expected_batch_size in place, for fresh N(0, 1) noise, one value a coordinate."""
    total.flat.add_(noise, alpha=noise_std).div_(expected_batch_size)
    return total


def normal_like(flat: Tensor, stream: Stream) -> Tensor:
    """Independent N(0, 1) values of the shape, type and device of `flat`."""
    noise = torch.empty(flat.shape, dtype=flat.dtype)
    stream.fill_normal(noise.numpy())
    return noise.to(flat.device)


def warn_about_delta(delta: float | None, records: int) -> None:
    """Warn when delta >= 1/n: a mechanism that publishes one random record would satisfy it."""
    if delta is not None and check.delta(delta) >= 1.0 / records:
        warnings.warn(
            f"delta={delta:g} is not below 1/n for n={records}: use a value below {1 / records:.2g}.",
            PrivacyWarning,
            stacklevel=3,
        )


def _affordable(ledger: Ledger, plan: Plan, budget: Target | None, using: Accountant | str) -> int | None:
    """How many of the planned steps keep `budget` met; None without a budget.

    The guarantee worsens with every step, so bisection finds it.
    """
    if budget is None:
        return None
    judge = accountant(using) if isinstance(using, str) else using

    def met(steps: int) -> bool:
        trial = Ledger.from_spec(ledger.spec())
        trial.add(plan.mechanism, steps)
        return budget.met(judge(trial))

    affordable, refused = 0, plan.steps
    if met(refused):
        return plan.steps
    while refused - affordable > 1:
        middle = (affordable + refused) // 2
        affordable, refused = (middle, refused) if met(middle) else (affordable, middle)
    return affordable
