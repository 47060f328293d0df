"""Exact samplers of discrete laws, in integers and rationals: no rounding takes place.

Source: Canonne, Kamath & Steinke 2020 (arXiv:2004.00010), Algorithms 1 to 3; McKenna & Sheldon 2020 for
permute-and-flip.

A private choice among candidates with scores: the exponential mechanism and permute-and-flip, drawn exactly.

The continuous noises that mechanisms add, drawn from a stream.

Floating-point noise is not exactly the analysed distribution (Mironov 2012): the low-order bits of a single released
value can leak. Training and most releases take exact noise instead (`rounded_gaussian`, `discrete`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Exponential, Mechanism, PermuteAndFlip
from tacit.noise.stream import Size, Stream
from tacit.relation import Relation


def uniform_integer(stream: Stream, count: int) -> int:
    """An integer of 0, ..., count - 1, each with probability 1 / count, by rejection.

    Example:
        >>> from tacit.noise import SeededStream
        >>> uniform_integer(SeededStream(0), 10) in range(10)
        True
    """
    return int(uniform_integers(stream, count, 1)[0])


def uniform_integers(stream: Stream, count: int, size: int) -> NDArray[np.int64]:
    """`size` independent integers of 0, ..., count - 1, each with probability 1 / count, by rejection.

    Example:
        >>> from tacit.noise import SeededStream
        >>> uniform_integers(SeededStream(0), 1, 3).tolist()
        [0, 0, 0]
    """
    last = np.uint64(2**64 - 2**64 % check.count("count", count, maximum=2.0**63) - 1)
    words = stream.bits(size)
    while len(again := np.flatnonzero(words > last)):
        words[again] = stream.bits(len(again))
    return (words % np.uint64(count)).astype(np.int64)


def bernoulli(stream: Stream, probability: Fraction) -> bool:
    """True with exactly this rational probability; bits are drawn until they decide.

    Raises:
        InvalidInput: the probability is outside of [0, 1].
    """
    rest = probability
    if not 0 <= rest <= 1:
        raise InvalidInput(f"probability must be in [0, 1]; got {float(rest)!r}.")
    while rest not in (0, 1):
        rest *= 2**64
        whole, word = int(rest), int(stream.bits(1)[0])
        if word != whole:
            return word < whole
        rest -= whole
    return rest == 1


def bernoulli_exp(stream: Stream, exponent: Fraction) -> bool:
    """True with probability exactly e^-exponent, exponent >= 0 rational (Algorithm 1).

    Example:
        >>> from tacit.noise import SeededStream
        >>> bernoulli_exp(SeededStream(0), Fraction(0))
        True
    """
    if exponent < 0:
        raise InvalidInput(f"exponent must be at least 0; got {float(exponent)!r}.")
    while exponent > 1:
        if not bernoulli_exp(stream, Fraction(1)):
            return False
        exponent -= 1
    count = 1
    while bernoulli(stream, exponent / count):
        count += 1
    return count % 2 == 1


def discrete_laplace(stream: Stream, scale: Fraction) -> int:
    """An integer k with probability proportional to e^(-|k| / scale), scale > 0 rational (Algorithm 2).

    Example:
        >>> from tacit.noise import SeededStream
        >>> isinstance(discrete_laplace(SeededStream(0), Fraction(3, 2)), int)
        True
    """
    if scale <= 0:
        raise InvalidInput(f"scale must be above 0; got {float(scale)!r}.")
    top, bottom = scale.numerator, scale.denominator
    while True:
        part = uniform_integer(stream, top)
        if not bernoulli_exp(stream, Fraction(part, top)):
            continue
        rounds = 0
        while bernoulli_exp(stream, Fraction(1)):
            rounds += 1
        size = (part + top * rounds) // bottom
        negative = uniform_integer(stream, 2) == 1
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(stream: Stream, variance: Fraction) -> int:
    """An integer k with probability proportional to e^(-k^2 / (2 variance)), variance > 0 rational (Algorithm 3).

    Example:
        >>> from tacit.noise import SeededStream
        >>> isinstance(discrete_gaussian(SeededStream(0), Fraction(4)), int)
        True
    """
    if variance <= 0:
        raise InvalidInput(f"variance must be above 0; got {float(variance)!r}.")
    # Any positive integer gives the same law; floor(std) + 1 makes about half of the trials succeed.
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    while True:
        trial = discrete_laplace(stream, Fraction(scale))
        if bernoulli_exp(stream, (abs(trial) - variance / scale) ** 2 / (2 * variance)):
            return trial


def permute_and_flip(
    stream: Stream, scores: Sequence[int | Fraction], *, epsilon: Fraction, sensitivity: Fraction
) -> int:
    """The index of a high score by permute-and-flip, which is epsilon-DP.

    Candidates are visited in random order; one whose score is `gap` below the best is taken with probability exactly
    e^(-epsilon gap / (2 sensitivity)).

    Args:
        stream: source of the bits.
        scores: rational, at least one; one record moves each by at most `sensitivity`.
        epsilon: > 0.
        sensitivity: > 0.

    Raises:
        InvalidInput: no scores, or a parameter is not above 0.

    Source: McKenna & Sheldon 2020, Algorithm 1 and Theorem 2.
    """
    exact = _exact_scores(scores, epsilon, sensitivity)
    best, left = max(exact), list(range(len(exact)))
    while True:
        at = left.pop(uniform_integer(stream, len(left)))
        if bernoulli_exp(stream, epsilon * (best - exact[at]) / (2 * sensitivity)):
            return at


def exponential_mechanism(
    stream: Stream, scores: Sequence[int | Fraction], *, epsilon: Fraction, sensitivity: Fraction
) -> int:
    """An index with probability exactly proportional to e^(epsilon score / (2 sensitivity)), by rejection.

    Args:
        stream: source of the bits.
        scores: rational, at least one; one record moves each by at most `sensitivity`.
        epsilon: > 0.
        sensitivity: > 0.

    Raises:
        InvalidInput: no scores, or a parameter is not above 0.

    Source: McSherry & Talwar 2007, Theorem 6.
    """
    exact = _exact_scores(scores, epsilon, sensitivity)
    best = max(exact)
    while True:
        at = uniform_integer(stream, len(exact))
        if bernoulli_exp(stream, epsilon * (best - exact[at]) / (2 * sensitivity)):
            return at


def truncated_negative_binomial(stream: Stream, shape: Fraction, gamma: Fraction) -> int:
    """A number of trials k >= 1 with probability proportional to (1 - gamma)^k prod_{l < k} (l + shape) / (l + 1).

    Exactly, by rejection from the geometric law: k stays with probability prod_{0 < l < k} (l + shape) / (l + 1), one
    coin for each factor as k grows; the first that fails begins anew.

    Args:
        stream: source of the bits.
        shape: in (-1, 1]: 1 is the geometric law, 0 the logarithmic one.
        gamma: in (0, 1).

    Raises:
        InvalidInput: shape or gamma is out of range.

    Example:
        >>> from tacit.noise import SeededStream
        >>> truncated_negative_binomial(SeededStream(0), Fraction(0), Fraction(1, 100)) >= 1
        True

    Source: Papernot & Steinke 2022, Definition 1.
    """
    if not -1 < shape <= 1 or not 0 < gamma < 1:
        raise InvalidInput(f"shape must be in (-1, 1] and gamma in (0, 1); got {float(shape)!r}, {float(gamma)!r}.")
    trials = 1
    while not bernoulli(stream, gamma):
        trials = trials + 1 if bernoulli(stream, (trials + shape) / (trials + 1)) else 1
    return trials


def poisson(stream: Stream, mean: Fraction) -> int:
    """A number k >= 0 with probability mean^k e^-mean / k!, as a sum of numbers with means of at most 1.

    Each is drawn exactly by rejection from P(k) = 2^-(k + 1), kept with probability (2 mean)^k / (2 k!).

    Raises:
        InvalidInput: the mean is not above 0.

    Example:
        >>> from tacit.noise import SeededStream
        >>> poisson(SeededStream(0), Fraction(20)) > 0
        True
    """
    if mean <= 0:
        raise InvalidInput(f"mean must be above 0; got {float(mean)!r}.")
    total, rest = 0, mean
    while rest > 0:
        part = min(rest, Fraction(1))
        total, rest = total + _few(stream, part), rest - part
    return total


def _few(stream: Stream, mean: Fraction) -> int:
    """Draw `poisson` with a mean of at most 1, where (2 mean)^k / k! is at most 2."""
    while True:
        k = 0
        while bernoulli(stream, Fraction(1, 2)):
            k += 1
        if bernoulli(stream, (2 * mean) ** k / (2 * math.factorial(k))):
            return k


def _exact_scores(scores: Sequence[int | Fraction], epsilon: Fraction, sensitivity: Fraction) -> list[Fraction]:
    if not scores or epsilon <= 0 or sensitivity <= 0:
        raise InvalidInput("scores, epsilon and sensitivity must be: at least one score, both numbers above 0.")
    return [Fraction(score) for score in scores]


METHODS = ("exponential", "permute_and_flip")
_GRID = Fraction(1, 2**20)  # of scores, in sensitivities; half of it is room for the rounding of counts and penalties


@dataclass(frozen=True)
class Scores:
    """A score for each candidate, higher is better.

    Attributes:
        values: shape (candidates,).
        sensitivity: bound on the change of any of them by one record.
        monotone: whether adding a record moves all of them in the same direction.

    Example:
        >>> Scores(np.array([1.0, 2.0]), sensitivity=1.0).values.tolist()
        [1.0, 2.0]
    """

    values: NDArray[np.float64]
    sensitivity: float
    monotone: bool = False

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=float)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)):
            raise check.fail("scores", "a list of finite numbers, one a candidate", self.values)
        check.positive("sensitivity", self.sensitivity)
        object.__setattr__(self, "values", values)


def choice_mechanism(epsilon: float, *, method: str = "exponential") -> Mechanism:
    """Mechanism of a choice by either method, epsilon-DP.

    Both guarantees are tight. The losses of permute-and-flip spread over more than epsilon: where one of two equal
    candidates gains, they are epsilon and -ln(2 - e^-epsilon). So it is not of bounded range.

    Args:
        epsilon: > 0.
        method: "exponential" or "permute_and_flip".

    Raises:
        InvalidInput: the method is unknown, or epsilon is not positive.

    Example:
        >>> choice_mechanism(0.1)
        Exponential(epsilon=0.1...)

    Source: Durfee & Rogers 2019; McKenna & Sheldon 2020, Theorem 2.
    """
    check.choice("selection", method, METHODS)
    return Exponential(epsilon) if method == "exponential" else PermuteAndFlip(epsilon)


def log_probabilities(scores: Scores, epsilon: float, relation: Relation) -> NDArray[np.float64]:
    """Log probability with which the exponential mechanism picks each candidate.

    Proportional to exp(epsilon u / (2 sensitivity)); for monotone scores under add/remove the factor 2 is not needed.

    Example:
        >>> log_probabilities(Scores(np.ones(2), 1.0), 1.0, Relation.ADD_REMOVE).round(3).tolist()
        [-0.693, -0.693]
    """
    return log_softmax(_rate(scores, epsilon, relation) * scores.values)


def choose(scores: Scores, epsilon: float, stream: Stream, *, relation: Relation, method: str = "exponential") -> int:
    """Index of the candidate that the private choice picks, at the cost of `choice_mechanism`.

    Permute-and-flip (McKenna & Sheldon 2020) goes through the candidates in random order and takes one with probability
    exp(rate (u - max u)); its expected error is never larger. Both are drawn exactly, for scores rounded to multiples
    of 2^-20 sensitivities, which may move by that much more; timing is not protected.

    Args:
        scores: of the candidates.
        epsilon: > 0.
        stream: source of the randomness.
        relation: neighbouring relation.
        method: "exponential" or "permute_and_flip".

    Raises:
        InvalidInput: the method is unknown, or epsilon is not positive.
        Refused: the rate at which scores count would cost more than epsilon.

    Example:
        >>> from tacit.noise import SeededStream
        >>> choose(Scores(np.array([90.0, 10.0]), 1.0), 5.0, SeededStream(0), relation=Relation.ADD_REMOVE)
        0
    """
    check.choice("selection", method, METHODS)
    _check_choices(scores, epsilon, relation)
    unit = Fraction(scores.sensitivity) * _GRID
    rounded = [round(Fraction(value) / unit) * unit for value in scores.values.tolist()]
    # Twice the rate: both samplers halve epsilon, as for scores that may move in either direction.
    doubled = 2 * Fraction(_rate(scores, epsilon, relation)) / (1 + 2 * _GRID)
    draw = exponential_mechanism if method == "exponential" else permute_and_flip
    return draw(stream, rounded, epsilon=doubled, sensitivity=Fraction(1))


def _rate(scores: Scores, epsilon: float, relation: Relation) -> float:
    single = scores.monotone and relation is not Relation.REPLACE_ONE
    return check.positive("epsilon", epsilon) / (scores.sensitivity * (1 if single else 2))


def _check_choices(scores: Scores, epsilon: float, relation: Relation) -> None:
    """Raise `Refused` where one record could make the unlikelier of two candidates more than e^epsilon times as likely.

    The trial is the worst of all: scores far apart that move towards each other, both at once unless they are monotone
    and a record only comes or goes.
    """
    step, far = scores.sensitivity, 60 * scores.sensitivity / epsilon
    other = 0.0 if scores.monotone and relation is not Relation.REPLACE_ONE else -step
    before, after = (
        log_probabilities(replace(scores, values=np.array(values)), epsilon, relation)[1]
        for values in ((0.0, -far), (other, step - far))
    )
    if not after - before <= epsilon * (1 + 1e-9) + 1e-12:
        raise Refused("a choice must favour no candidate by more than its epsilon states; it would.")


def gaussian(stream: Stream, size: Size, *, std: float) -> NDArray[np.floating]:
    """Independent N(0, std^2) values; `std` >= 0."""
    return stream.normal(size) * check.real("std", std, low=0.0)


def laplace(stream: Stream, size: Size, *, scale: float) -> NDArray[np.float64]:
    """Independent Laplace values of density exp(-|x| / scale) / (2 scale); `scale` >= 0.

    The difference of two exponentials, so that both tails keep the full resolution of the uniform.
    """
    exponentials = np.log(stream.uniform(size)) - np.log(stream.uniform(size))
    return exponentials * check.real("scale", scale, low=0.0)
