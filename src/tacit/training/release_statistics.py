"""Whether noise and batches of a run have the law that its ledger states, and what becomes of a run that has not.

Noise must be independent N(0, 1) noise of the stated size, batches those of the stated rate, and neither may follow a
generator that a program can seed. A failed measurement is raised, or collected while an audit repeats the run.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from scipy.special import bdtr, bdtrc, chdtr, chdtrc

from tacit import check
from tacit.clipping import FlatClip
from tacit.errors import Refused, TacitError
from tacit.gradients import FlatGradient
from tacit.gradients.module_state import restored_generators
from tacit.mechanisms import FixedSize, Mechanism, Poisson, TruncatedPoisson
from tacit.noise import SecureStream
from tacit.sampling import Batch, Sampling
from tacit.training.release import NoisyMean

# Probability of an alarm in one test of a correct run; four tests at about twenty steps of a run make 1e-7 in all.
_ALARM = 1e-9
_FAR = 6.2  # standard deviations that a normal value reaches with half of that probability on either side
# Values for the normal law to hold in the tails that are read: of a sum of products, and of fourth powers, whose sum
# exceeds seven standard deviations with a probability below 1e-9 from there on.
_LEAST_PRODUCTS, _LEAST_POWERS, _FAR_POWERS = 5_000, 20_000, 7.0
_FAR_ANYWHERE = 7.9  # exceeded with a probability of 3e-15, at one of 2^17 distances below 1e-9


class NoiseStatistics:
    """Sums over z = (released sum - sum before noise) / standard deviation, step after step.

    Example:
        >>> statistics, draw = NoiseStatistics(), np.random.default_rng(0)
        >>> for _ in range(10):
        ...     statistics.add(draw.standard_normal(10_000))
        >>> statistics.alarm()
        ''
        >>> statistics.add(0.9 * draw.standard_normal(200_000))
        >>> statistics.alarm()
        'of another size'
    """

    def __init__(self) -> None:
        self._count = self._products = 0
        self._squares = self._powers = self._lagged = 0.0
        self._last: np.ndarray | None = None

    def add(self, z: np.ndarray) -> None:
        """Count the noise of one step, shape (coordinates,), finite, float64."""
        squares = z * z
        self._count += z.size
        self._squares += float(z @ z)
        self._powers += float(squares @ squares)
        if self._last is not None and len(self._last) == len(z):
            self._lagged += float(z @ self._last)
            self._products += z.size
        self._last = z

    def alarm(self) -> str:
        """What is wrong with the noise so far; empty where every test is passed."""
        n = self._count
        if min(chdtr(n, self._squares), chdtrc(n, self._squares)) < _ALARM / 2:
            return "of another size"
        if n >= _LEAST_POWERS and abs(self._powers - 3 * n) > _FAR_POWERS * math.sqrt(96 * n):
            return "not normal"
        if self._products >= _LEAST_PRODUCTS and abs(self._lagged) > _FAR * math.sqrt(self._products):
            return "repeated at the next step"
        if self._last is not None and _repeats(self._last):
            return "repeated within a step"
        return ""


def _repeats(z: np.ndarray) -> bool:
    """Whether values are correlated at any distance; products of too few are not looked at."""
    size = 1 << (2 * len(z) - 1).bit_length()
    sums = np.fft.irfft(np.abs(np.fft.rfft(z, size)) ** 2, size)[1 : len(z)]
    terms = np.arange(len(z) - 1, 0, -1)
    enough = terms >= _LEAST_PRODUCTS
    return bool((np.abs(sums[enough]) > _FAR_ANYWHERE * np.sqrt(terms[enough])).any())


# Variance of a batch size and number of batches from which the sum of its squared deviations is a chi-square.
_LEAST_VARIANCE, _LEAST_BATCHES = 20.0, 32
_LEAST_RECORDS = 1000  # drawn ones, for their mean number to be normal


class BatchStatistics:
    """Sizes and places of the batches that are charged.

    Args:
        records: n >= 1.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> statistics, draw = BatchStatistics(1000), np.random.default_rng(0)
        >>> for _ in range(50):
        ...     batch = Batch(np.flatnonzero(draw.random(1000) < 0.2))
        ...     found = statistics.add(batch, Gaussian(1.0).poisson(0.2))
        >>> found, statistics.alarm(), BatchStatistics(9).add(Batch(np.array([1, 1])), Gaussian(1.0).poisson(0.2))
        ('', '', 'hold a record twice')
    """

    def __init__(self, records: int):
        self._records = records
        self._drawn, self._places = 0, 0.0
        self._sizes: dict[float, list[int]] = {}

    def add(self, batch: Batch, mechanism: Mechanism) -> str:
        """Count a batch that is charged as `mechanism`; what is wrong with it alone, empty for nothing."""
        indices = batch.indices
        if not (indices[1:] > indices[:-1]).all() and len(np.unique(indices)) < len(indices):
            return "hold a record twice"
        if batch.owners is not None:
            return ""
        self._drawn += len(indices)
        self._places += float(indices.sum())
        if isinstance(mechanism, Poisson):
            self._sizes.setdefault(mechanism.sample_rate, []).append(len(indices))
        other = isinstance(mechanism, FixedSize) and len(indices) != mechanism.batch_size
        larger = isinstance(mechanism, TruncatedPoisson) and len(indices) > mechanism.cap
        return "are of another size" if other or larger else ""

    def alarm(self) -> str:
        """What is wrong with the batches so far; empty where every test is passed."""
        for rate, sizes in self._sizes.items():
            if said := self._sizes_alarm(rate, np.array(sizes)):
                return said
        # Drawn without preference, the numbers of records have mean (n - 1) / 2 and variance at most n^2 / 12.
        middle = self._drawn * (self._records - 1) / 2
        spread = self._records * math.sqrt(self._drawn / 12)
        if self._drawn >= _LEAST_RECORDS and abs(self._places - middle) > _FAR * spread:
            return "prefer some records"
        return ""

    def _sizes_alarm(self, rate: float, sizes: np.ndarray) -> str:
        trials, seen = self._records * len(sizes), int(sizes.sum())
        if rate == 1:
            return "" if seen == trials else "are drawn at another rate"
        low, high = bdtr(seen, trials, rate), bdtrc(seen - 1, trials, rate) if seen else 1.0
        if min(low, high) < _ALARM / 2:
            return "are drawn at another rate"
        variance = self._records * rate * (1 - rate)
        if len(sizes) < _LEAST_BATCHES or variance < _LEAST_VARIANCE:
            return ""
        deviations = float(np.square(sizes - self._records * rate).sum()) / variance
        return "vary too little in size" if chdtr(len(sizes), deviations) < _ALARM else ""


# Two independent draws agree with a probability below 1e-17: values of noise, and variance of the size of a batch, of
# which two are equal with probability prod (q^2 + (1 - q)^2) <= exp(-2 n q (1 - q)).
_VALUES, _LEAST_SIZES = 64, 20.0


def check_draws(sampling: Sampling, records: int, sample_rate: float) -> None:
    """Draw noise and a batch twice from new secure streams, all generators put back in between.

    Args:
        sampling: of the run.
        records: number of records.
        sample_rate: in (0, 1].

    Raises:
        Refused: both draws are the same: a seed, or a key that is no secret, decides them.

    Example:
        >>> from tacit.sampling import PoissonSampling
        >>> check_draws(PoissonSampling(), 1000, 0.1)
    """
    draws: dict[str, Callable[[], np.ndarray]] = {"noise": _drawn_noise}
    varies = sampling.units(records) * sample_rate * (1 - sample_rate) >= _LEAST_SIZES
    # Another sampling may draw as it likes; its accounting is its own.
    if sampling.uniform and varies:
        draws["batches"] = lambda: sampling.sampler(records, sample_rate, SecureStream()).draw().indices
    for what, draw in draws.items():
        if _is_repeated(draw):
            says = "must come from the secure stream; two draws are the same. A generator that can be seeded decides"
            refuse(Refused(f"{what} {says} them: report it, with the versions of tacit and torch."))


def _drawn_noise() -> np.ndarray:
    zeros = FlatGradient(torch.zeros(_VALUES), {})
    return NoisyMean(SecureStream())(FlatClip(1.0), zeros, torch.zeros(0), 1.0, 1.0).mean.flat.numpy()


def _is_repeated(draw: Callable[[], np.ndarray]) -> bool:
    """Whether `draw` gives the same twice after the same state of torch's, numpy's and Python's generators."""
    with restored_generators() as again:
        first = draw()
        again()
        return np.array_equal(first, draw())


_COLLECTED: ContextVar[list[str] | None] = ContextVar("refusals", default=None)


def refuse(error: TacitError) -> None:
    """Raise `error`; within `collected_refusals` its sentence is kept, and the run goes on."""
    collected = _COLLECTED.get()
    if collected is None:
        raise error
    if str(error) not in collected:
        collected.append(str(error))


@contextmanager
def collected_refusals() -> Iterator[list[str]]:
    """Context in which measurements of releases are kept instead of raised, for audits; their sentences, each once.

    An audit repeats a run to learn how wrong its claim is, and its own releases are shown to nobody.
    """
    collected: list[str] = []
    with check.within(_COLLECTED, collected):
        yield collected
