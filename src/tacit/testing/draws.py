"""The sampler of a mechanism against its privacy profile, by threshold tests with a stated false-alarm rate.

`BinnedLoss`: the privacy loss of two neighbours in bins, for numeric integration of divergences.

Assertions with a sentence, which `python -O` keeps and which need no test framework.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tacit.audit.bounds import clopper_pearson
from tacit.mechanisms.pairs.base import Pair


def require(holds: object, sentence: str) -> None:
    """Require a property; the sentence says what must hold and what was found.

    Raises:
        AssertionError: `holds` is false.
    """
    if not holds:
        raise AssertionError(sentence)


def require_close(got: float, expected: float, what: str, *, relative: float = 1e-6, absolute: float = 1e-12) -> None:
    """Require that two numbers agree.

    Args:
        got: the number to judge; NaN never agrees.
        expected: the number that it should be; two equal infinities agree.
        what: the name of the number, for the sentence.
        relative: tolerance relative to `expected`, >= 0.
        absolute: tolerance near zero, >= 0.

    Raises:
        AssertionError: the numbers differ by more than both tolerances.
    """
    agrees = math.isclose(got, expected, rel_tol=relative, abs_tol=absolute)
    require(agrees, f"{what} must be {float(expected)!r}; got {float(got)!r}.")


def require_sorted(values: Iterable[float], what: str, *, decreasing: bool = False) -> None:
    """Require that numbers never decrease, or never increase where `decreasing` is true."""
    numbers = [float(value) for value in values]
    direction = "never increase" if decreasing else "never decrease"
    require(numbers == sorted(numbers, reverse=decreasing), f"{what} must {direction}; got {numbers}.")


def require_raises(kind: type[Exception], call: Callable[[], object], what: str, *, message: str = "") -> None:
    """Require that `call` raises `kind` with a message that contains the pattern `message`.

    Args:
        kind: the expected class of the error.
        call: runs without arguments.
        what: the input that must be refused, for the sentence.
        message: regular expression that the text of the error contains; empty for any text.

    Raises:
        AssertionError: nothing is raised, or the text is another one. Errors of other classes pass through.
    """
    try:
        call()
    except kind as error:
        require(re.search(message, str(error)), f"{what} must be refused with {message!r}; got {str(error)!r}.")
        return
    raise AssertionError(f"{what} must raise {kind.__name__}; nothing was raised.")


_SHARES = (0.0, 0.3, 0.9)  # Members of an envelope of mechanisms, such as the bounded-range family.
_BINS = 4000  # A binned Renyi divergence is then below the exact one by about 1e-3 at most.
ALLOWANCE = 1e-8
"""Relative rounding of sums of masses in double precision, each good to about 1e-12."""
MASS_ROUNDING = 1e-12
"""Absolute rounding of one mass."""


class BinnedLoss:
    """The privacy loss of a pair of neighbours in bins: masses under P and Q, and those of infinite losses.

    By the data-processing inequality every divergence of the binned laws is a lower bound on that of the pair.

    Attributes:
        edges: increasing losses, shape (bins + 1,).
        p: P-masses below, between and above the edges, shape (bins + 2,).
        q: the same under Q.
        only_p: P-mass where Q has none (loss +inf).
        only_q: Q-mass where P has none (loss -inf).
    """

    def __init__(self, pair: Pair):
        self.pair = pair
        self.edges = np.linspace(-1.0, 1.0, _BINS + 1) * _reach(pair)
        self.p, self.q = pair.bin_masses(self.edges)
        self.only_p, self.only_q = pair.infinity_mass, pair.negative_infinity_mass

    @classmethod
    def members(cls, pair: Pair) -> Iterator[BinnedLoss]:
        """Laws of actual mechanisms: the pair itself, or members of the family where the pair is an envelope."""
        yield from map(cls, {pair.attained(share) for share in _SHARES})

    def hockey_stick(self, epsilon: float) -> tuple[float, float]:
        """H_{e^epsilon}(P || Q) and H_{e^epsilon}(Q || P), exact: epsilon is an edge of the bins."""
        p, q = self.pair.bin_masses(np.array([-epsilon, epsilon]) if epsilon else np.array([0.0]))
        forward = self.only_p + p[-1] - math.exp(epsilon) * q[-1]
        backward = self.only_q + q[0] - math.exp(epsilon) * p[0]
        return float(forward), float(backward)

    def renyi(self, order: float) -> float:
        """Lower bound on the larger of D_a(P || Q) and D_a(Q || P)."""
        if self.only_p > 0 or self.only_q > 0:
            return math.inf if max(self.only_p, self.only_q) > MASS_ROUNDING else 0.0
        both = (self.p > 0) & (self.q > 0)
        log_p, log_q = np.log(self.p[both]), np.log(self.q[both])
        moments = (np.logaddexp.reduce(order * a + (1 - order) * b) for a, b in ((log_p, log_q), (log_q, log_p)))
        return float(max(moments)) / (order - 1)


def _reach(pair: Pair) -> float:
    """A loss beyond which either side has a mass below 1e-14."""
    reach = 1.0
    while reach < 2.0**12:
        p, q = pair.bin_masses(np.array([-reach, reach]))
        if max(p[0], p[-1], q[0], q[-1]) < 1e-14:
            break
        reach *= 2
    return reach


def check_pair(pair: Pair) -> None:
    """Require that P and Q have mass 1, and masses in every bin whose ratio lies in the bin's range of the loss.

    Raises:
        AssertionError: the masses contradict the losses.
    """
    law = BinnedLoss(pair)
    require_close(float(law.p.sum()) + law.only_p, 1.0, f"the mass of P of {pair}", relative=1e-9)
    require_close(float(law.q.sum()) + law.only_q, 1.0, f"the mass of Q of {pair}", relative=1e-9)
    low, high = np.exp(law.edges[:-1]), np.exp(law.edges[1:])
    p, q = law.p[1:-1], law.q[1:-1]
    slack = MASS_ROUNDING * np.maximum(1.0, high)
    inside = (p >= q * low * (1 - ALLOWANCE) - slack) & (p <= q * high * (1 + ALLOWANCE) + slack)
    require(inside.all(), f"masses of {pair} must have a ratio within every interval of the loss.")


Draw = Callable[[bool, int], np.ndarray]
"""(with the record or without it, count) to outputs of the mechanism on two neighbours, shape (count,)."""
Profile = Callable[[float], float]
"""epsilon to the delta that the facets allow."""

_EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
_DRAWS = 200_000  # Finds noise that is 20 % too small on a Gaussian of noise multiplier 1.
_THRESHOLDS = 24


def check_draws(draw: Draw, profile: Profile, false_alarm: float) -> None:
    """Require that no threshold test tells the neighbours apart better than `profile` allows.

    Clopper-Pearson intervals at a level that a union bound over all tests shares out. The thresholds are quantiles of
    one half of the draws, the tests use the other half.

    Args:
        draw: (with the record?, count) -> outputs.
        profile: epsilon -> delta.
        false_alarm: probability in (0, 1) that a correct sampler fails.

    Raises:
        AssertionError: a test shows a delta above the profile.
    """
    with_record, without = (np.asarray(draw(present, _DRAWS), dtype=float) for present in (True, False))
    for values in (with_record, without):
        require(values.shape == (_DRAWS,), f"draw must return an array of shape ({_DRAWS},); got {values.shape}.")
    half = _DRAWS // 2
    pooled = np.concatenate([with_record[:half], without[:half]])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.001, 0.999, _THRESHOLDS)))
    tests = 4 * len(thresholds) * len(_EPSILONS)
    level = false_alarm / (2 * tests)
    for threshold in thresholds:
        above = [int(np.count_nonzero(values[half:] > threshold)) for values in (with_record, without)]
        for side, counts in ((">", above), ("<=", [half - count for count in above])):
            for hits, others in (counts, counts[::-1]):
                _check_event(hits, others, half, level, profile, f"output {side} {threshold:.4g}")


def _check_event(hits: int, others: int, draws: int, level: float, profile: Profile, event: str) -> None:
    """P(event) <= e^epsilon Q(event) + delta(epsilon) at every epsilon, up to sampling error."""
    low = 1 - float(clopper_pearson(np.array(draws - hits), draws, level))
    high = float(clopper_pearson(np.array(others), draws, level))
    for epsilon in _EPSILONS:
        reached, allowed = low - math.exp(epsilon) * high, profile(epsilon)
        rule = f"the event {event} must have delta({epsilon}) <= {allowed:.4g}"
        require(reached <= allowed + MASS_ROUNDING, f"{rule}; its draws show at least {reached:.4g}.")
