"""`NoiseMonitor`: whether the noise that was added is independent N(0, 1) noise of the stated size.

`SamplerMonitor`: whether batches are those of Poisson sampling at the stated rate.

`AllocationMonitor`: whether every record takes part in exactly k of T steps, in a uniform subset of its own.

`GroupMonitor`: whether the batches of groups in turn are those of the sampling that is accounted for.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, fdtr, fdtrc, gammaln, logsumexp, ndtr

from tacit import check
from tacit.root_finding import minimum

ALARM = 1e-6
"""Probability of an alarm about a correct run, over all tests of one monitor."""
_RESERVOIR = 200_000  # values of the Kolmogorov-Smirnov test: a distance of .0065 is an alarm
_FOLLOWED = 4096  # coordinates whose whole history is kept for correlations between steps, at first
_KEPT = 4_000_000  # values of that history at most (16 MB); beyond it every other coordinate is dropped
_SPECTRA = 4_000_000  # values whose correlations between coordinates are computed: error 5e-4 of each
_LEAST_TERMS = 5_000  # of a sum of products, so that its law is normal in the tails that are read


class Monitor(ABC):
    """A test of something that a run keeps secret, read when the run is over."""

    @abstractmethod
    def p_values(self) -> list[float]:
        """The p-value of every test; 0 alone where something was seen that cannot be. Secrets of the run."""

    @property
    def p_value(self) -> float:
        """The smallest p-value times the number of tests, at most 1; a secret of the run."""
        found = self.p_values()
        return min(1.0, min(found, default=1.0) * len(found))

    @property
    def passed(self) -> bool:
        """Whether no test raises the alarm; the only thing to print, since sums of the noise tell of the noise."""
        return self.p_value >= ALARM


class NoiseMonitor(Monitor):
    """Tests of z = (released * divisor - sum before noise) / (noise_multiplier * sensitivity), step after step.

    The tests, each corrected for how many values it looks at: the mean; the sum of squares of all values, of every
    coordinate, of every step, and of the halves of coordinates and steps against each other (exact chi-square and F
    laws); Kolmogorov-Smirnov on a reservoir of 200,000 values; correlations between coordinates and between steps, at
    every lag. The alarm is raised where the smallest p-value times the number of tests is below 1e-6. An error of the
    standard deviation of 5.3 / sqrt(2 N) is seen in N values: 0.8 % in 200,000.

    Example:
        >>> monitor, draw = NoiseMonitor(), np.random.default_rng(0)
        >>> for _ in range(50):
        ...     monitor.add(draw.normal(size=4000))
        >>> monitor.passed
        True
    """

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._squares, self._total = np.zeros(0), 0.0
        self._kept: list[NDArray[np.float32]] = []
        self._spectrum, self._spectra = np.zeros(1), 0
        self._reservoir = np.empty(0)
        self._draw = np.random.default_rng(0)  # chooses among values; no secret

    def add(self, z: NDArray[np.floating]) -> None:
        """Count the standardised noise of one step, shape (coordinates,), the same length at every step."""
        z = np.asarray(z, dtype=np.float64).ravel()
        if not len(self._squares):
            check.that(len(z) >= 2, "z", "of two coordinates at least", len(z))
            self._squares = np.zeros(len(z))
            self._followed = np.linspace(0, len(z) - 1, min(_FOLLOWED, len(z))).astype(int)
        check.that(len(z) == len(self._squares), "z", f"of {len(self._squares)} coordinates, as before", len(z))
        # A value that is no number is no noise: it counts as one that no noise reaches.
        z = np.nan_to_num(z, nan=1e6, posinf=1e6, neginf=-1e6)
        squares = z * z
        self._sample(z)
        self._squares += squares
        self._steps.append(float(squares.sum()))
        self._total += float(z.sum())
        self._kept.append(z[self._followed].astype(np.float32))
        if len(self._kept) * len(self._followed) > _KEPT and len(self._followed) > 1:
            self._followed, self._kept = self._followed[::2], [row[::2] for row in self._kept]
        if self._spectra * len(z) < _SPECTRA:
            self._spectrum = self._spectrum + _correlation(z[:, None])
            self._spectra += 1

    @property
    def count(self) -> int:
        """Number of values so far."""
        return len(self._squares) * len(self._steps)

    def p_values(self) -> list[float]:
        """Of the mean, of sums of squares, of the shape and of correlations."""
        check.that(len(self._squares), "steps", "one at least before the monitor is read", 0)
        coordinates, steps, history = self._squares, np.array(self._steps), np.stack(self._kept)
        return [
            float(2 * ndtr(-abs(self._total) / math.sqrt(self.count))),
            _chi_square(np.array([coordinates.sum()]), self.count),
            *(test(coordinates, len(steps)) for test in (_chi_square, _halves_differ)),
            *(test(steps, len(coordinates)) for test in (_chi_square, _halves_differ)),
            self._shape(),
            _correlated(self._spectrum, self._spectra, len(coordinates)),
            _correlated(_correlation(history), history.shape[1], len(history)),
        ]

    def _shape(self) -> float:
        """P-value of the Kolmogorov-Smirnov test by the bound of Massart 1990, sharp where it is small."""
        count, chances = len(self._reservoir), ndtr(np.sort(self._reservoir))
        ranks = np.arange(count + 1) / count
        distance = max((ranks[1:] - chances).max(), (chances - ranks[:-1]).max())
        return min(1.0, 2 * math.exp(-2 * count * distance**2))

    def _sample(self, z: NDArray[np.float64]) -> None:
        """Reservoir sampling: every value so far is kept with the same probability."""
        room = _RESERVOIR - len(self._reservoir)
        self._reservoir = np.concatenate([self._reservoir, z[:room]]) if room else self._reservoir
        late = z[room:]
        seen = self.count + room + np.arange(1, len(late) + 1)
        chosen = self._draw.random(len(late)) < _RESERVOIR / seen
        places = self._draw.integers(0, _RESERVOIR, int(chosen.sum()))
        self._reservoir[places] = late[chosen]


def _chi_square(sums: NDArray[np.float64], degrees: int) -> float:
    """Two-sided p-value of the most extreme of independent chi-square sums, times how many there are."""
    return float(min(1.0, 2 * len(sums) * min(chdtr(degrees, sums.min()), chdtrc(degrees, sums.max()))))


def _halves_differ(sums: NDArray[np.float64], degrees: int) -> float:
    """Two-sided p-value of the F law for the first half of the sums against the second; 1 for a single sum."""
    half = len(sums) // 2
    if not half:
        return 1.0
    first, second = sums[:half].sum(), sums[-half:].sum()
    ratio, count = first / second if second > 0 else math.inf, half * degrees
    return float(min(1.0, 2 * min(fdtr(count, count, ratio), fdtrc(count, count, ratio))))


def _correlation(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Autocorrelation sums over columns and i of values[i] values[i + h], shape (rows,), for lags h = 0, 1, ..."""
    rows = len(values)
    size = 1 << (2 * rows - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(values, size, axis=0)) ** 2
    return np.fft.irfft(spectrum.sum(axis=1), size)[:rows]


