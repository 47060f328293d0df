"""Every sampler but the plain Poisson one. Statistical tests are seeded; false alarms below 1e-6 each."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.mechanisms import FixedSize, Gaussian, Shuffled, TruncatedPoisson
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.sampling import (
    BalancedIterationSampling,
    Batch,
    FixedSizeSampling,
    GroupedPoissonSampling,
    PoissonSampling,
    RandomAllocationSampling,
    ShuffledSampling,
    TruncatedPoissonSampling,
    sampling_of,
)
from tacit.sampling.poisson import FixedSizeSampler, GroupedPoissonSampler, ShuffledSampler, TruncatedPoissonSampler

OWNERS = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 4, 4])
SAMPLINGS = [
    PoissonSampling(),
    FixedSizeSampling(),
    ShuffledSampling(),
    RandomAllocationSampling(),
    BalancedIterationSampling(iterations=8),
    TruncatedPoissonSampling(5),
    GroupedPoissonSampling(OWNERS),
]


def batches(sampler, count):
    found = []
    for _ in range(count):
        batch = sampler.issue()
        sampler.redeem(batch)
        assert len(np.unique(batch.indices)) == len(batch)
        found.append(batch)
    return found


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.type)
def test_a_batch_is_issued_until_it_is_redeemed_and_then_never_again(sampling):
    sampler = sampling.sampler(12, 0.25, SeededStream(0))
    batch = sampler.issue()
    assert sampler.issue() is batch
    same = sampling.sampler(12, 0.25, SeededStream(0)).issue()
    assert np.array_equal(same.indices, batch.indices)
    for other in (Batch(batch.indices), same, None):
        with pytest.raises(TrainingMisuse, match="batch must be one that the private sampler issued"):
            sampler.redeem(other)
    sampler.redeem(batch)
    with pytest.raises(TrainingMisuse):
        sampler.redeem(batch)
    assert sampler.issue() is not batch
    assert sampler.expected_size == pytest.approx(0.25 * sampling.units(12))


class TestFixedSize:
    @pytest.mark.parametrize(("records", "size"), [(6, 1), (6, 2), (40, 3), (6, 5), (6, 6)])
    def test_every_subset_is_as_likely(self, records, size):
        count = 4000
        drawn = batches(FixedSizeSampler(records, size, SeededStream(1)), count)
        assert all(len(batch) == size and np.all(np.diff(batch.indices) > 0) for batch in drawn)
        subsets = list(itertools.combinations(range(records), size))
        if len(subsets) > 400:
            observed = np.bincount(np.concatenate([batch.indices for batch in drawn]), minlength=records)
            spread = np.sum((observed - count * size / records) ** 2) / (count * size / records * (1 - size / records))
            assert 1e-6 < stats.chi2.cdf(spread * (records - 1) / records, records - 1) < 1 - 1e-6
            return
        place = {subset: i for i, subset in enumerate(subsets)}
        observed = np.bincount([place[tuple(batch.indices.tolist())] for batch in drawn], minlength=len(subsets))
        assert len(subsets) == 1 or stats.chisquare(observed).pvalue > 1e-6

    def test_the_mechanism_and_its_relation(self):
        sampling = FixedSizeSampling()
        assert sampling.mechanism(Gaussian(1.3), 1000, 0.05) == FixedSize(Gaussian(1.3), 1000, 50)
        sampling.check_relation(Relation.REPLACE_ONE)
        for relation in (Relation.ADD_REMOVE, Relation.ZERO_OUT):
            with pytest.raises(InvalidInput, match=f"relation must be replace_one for fixed_size.*{relation.value}"):
                sampling.check_relation(relation)

    def test_sizes_that_are_no_integer(self):
        for sampling in (FixedSizeSampling(), ShuffledSampling()):
            with pytest.raises(InvalidInput, match="batch_size must be an integer"):
                sampling.mechanism(Gaussian(1.0), 100, 0.0155)


class TestShuffled:
    def test_every_pass_visits_every_record_once(self):
        drawn = batches(ShuffledSampler(10, 4, SeededStream(2)), 9)
        assert [len(batch) for batch in drawn] == [4, 4, 2] * 3
        passes = [np.concatenate([batch.indices for batch in drawn[i : i + 3]]) for i in (0, 3, 6)]
        assert all(np.array_equal(np.sort(each), np.arange(10)) for each in passes)
        assert not np.array_equal(passes[0], passes[1])

    def test_every_place_is_as_likely(self):
        count = 4000
        sampler = ShuffledSampler(6, 2, SeededStream(3))
        first = [batches(sampler, 3)[0].indices for _ in range(count)]
        observed = np.bincount([a * 6 + b for a, b in first], minlength=36)
        assert stats.chisquare(observed[observed > 0]).pvalue > 1e-6
        assert np.count_nonzero(observed) == 15

    def test_the_ledger_never_counts_fewer_passes_than_were_begun(self):
        for records, size in ((10, 4), (10, 5), (60, 7), (7, 7), (9, 1)):
            mechanism = ShuffledSampling().mechanism(Gaussian(1.0), records, size / records)
            assert mechanism == Shuffled(Gaussian(1.0), records, size, drop_last=records % size == 0)
            for steps in range(1, 40):
                drawn = batches(ShuffledSampler(records, size, SeededStream(4)), steps)
                visits = np.bincount(np.concatenate([batch.indices for batch in drawn]), minlength=records).max()
                assert mechanism.accounted(steps)[1] >= visits


class TestTruncated:
    def test_no_batch_exceeds_the_cap_and_small_ones_are_untouched(self):
        sizes = np.array([len(b) for b in batches(TruncatedPoissonSampler(50, 0.2, 11, SeededStream(5)), 4000)])
        assert sizes.max() == 11
        law = stats.binom(50, 0.2)
        expected = np.append(law.pmf(np.arange(11)), law.sf(10)) * 4000
        keep = expected > 5
        observed = np.bincount(sizes, minlength=12)
        assert (
            stats.chisquare(observed[keep], expected[keep] * observed[keep].sum() / expected[keep].sum()).pvalue > 1e-6
        )

    def test_what_is_left_out_is_uniform(self):
        drawn = batches(TruncatedPoissonSampler(30, 0.9, 5, SeededStream(6)), 4000)
        observed = np.bincount(np.concatenate([batch.indices for batch in drawn]), minlength=30)
        assert stats.chisquare(observed).pvalue > 1e-6

    def test_the_mechanism(self):
        described = TruncatedPoissonSampling(70).mechanism(Gaussian(1.3), 1000, 0.05)
        assert described == TruncatedPoisson(Gaussian(1.3), 0.05, 1000, 70)


class TestGrouped:
    def test_users_come_with_all_their_records_or_not_at_all(self):
        seen = np.zeros(5)
        drawn = batches(GroupedPoissonSampler(OWNERS, 0.3, stream=SeededStream(7)), 3000)
        for batch in drawn:
            users = np.unique(OWNERS[batch.indices])
            assert np.array_equal(np.sort(batch.indices), np.flatnonzero(np.isin(OWNERS, users)))
            assert np.array_equal(OWNERS[batch.indices], users[batch.owners])
            seen[users] += 1
        assert np.all(np.abs(seen - 900) < 5.2 * math.sqrt(3000 * 0.3 * 0.7))
        together = np.array([np.isin(np.arange(5), OWNERS[batch.indices]) for batch in drawn]).astype(float)
        correlation = np.corrcoef(together, rowvar=False)[np.triu_indices(5, 1)]
        assert np.abs(correlation).max() < 5.5 / math.sqrt(3000)

    def test_any_keys_and_any_order(self):
        sampling = GroupedPoissonSampling(["b", "a", "b", "c"], average=True)
        assert sampling.units(4) == 3
        batch = sampling.sampler(4, 1.0, SeededStream(8)).issue()
        assert batch.indices.tolist() == [1, 0, 2, 3]
        assert batch.owners.tolist() == [0, 1, 1, 2]
        assert batch.average
        assert sampling.spec() == {"type": "grouped_poisson", "average": True}
        assert sampling.mechanism(Gaussian(1.0), 4, 0.5) == Gaussian(1.0).poisson(0.5)

    def test_keys_that_do_not_fit_the_records(self):
        with pytest.raises(InvalidInput, match="groups must be one key for each of the 5 records; got '4 keys'"):
            GroupedPoissonSampling([1, 2, 3, 3]).units(5)
        for bad in ([], [[1, 2], [3, 4]]):
            with pytest.raises(InvalidInput, match="groups must be one key for each record"):
                GroupedPoissonSampling(bad)


def test_samplings_are_found_by_name():
    assert sampling_of("shuffled") == ShuffledSampling()
    assert sampling_of(TruncatedPoissonSampling(3)) == TruncatedPoissonSampling(3)
    with pytest.raises(InvalidInput, match="Did you mean 'poisson'"):
        sampling_of("poison")


@pytest.mark.parametrize(
    "build",
    [
        lambda: FixedSizeSampler(10, 11),
        lambda: FixedSizeSampler(10, 0),
        lambda: ShuffledSampler(10, 11),
        lambda: ShuffledSampler(0, 1),
        lambda: TruncatedPoissonSampler(10, 0.5, 0),
        lambda: TruncatedPoissonSampling(1.5),
        lambda: GroupedPoissonSampler(OWNERS, 0.0),
        lambda: GroupedPoissonSampler(OWNERS, math.nan),
    ],
)
def test_bad_settings_are_refused(build):
    with pytest.raises(InvalidInput, match=" must be "):
        build()
