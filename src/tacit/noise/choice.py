"""A private choice among candidates with scores: the exponential mechanism and permute-and-flip, drawn exactly.

The continuous noises that mechanisms add, drawn from a stream.

Floating-point noise is not exactly the analysed distribution (Mironov 2012): the low-order bits of a single released
value can leak. Training and most releases take exact noise instead (`rounded_gaussian`, `discrete`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from tacit import check
from tacit.errors import Refused
from tacit.mechanisms import Exponential, Mechanism, PermuteAndFlip
from tacit.noise.discrete import exponential_mechanism, permute_and_flip
from tacit.noise.stream import Size, Stream
from tacit.relation import Relation

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


def gumbel(stream: Stream, size: Size, *, scale: float = 1.0) -> NDArray[np.float64]:
    """Independent Gumbel values -scale log(-log U); the argmax of score + Gumbel is the exponential mechanism."""
    return -np.log(-np.log(stream.uniform(size))) * check.real("scale", scale, low=0.0)