def _correlated(sums: NDArray[np.floating], repeats: int, length: int) -> float:
    """p-value of the largest correlation of any lag >= 1, times the number of lags; 1 for too few values."""
    terms = repeats * (length - np.arange(1, length))
    enough = terms >= _LEAST_TERMS
    if not enough.any():
        return 1.0
    largest = np.max(np.abs(sums[1:length][enough]) / np.sqrt(terms[enough]))
    return float(min(1.0, 2 * enough.sum() * ndtr(-largest)))


_REACH = 12.0  # standard deviations of the binomial that enter a moment generating function: 1e-30 lies beyond


class SamplerMonitor(Monitor):
    """Tests of the batches that were trained on against `records` independent coins of probability `sample_rate`.

    The tests: all inclusions together, the largest and the smallest batch, the most and the least often drawn record
    (exact binomial quantiles); chi-square of the sizes against Binomial(n, q) and of the counts of inclusion against
    Binomial(T, q); records that are in two consecutive batches, Binomial(n, q^2) for disjoint pairs of steps (lag 1).
    The p-values of the two chi-squares are Chernoff bounds of the exact law, which hold for rare events (n q < 5) too,
    where the chi-square law does not. The alarm is raised where the smallest p-value times the number of tests is below
    1e-6.

    Args:
        records: n >= 1.
        sample_rate: q in (0, 1].

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> monitor, draw = SamplerMonitor(1000, 0.05), np.random.default_rng(0)
        >>> for _ in range(100):
        ...     monitor.add(np.flatnonzero(draw.random(1000) < 0.05))
        >>> monitor.passed
        True
    """

    def __init__(self, records: int, sample_rate: float):
        self.records = check.count("records", records)
        self.sample_rate = check.probability("sample_rate", sample_rate, open_low=True)
        self._sizes, self._overlaps, self._twice = list[int](), list[int](), False
        self._counts, self._last = np.zeros(self.records, np.int64), np.zeros(self.records, bool)

    def add(self, batch: NDArray[np.integer]) -> None:
        """Count one batch: the numbers of its records."""
        times = np.bincount(np.asarray(batch, dtype=np.int64), minlength=self.records)
        if len(times) > self.records:
            raise check.fail("batch", f"of records below {self.records}", int(len(times) - 1))
        self._twice |= bool((times > 1).any())
        inside = times > 0
        if self._sizes:
            self._overlaps.append(int((inside & self._last).sum()))
        self._sizes.append(int(times.sum()))
        self._counts += times
        self._last = inside

    def p_values(self) -> list[float]:
        """Of all inclusions, of the extreme and of all sizes and counts, and of pairs of consecutive batches."""
        check.that(self._sizes, "steps", "one at least before the monitor is read", 0)
        if self._twice:
            return [0.0]
        steps, n, q = len(self._sizes), self.records, self.sample_rate
        sizes = np.array(self._sizes)
        found = binomial_p_values(sizes.sum(), n * steps, q)
        for values, trials in ((sizes, n), (self._counts, steps)):
            extremes = binomial_p_values([values.min(), values.max()], trials, q)
            found += [min(1.0, len(values) * min(extremes)), _dispersion(values, trials, q)]
        for first in (0, 1):
            pairs = self._overlaps[first::2]
            found += binomial_p_values(sum(pairs), n * len(pairs), q**2)
        return found


