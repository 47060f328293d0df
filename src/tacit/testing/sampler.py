"""`check_sampler`: a sampling issues the batches that its mechanism accounts for, and no others."""

import json
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, chi2

from tacit import check, mechanisms
from tacit.accounting import accountant
from tacit.errors import InvalidInput, Refused, TrainingMisuse
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.sampling import Batch, Sampler, Sampling
from tacit.testing.draws import require, require_close, require_raises

_BATCHES = 3000  # Enough that the chi-square approximation holds down to the tails used here.
_RUN = 10  # Steps of a run where each record is in a number of them that is fixed.
_LEAST_EXPECTED = 10.0  # Expected count of a cell of a chi-square test; smaller cells are merged.
_LAWS = 4  # Chi-square tests of one check.
Law = Callable[[mechanisms.Mechanism, NDArray[np.bool_], float], None]
"""(mechanism, which unit was in which batch, false-alarm probability); raises `AssertionError` for another law."""


def check_sampler(
    sampling: Sampling,
    *,
    records: int = 60,
    sample_rate: float = 0.2,
    units: NDArray[np.int64] | None = None,
    law: Law | None = None,
    false_alarm: float = 1e-6,
    seed: int = 0,
) -> None:
    """Check that a sampling issues the batches that its mechanism accounts for.

    - Inclusion law, by chi-square tests: how often every unit is in a batch, how large batches are, and how often a
      unit is in two consecutive batches, as `sampling.mechanism(...)` says: Poisson, truncated Poisson, fixed-size or
      shuffled. A sampling with another mechanism must have equal inclusion probabilities; batches that depend on each
      other in other ways take a `law`.
    - Batches: each record at most once, whole units only, issued until redeemed, redeemed once, no checkpoint while
      one is open.
    - Equal seeds give equal batches, and a checkpoint goes on with the batches that would have come.
    - The exact accountant answers under each of `sampling.relations` and `check_relation` refuses the others.

    Args:
        sampling: the description of how batches are drawn.
        records: number of records, >= 2, whose product with `sample_rate` is an integer.
        sample_rate: in (0, 1).
        units: unit of each record as integers 0, 1, ..., shape (records,); None where each record is its own unit.
        law: what to check of who is in which batch, in place of the law above.
        false_alarm: probability in (0, 1) that a correct sampler fails for a random seed, over all tests together.
        seed: of the stream of random bits, >= 0.

    Raises:
        AssertionError: a property does not hold; the sentence names it.
        InvalidInput: a `law` is missing.

    Example:
        >>> from tacit.sampling import PoissonSampling
        >>> check_sampler(PoissonSampling())
    """
    owners = np.arange(records) if units is None else np.asarray(units)
    count = int(owners.max()) + 1
    require(sampling.units(records) == count, f"units must be {count}; got {sampling.units(records)}.")
    sampling = sampling.for_steps(_RUN)
    drawn = _draw(sampling.sampler(records, sample_rate, SeededStream(seed)), _BATCHES, owners)
    # Of bins that are kept over all batches: so much noise that their whole run has an exact account.
    run = mechanisms.MatrixGaussian(50.0, mechanisms.ToeplitzStrategy(_RUN if sampling.whole_run else _BATCHES, (1.0,)))
    base = run if sampling.separates or sampling.whole_run else mechanisms.Gaussian(1.0)
    mechanism = sampling.mechanism(base, records, sample_rate)
    _check_mechanism(sampling, mechanism, records, sample_rate)
    if law is not None:
        law(mechanism, drawn, false_alarm)
    elif isinstance(mechanism, mechanisms.Shuffled):
        sizes = np.full(-(-records // mechanism.batch_size), mechanism.batch_size)
        sizes[-1] = records - sizes[:-1].sum()
        _check_passes(sizes / records, drawn, false_alarm)
    elif base is run or isinstance(mechanism, mechanisms.RandomAllocation):
        raise check.fail("law", "given for batches that depend on each other", str(mechanism))
    else:
        _check_law(mechanism, drawn, sample_rate, false_alarm)
    _check_issue(sampling, records, sample_rate)
    _check_seeds(sampling, records, sample_rate, seed)
    json.dumps(sampling.spec())


def _draw(sampler: Sampler, batches: int, owners: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which unit was in which batch, shape (batches, units)."""
    count = int(owners.max()) + 1
    sizes = np.bincount(owners, minlength=count)
    drawn = np.zeros((batches, count), dtype=bool)
    for row in drawn:
        batch = sampler.issue()
        _check_batch(batch, owners, sizes)
        row[owners[batch.indices]] = True
        sampler.redeem(batch)
    expected = float(drawn.sum(axis=1).mean())
    deviation = math.sqrt(count / batches)
    near = abs(expected - sampler.expected_size) <= max(4 * deviation, 0.25 * sampler.expected_size)
    require(near, f"expected_size must be the mean size of a batch, about {expected:.3g}; got {sampler.expected_size}.")
    return drawn


def _check_batch(batch: Batch, owners: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    indices = np.asarray(batch.indices)
    inside = indices.dtype.kind == "i" and (not len(indices) or (indices.min() >= 0 and indices.max() < len(owners)))
    require(inside, f"indices of a batch must be integers in [0, {len(owners)}).")
    require(len(np.unique(indices)) == len(indices), "a batch must hold each record at most once.")
    present = np.bincount(owners[indices], minlength=len(sizes))
    require(((present == 0) | (present == sizes)).all(), "a batch must hold all records of a unit or none.")
    if batch.owners is not None:
        pairs = {(int(a), int(b)) for a, b in zip(batch.owners, owners[indices], strict=True)}
        one_to_one = len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        require(one_to_one, "owners of a batch must number its units one to one.")


def _check_law(
    mechanism: mechanisms.Mechanism, drawn: NDArray[np.bool_], sample_rate: float, false_alarm: float
) -> None:
    batches, units = drawn.shape
    counts = np.bincount(drawn.sum(axis=1), minlength=units + 1)
    law = _law_of_size(mechanism, units, sample_rate)
    if law is not None:
        impossible = counts[law == 0].sum()
        require(not impossible, f"batches must have a size that the mechanism allows; {impossible} have not.")
        _require_law(counts, law, "sizes of batches", false_alarm)
    masses = counts / batches if law is None else law
    support = np.arange(units + 1)
    rate = float(masses @ support) / units
    joint = float(masses @ (support * (support - 1))) / (units * (units - 1))
    # Exchangeable units: deviations from their mean have the variance (variance - covariance) of one inclusion.
    spread = rate * (1 - rate) - (joint - rate**2)
    _require_chi_square(drawn.sum(axis=0), batches * spread, "how often every unit is drawn", false_alarm)
    twice, rows = (drawn[0::2] & drawn[1::2]).sum(axis=0), len(drawn[1::2])
    both = joint**2 - rate**4
    spread_twice = rate**2 - rate**4 - both
    _require_chi_square(twice, rows * spread_twice, "how often a unit is in two batches in a row", false_alarm)
    pairs, expected = float(twice.sum()), rows * units * rate**2
    deviation = math.sqrt(rows * (units * spread_twice + units**2 * both))
    allowed = float(chi2.isf(false_alarm / _LAWS, 1)) ** 0.5
    sentence = f"batches must be independent: {expected:.0f} units in two batches in a row expected; got {pairs:.0f}."
    require(abs(pairs - expected) <= allowed * deviation + 1e-9, sentence)


def _law_of_size(mechanism: mechanisms.Mechanism, units: int, sample_rate: float) -> NDArray[np.float64] | None:
    """The probabilities of the sizes 0..units, where the mechanism determines them."""
    support = np.arange(units + 1)
    if isinstance(mechanism, mechanisms.FixedSize):
        return (support == mechanism.batch_size).astype(float)
    whole = binom.pmf(support, units, sample_rate)
    if isinstance(mechanism, mechanisms.Poisson):
        return whole
    if isinstance(mechanism, mechanisms.TruncatedPoisson):
        kept = np.where(support <= mechanism.cap, whole, 0.0)
        kept[min(mechanism.cap, units)] += whole[mechanism.cap + 1 :].sum()
        return kept
    return None


def _require_chi_square(counts: NDArray[np.int64], variance: float, what: str, false_alarm: float) -> None:
    """Counts of exchangeable units deviate from their mean as chance allows."""
    if variance <= 0:
        return
    statistic = float(((counts - counts.mean()) ** 2).sum()) / variance
    limit = float(chi2.isf(false_alarm / _LAWS, len(counts) - 1))
    require(statistic <= limit, f"{what} must be alike: chi-square at most {limit:.1f}; got {statistic:.1f}.")


def _check_passes(law: NDArray[np.float64], drawn: NDArray[np.bool_], false_alarm: float) -> None:
    """Every pass holds each unit once; a unit is in each batch of a pass with the probability that `law` gives."""
    passes = _passes(len(law), drawn)
    require((passes.sum(axis=1) == 1).all(), "every pass must hold each record exactly once.")
    places = np.bincount(passes[:, :, 0].argmax(axis=1), minlength=len(law))
    _require_law(places, law, "places in a pass", false_alarm)


def _passes(length: int, drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return drawn[: len(drawn) // length * length].reshape(-1, length, drawn.shape[1])


def _require_law(counts: ArrayLike, law: NDArray[np.float64], what: str, false_alarm: float) -> None:
    """Chi-square test on neighbouring cells joined until each expects enough; the last takes what is left over."""
    starts, due, expected = [0], 0.0, law * np.sum(counts)
    for place, mean in enumerate(expected, start=1):
        due += mean
        if due >= _LEAST_EXPECTED:
            starts, due = [*starts, place], 0.0
    if len(starts) < 3:
        return
    got, means = (np.add.reduceat(values, starts[:-1]) for values in (np.asarray(counts), expected))
    statistic = float(((got - means) ** 2 / means).sum())
    limit = float(chi2.isf(false_alarm / _LAWS, len(means) - 1))
    sentence = f"{what} must follow the law of the mechanism: chi-square at most {limit:.1f}; got {statistic:.1f}."
    require(statistic <= limit, sentence)


def _check_mechanism(sampling: Sampling, mechanism: mechanisms.Mechanism, records: int, sample_rate: float) -> None:
    if isinstance(mechanism, mechanisms.Poisson | mechanisms.TruncatedPoisson):
        require_close(mechanism.sample_rate, sample_rate, "the sampling rate of the mechanism")
    if isinstance(mechanism, mechanisms.FixedSize | mechanisms.Shuffled):
        require_close(mechanism.batch_size / mechanism.records, sample_rate, "the fraction of the mechanism")
    for relation in Relation:
        if relation not in sampling.relations:
            refused = lambda relation=relation: sampling.check_relation(relation)  # noqa: E731
            require_raises(InvalidInput, refused, f"the relation {relation.value}", message="relation must be")
            continue
        sampling.check_relation(relation)
        try:
            accountant("pld")(mechanism, relation=relation)
        except Refused as refusal:
            raise AssertionError(f"{mechanism} must have an exact account under {relation.value}: {refusal}") from None


def _check_issue(sampling: Sampling, records: int, sample_rate: float) -> None:
    sampler = sampling.sampler(records, sample_rate, SeededStream(1))
    batch = sampler.issue()
    require(sampler.issue() is batch, "a batch must be issued again until it is redeemed.")
    require_raises(TrainingMisuse, sampler.state, "a checkpoint while a batch is open")
    other = Batch(batch.indices, batch.owners, batch.average)
    require_raises(TrainingMisuse, lambda: sampler.redeem(other), "a batch that the sampler did not issue")
    sampler.redeem(batch)
    require_raises(TrainingMisuse, lambda: sampler.redeem(batch), "a batch that was redeemed")


def _check_seeds(sampling: Sampling, records: int, sample_rate: float, seed: int) -> None:
    """Equal seeds give equal batches, also from the middle on."""
    streams = [SeededStream(seed) for _ in range(3)]
    first, second = (sampling.sampler(records, sample_rate, stream) for stream in streams[:2])
    require(_alike(first, second, 5), "samplers with equal seeds must issue equal batches.")
    streams[2].restore(streams[0].state())
    resumed = sampling.sampler(records, sample_rate, streams[2])
    resumed.restore(first.state())
    same = _alike(first, resumed, 5)
    require(same, "a sampler that goes on from a checkpoint must issue the batches that would have come.")


def _alike(first: Sampler, second: Sampler, batches: int) -> bool:
    """Whether the next batches of both are equal."""
    same = True
    for _ in range(batches):
        one, other = first.issue(), second.issue()
        first.redeem(one)
        second.redeem(other)
        same &= np.array_equal(one.indices, other.indices) and one.average == other.average
    return same
