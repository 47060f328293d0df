"""Every sampling through `check_sampler`, and faults that it finds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tacit import sampling
from tacit.errors import InvalidInput
from tacit.sampling import (
    BalancedIterationSampling,
    BallsAndBinsSampling,
    Batch,
    CyclicAllocationSampling,
    CyclicPoissonSampling,
    FixedSizeSampling,
    GroupedPoissonSampling,
    PoissonSampler,
    PoissonSampling,
    RandomAllocationSampling,
    Sampling,
    ShuffledSampling,
    TruncatedPoissonSampling,
)
from tacit.testing import check_sampler

from .sampler_laws import law_of_batches

OTHERS = {"law": law_of_batches}
USERS = np.repeat(np.arange(60), 2)
SAMPLINGS = {
    "poisson": (PoissonSampling(), {}),
    "low_rate": (PoissonSampling(), {"records": 400, "sample_rate": 0.01}),
    "fixed_size": (FixedSizeSampling(), {}),
    "shuffled": (ShuffledSampling(), {}),
    "random_allocation": (RandomAllocationSampling(), OTHERS),
    "balls_and_bins": (BallsAndBinsSampling(), OTHERS),
    "balanced_iteration": (BalancedIterationSampling(), OTHERS),
    "balanced_iteration_often": (BalancedIterationSampling(), {"sample_rate": 0.7} | OTHERS),
    "cyclic_poisson": (CyclicPoissonSampling(3), OTHERS),
    "cyclic_allocation": (CyclicAllocationSampling(2), {"sample_rate": 1 / 6} | OTHERS),
    "truncated_poisson": (TruncatedPoissonSampling(13), {}),
    "truncated_poisson_far": (TruncatedPoissonSampling(25), {}),
    "users": (GroupedPoissonSampling(USERS), {"records": 120, "units": USERS}),
}


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", SAMPLINGS)
def test_sampling_issues_what_it_accounts_for(name):
    each, options = SAMPLINGS[name]
    check_sampler(each, **options)


def test_every_sampling_is_checked():
    public = {kind for name in sampling.__all__ if isinstance(kind := getattr(sampling, name), type)}
    kinds = {kind for kind in public if issubclass(kind, Sampling)} - {Sampling}
    assert kinds == {type(each) for each, _ in SAMPLINGS.values()}


@pytest.mark.parametrize("name", ["random_allocation", "balls_and_bins", "balanced_iteration", "cyclic_poisson"])
def test_batches_that_depend_on_each_other_take_a_law(name):
    with pytest.raises(InvalidInput, match="law must be given for batches that depend on each other"):
        check_sampler(SAMPLINGS[name][0])


class _Biased(PoissonSampler):
    """Draws record 0 half as often as the others."""

    def draw(self):
        indices = super().draw().indices
        keep = (indices != 0) | (self.stream.uniform(1) < 0.5)
        return Batch(indices[keep])


class _Sticky(PoissonSampler):
    """Every other batch is the last one again."""

    last = None

    def draw(self):
        self.last = Batch(self.last.indices) if self.last is not None else super().draw()
        drawn, self.last = self.last, None if self.last is not None and getattr(self, "again", False) else self.last
        self.again = not getattr(self, "again", False)
        return drawn


class _Wide(PoissonSampler):
    """Includes all records or none with the right probability for each."""

    def draw(self):
        chosen = float(self.stream.uniform(1)[0]) < self.sample_rate
        return Batch(np.arange(self.records if chosen else 0))


class _Forgetful(PoissonSampler):
    """Takes back any batch."""

    def redeem(self, batch):
        self._open = None


class _Unseeded(PoissonSampler):
    """Ignores the stream that it was given."""

    def __init__(self, records, sample_rate, stream=None):
        super().__init__(records, sample_rate)


@dataclass(frozen=True)
class _Faulty(PoissonSampling):
    kind: Any

    def sampler(self, records, sample_rate, stream):
        return self.kind(records, sample_rate, stream)


FAULTS = {
    "how often every unit is drawn": _Biased,
    "batches must be independent|two batches in a row": _Sticky,
    "sizes of batches must follow": _Wide,
    "must raise TrainingMisuse": _Forgetful,
    "equal seeds must issue equal batches": _Unseeded,
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_faulty_sampler_is_found(message):
    with pytest.raises(AssertionError, match=message):
        check_sampler(_Faulty(FAULTS[message]))


@dataclass(frozen=True)
class _Understated(PoissonSampling):
    """Accounts for a third of its rate."""

    def mechanism(self, base, records, sample_rate):
        return base.poisson(sample_rate / 3)


def test_an_understated_rate_is_found():
    with pytest.raises(AssertionError, match="sampling rate of the mechanism"):
        check_sampler(_Understated())


@pytest.mark.slow
def test_the_false_alarm_rate_is_kept():
    """Of 40 seeds at a false-alarm rate of 5 %, more than 12 alarms have probability below 1e-6."""
    alarms = 0
    for seed in range(40):
        try:
            check_sampler(PoissonSampling(), records=20, false_alarm=0.05, seed=seed)
        except AssertionError:
            alarms += 1
    assert alarms <= 12