def _dispersion(values: NDArray[np.int64], trials: int, rate: float) -> float:
    """p-value of x = sum (k - n q)^2 / (n q (1 - q)) over independent binomial values k.

    Two-sided Chernoff bound min_s exp(m log E e^{s X} - s x) on the sum of m squared deviations X.
    """
    mean, variance, terms = trials * rate, trials * rate * (1 - rate), len(values)
    if variance == 0:
        return 1.0 if np.all(values == mean) else 0.0
    seen = float(np.sum((values - mean) ** 2) / variance)
    reach = _REACH * math.sqrt(variance) + _REACH**2
    events = np.arange(max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach)) + 1)
    ways = gammaln(trials + 1) - gammaln(events + 1) - gammaln(trials - events + 1)
    logs = ways + events * math.log(rate) + (trials - events) * math.log1p(-rate)
    squares = (events - mean) ** 2 / variance
    sign = 1.0 if seen >= terms else -1.0

    def bound(log_s: float) -> float:
        s = sign * math.exp(log_s)
        return terms * float(np.asarray(logsumexp(logs + s * squares))) - s * seen

    return min(1.0, 2 * math.exp(min(0.0, bound(minimum(bound, -20.0, 6.0, accuracy=1e-5)))))


class AllocationMonitor(Monitor):
    """Tests of batches against allocation: each of n records in k of every T steps, a uniform subset drawn by itself.

    Without tolerance: no record twice in a batch, more than k times in a pass of T steps, or fewer when it ends. By
    exact binomial p-values: the size of every batch, Binomial(n, k / T); with k > 1 the records in a batch and the one
    before, Binomial(n, k (k - 1) / (T (T - 1))); with k = 1 the records that are in the same step as in the pass
    before, Binomial(n, 1 / T), which allocation that is not drawn anew fails. The alarm is raised where the smallest
    p-value times the number of tests is below 1e-6, which correct batches do with that probability at most.

    Args:
        records: n >= 1.
        steps: T >= 1.
        participations: k in [1, T].

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> monitor, draw = AllocationMonitor(1000, steps=4), np.random.default_rng(0)
        >>> for _ in range(3):
        ...     place = draw.integers(4, size=1000)
        ...     for step in range(4):
        ...         monitor.add(np.flatnonzero(place == step))
        >>> monitor.passed
        True
    """

    def __init__(self, records: int, steps: int, participations: int = 1):
        self.records, self.steps = check.count("records", records), check.count("steps", steps)
        if check.count("participations", participations) > steps:
            raise check.fail("participations", f"at most steps = {steps}", participations)
        self.participations = participations
        self._wrong = False
        self._p_values: list[float] = []
        self._turn = 0
        self._left = np.full(records, participations)
        self._last = np.zeros(records, bool)
        self._place = np.full(records, -1)
        self._again = 0

    def add(self, batch: NDArray[np.integer]) -> None:
        """Count one batch: the numbers of its records, below n."""
        inside = np.zeros(self.records, bool)
        inside[batch] = True
        self._wrong |= int(inside.sum()) != len(batch)
        step, k = self._turn % self.steps, self.participations
        self._left -= inside
        self._test(int(inside.sum()), k / self.steps)
        if step and k > 1:
            self._test(int((inside & self._last).sum()), k * (k - 1) / (self.steps * (self.steps - 1)))
        if k == 1:
            self._again += int((self._place[inside] == step).sum())
            self._place[inside] = step
        self._last = inside
        self._turn += 1
        if step == self.steps - 1:
            self._wrong |= bool(self._left.any())
            self._left[:] = k
            if k == 1 and self._turn > self.steps:
                self._test(self._again, 1 / self.steps)
            self._again = 0

    def _test(self, seen: int, rate: float) -> None:
        self._p_values += binomial_p_values(seen, self.records, rate)

    def p_values(self) -> list[float]:
        """Of the sizes, of repeated records and of repeated places; 0 where a record is too often or too rarely in."""
        return [0.0] if self._wrong or (self._left < 0).any() else self._p_values


