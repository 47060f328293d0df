"""Statistical tests are seeded; each alone raises a false alarm with probability below 1e-6."""

import random

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.noise import SecureStream, SeededStream
from tacit.sampling import Batch, PoissonSampler

RATES = [(400, 37 / 400), (400, 0.5), (5000, 0.001), (37, 0.2), (37, 0.21), (300, 0.999)]


def draws(records, rate, count, seed=3):
    sampler = PoissonSampler(records, rate, SeededStream(seed))
    included = np.zeros((count, records), bool)
    for row in included:
        batch = sampler.issue()
        sampler.redeem(batch)
        assert np.all(np.diff(batch.indices) > 0)
        row[batch.indices] = True
    return included


@pytest.mark.parametrize(("records", "rate"), RATES)
def test_sizes_are_binomial(records, rate):
    count = 3000
    sizes = draws(records, rate, count).sum(1)
    law = stats.binom(records, rate)
    assert abs(sizes.mean() - law.mean()) < 5 * law.std() / count**0.5
    fourth = law.stats(moments="k") + 3
    assert abs(sizes.var() / law.var() - 1) < 5.5 * ((fourth - 1) / count) ** 0.5


@pytest.mark.parametrize(("records", "rate"), RATES)
def test_every_record_is_included_at_the_same_rate(records, rate):
    count = 3000
    included = draws(records, rate, count).sum(0)
    statistic = np.sum((included - count * rate) ** 2) / (count * rate * (1 - rate))
    assert 1e-6 < stats.chi2.cdf(statistic, records) < 1 - 1e-6


def test_records_and_batches_are_independent():
    included = draws(200, 0.3, 4000).astype(float) - 0.3
    across = np.corrcoef(included, rowvar=False)[np.triu_indices(200, 1)]
    assert np.abs(across).max() < 7.2 / 4000**0.5
    assert stats.kstest(across * 4000**0.5, "norm").pvalue > 1e-6
    for lag in (1, 2):
        correlation = (included[:-lag] * included[lag:]).mean() / 0.21
        assert abs(correlation) < 5 / included.size**0.5


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.5])
def test_batches_follow_the_stream_and_no_global_generator(rate):
    """With every global generator at one state, secure samplers differ and seeded ones are alike."""

    def batches(stream):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 (the generator that must not matter)
        torch.manual_seed(0)
        sampler = PoissonSampler(2000, rate, stream)
        return [sampler.draw().indices.tolist() for _ in range(3)]

    assert batches(SecureStream()) != batches(SecureStream())
    assert batches(SeededStream(1)) == batches(SeededStream(1))
    assert batches(SeededStream(1)) != batches(SeededStream(2))


def test_gaps_between_records_are_geometric():
    included = draws(100_000, 0.01, 20)
    gaps = np.concatenate([np.diff(np.flatnonzero(row)) for row in included])
    observed = np.bincount(np.minimum(gaps, 300))[1:]
    expected = 0.01 * 0.99 ** np.arange(299)
    expected = np.append(expected, 1 - expected.sum()) * len(gaps)
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_a_rate_of_one_takes_everybody_and_a_tiny_rate_nobody():
    assert len(PoissonSampler(50, 1.0).issue()) == 50
    assert len(PoissonSampler(50, 1e-300).issue()) == 0


def test_only_the_issued_batch_is_taken_back_and_only_once():
    sampler = PoissonSampler(100, 0.2, SeededStream(0))
    batch = sampler.issue()
    for other in (Batch(batch.indices), PoissonSampler(100, 0.2, SeededStream(0)).issue(), None):
        with pytest.raises(TrainingMisuse, match="batch must be one that the private sampler issued"):
            sampler.redeem(other)
    sampler.redeem(batch)
    with pytest.raises(TrainingMisuse, match="not used before"):
        sampler.redeem(batch)


def test_a_batch_left_out_is_issued_again():
    sampler = PoissonSampler(100, 0.2)
    first = sampler.issue()
    assert sampler.issue() is first
    sampler.redeem(first)
    assert sampler.issue() is not first


def test_secure_samplers_differ():
    first, second = (PoissonSampler(1000, 0.5, SecureStream()).issue().indices for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("rate", [0, -0.1, 1.5, float("nan"), "0.1", None])
def test_bad_rates_are_refused(rate):
    with pytest.raises(InvalidInput, match="sample_rate must be in"):
        PoissonSampler(10, rate)


@pytest.mark.parametrize("records", [0, -1, 1.5, None])
def test_bad_sizes_are_refused(records):
    with pytest.raises(InvalidInput, match="records must be an integer"):
        PoissonSampler(records, 0.5)