def binomial_p_values(seen: ArrayLike, trials: int, rate: float) -> list[float]:
    """Two-sided exact p-values of numbers of events, shape (tests,), or of one."""
    seen = np.atleast_1d(seen)
    below = bdtr(seen, trials, rate)
    above = np.where(seen > 0, bdtrc(seen - 1, trials, rate), 1.0)
    return np.minimum(1.0, 2 * np.minimum(below, above)).tolist()


class GroupMonitor(Monitor):
    """Tests of batches that are drawn from one group of records after another.

    Every record has a uniform group of its own: sizes of groups against Binomial(n, 1 / groups). A batch holds records
    of its group alone. Within a group: Poisson sampling at `rate` by `SamplerMonitor`; or each record once in every
    `block` turns, at a uniform turn, by `AllocationMonitor`. The alarm is raised where the smallest p-value times the
    number of tests is below 1e-6.

    Args:
        groups: >= 1.
        rate: of a record at its group's turn, in (0, 1]; of no use with a `block`.
        block: turns of a group of which a record has one; None for Poisson sampling.

    Example:
        >>> monitor, group_of = GroupMonitor(2, rate=1.0), np.array([0, 1, 0, 1])
        >>> for turn in range(4):
        ...     monitor.add(np.flatnonzero(group_of == turn % 2), group_of)
        >>> monitor.passed
        True
    """

    def __init__(self, groups: int, *, rate: float, block: int | None = None):
        self.groups, self.rate, self.block = groups, rate, block
        self._wrong = False
        self._p_values: list[float] = []
        self._turn = 0
        self._members: list[NDArray[np.int64]] = []

    def add(self, batch: NDArray[np.int64], group_of: NDArray[np.int64]) -> None:
        """Count one batch, the numbers of its records, where record i is in group group_of[i]."""
        if not self._members:
            self._members = [np.flatnonzero(group_of == group) for group in range(self.groups)]
            sizes = np.array([len(members) for members in self._members])
            self._p_values += binomial_p_values(sizes, len(group_of), 1 / self.groups)
            # Records of a group are numbered anew.
            counts = [max(1, size) for size in sizes.tolist()]
            poisson, block = self.block is None, self.block or 0
            self._inner = [SamplerMonitor(n, self.rate) if poisson else AllocationMonitor(n, block) for n in counts]
        group = self._turn % self.groups
        members = self._members[group]
        places = np.searchsorted(members, batch)
        self._wrong |= bool((group_of[batch] != group).any()) or len(np.unique(batch)) != len(batch)
        if not self._wrong and len(members):
            self._inner[group].add(places)
        self._turn += 1

    def p_values(self) -> list[float]:
        """Of the sizes of groups, and the one of each group that had a turn; 0 where a record is in another's batch."""
        if self._wrong:
            return [0.0]
        seen = zip(self._inner, self._members, range(self._turn), strict=False)
        return [*self._p_values, *(monitor.p_value for monitor, members, _ in seen if len(members))]
