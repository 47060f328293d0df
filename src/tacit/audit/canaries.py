"""Scores of a white-box attacker from one canary's coordinate of every release.

A Dirac canary has a coordinate of its own. Where it is sampled, the release moves by the clipping bound there; apart
from noise nothing else moves that coordinate. Its gradient is far longer than the bound, so the clip always acts.

What insertion canaries found in one training run, beside the certificate of that run.

`GroupedLikelihoodRatio`: the score of a canary that takes part in the steps of one group alone.

Score of a canary that takes part in exactly k of T steps: random allocation and balanced iteration sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from tacit import check
from tacit.audit.run import AuditResult, Finding, Report
from tacit.mechanisms import BallsAndBins, CyclicAllocation, CyclicPoisson, MinSeparation, ToeplitzStrategy
from tacit.mechanisms.matrix import Strategy
from tacit.noise.correlated import Whitening
from tacit.standing import Standing
from tacit.tradeoff import Answer, TradeOff


class LikelihoodRatio:
    """Log likelihood ratio of a canary, the sum over releases of log(1 - q + q exp((x - 1/2) / s^2)).

    x is the release on the canary's direction in units of the clipping bound, N(0, s^2) without the canary and
    N(1, s^2) where it was sampled. The sum is > 0 where "in" is likelier; by Neyman and Pearson it is the best test.

    Args:
        noise_multiplier: the claimed s, > 0.
        sample_rate: the claimed q, in (0, 1].

    Attributes:
        total: the sum so far, shape (canaries,).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> ratio = LikelihoodRatio(noise_multiplier=1.0, sample_rate=1.0)
        >>> ratio.add(np.array([0.0, 1.0]))
        >>> ratio.total
        array([-0.5,  0.5])
    """

    def __init__(self, noise_multiplier: float, sample_rate: float):
        self.noise_multiplier = check.positive("noise_multiplier", noise_multiplier)
        self.sample_rate = check.probability("sample_rate", sample_rate, open_low=True)
        self.total: np.ndarray | float = 0.0

    def add(self, release: np.ndarray) -> None:
        """Count one release, shape (canaries,)."""
        gain = (np.asarray(release, dtype=float) - 0.5) / self.noise_multiplier**2
        self.total = self.total + _sampled(gain, self.sample_rate)


def _sampled(gains: np.ndarray, rate: float) -> np.ndarray:
    """log(1 - q + q exp(g)) of every gain."""
    return gains if rate == 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + gains)


_WHY = "canaries were among the records of the run itself, which was not run again"
_ALPHA = np.linspace(0.0, 1.0, 401)


@dataclass(frozen=True)
class CanaryAudit:
    """A measured lower bound on epsilon from canaries in one run, and the certificate under test.

    Neighbours differ in one canary, which is trained on or blank; a blank one adds nothing to any sum. That is adding
    or removing a record (where the unit is "user", a user with all copies), and also zeroing it or replacing it by a
    blank one, so the bound stands beside a certificate of any of these relations.

    Attributes:
        finding: the lower bound by right guesses, with its confidence.
        rates: error rates of guessing by each threshold on this one model; `rates.statement` says what they are.
        claim: the certified curve of the run's ledger.
        unit: the privacy unit of the ledger.
        refuted: whether the right guesses refute `claim` at 99.9 %: a correct run is refuted with probability 0.001 at
            most.
        ceiling: the lower bound that right guesses alone would have given: as many canaries can show no more.

    Example:
        >>> from tacit.accounting import Ledger
        >>> from tacit.audit import InsertionCanaries
        >>> from tacit.mechanisms import Gaussian
        >>> canaries = InsertionCanaries(100, length=8, vocabulary=50)
        >>> known = np.where(canaries.included, 1.0, 4.0)  # losses of a model that knows every canary by heart
        >>> found = canaries.audit(known, ledger=Ledger.of(Gaussian(10.0)), delta=1e-5)
        >>> found.refuted, found.epsilon.standing.value, found.epsilon > 1.0
        (True, 'measured', True)
    """

    finding: Finding
    rates: AuditResult
    claim: TradeOff
    unit: str
    refuted: bool
    ceiling: float

    @property
    def epsilon(self) -> Answer:
        """The lower bound on epsilon at `finding.delta`, measured; a pass is no evidence of a small epsilon."""
        found = self.finding.epsilon_lower
        return Answer(found, Standing.MEASURED, found, None)

    @property
    def certified(self) -> Answer:
        """Epsilon of the certificate at the same delta, with the certificate's own standing."""
        return self.claim.epsilon(self.finding.delta)

    @property
    def statement(self) -> str:
        """Both numbers with confidence, standing, unit and relation, in words."""
        found, count = self.finding, self.rates.members + self.rates.non_members
        verdict = "refuted at 99.9 %" if self.refuted else "not refuted"
        certified = np.ceil(1000 * self.certified) / 1000  # A certificate must not shrink in print.
        return (
            f"measured: epsilon >= {_down(found.epsilon_lower)} at delta {found.delta:g} with "
            f"{100 * found.confidence:g} % confidence, of at most {_down(self.ceiling)} that {count} canaries could "
            f"show; {self.claim.standing.value}: epsilon <= {certified:.3f} ({self.claim.source}), {verdict}. "
            f"Neighbours differ in one {self.unit}, a canary that is trained on or blank ({self.claim.relation.value})."
        )

    def report(self) -> Report:
        """For `tacit.reports.write_audit`: a page with both in one trade-off picture, and `audit.json`."""
        found, by = self.finding, [self.finding.attack] if self.refuted else []
        return Report(found.delta, [self.rates], [found], claim=self.claim, differences=(_WHY,), refuted_by=by)

    def plot(self, axes: Any = None) -> Any:
        """Draw the certified curve, the line of the measured epsilon and the canaries' own error rates.

        The curve of the run lies on or above the certified one. With the confidence of the finding it lies somewhere on
        or below the line max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)) of the measured epsilon.

        Args:
            axes: matplotlib axes; new ones if None.

        Returns:
            The axes.
        """
        axes = self.claim.plot(axes)
        found = self.finding
        gain = np.exp(min(found.epsilon_lower, 700.0))
        line = np.maximum(1 - found.delta - gain * _ALPHA, (1 - found.delta - _ALPHA) / gain)
        name = f"epsilon {_down(found.epsilon_lower)} ({found.estimator}, measured at {100 * found.confidence:g} %)"
        axes.plot(_ALPHA, np.maximum(line, 0.0), linestyle="--", label=name)
        axes.plot(self.rates.fpr, 1 - self.rates.tpr, linewidth=0.9, label="guesses on this model's canaries")
        axes.legend()
        return axes


def _down(value: float) -> str:
    """Three decimals, rounded down: a lower bound must not grow in print."""
    return f"{np.floor(1000 * value) / 1000:.3f}"


class SubsetMean:
    """log of the mean over all k-subsets S of T steps of exp(sum of g_t, t in S), from one step after another.

    With E_j(t) the mean over the j-subsets of the first t steps, E_j(t) = (1 - j / t) E_j(t - 1) + (j / t) e^(g_t)
    E_(j-1)(t - 1), since step t is in a uniform j-subset with probability j / t. A pass ends after T steps; passes are
    independent, so that their logarithms add up. Steps that are to come have g_t = 0. A step costs k operations.

    Args:
        steps: T >= 1.
        participations: k in [1, T].

    Example:
        >>> mean = SubsetMean(steps=2)
        >>> for gains in ([np.log(3.0)], [0.0]):
        ...     mean.add(np.array(gains))
        >>> bool(np.isclose(mean.total[0], np.log(2.0)))
        True
    """

    def __init__(self, steps: int, participations: int = 1):
        self.steps, self.participations = check.count("steps", steps), check.count("participations", participations)
        if participations > steps:
            raise check.fail("participations", f"at most steps = {steps}", participations)
        self._done: Array | float = 0.0
        self._step = 0

    def add(self, gains: Array) -> None:
        """Count g_t of the next step, shape (canaries,)."""
        if self._step == 0:
            self._means = np.full((self.participations + 1, len(gains)), -np.inf)
            self._means[0] = 0.0
        self._step += 1
        # Smaller subsets of the first steps cannot grow to k any more.
        low = max(1, self.participations - (self.steps - self._step))
        size = np.arange(low, min(self._step, self.participations) + 1)[:, None]
        with np.errstate(divide="ignore"):
            without, with_it = np.log1p(-size / self._step), np.log(size / self._step)
        before = self._means
        self._means = before.copy()
        self._means[size[:, 0]] = np.logaddexp(without + before[size[:, 0]], with_it + gains + before[size[:, 0] - 1])
        if self._step == self.steps:
            self._done, self._step = self._done + self._means[self.participations], 0

    @property
    def total(self) -> Array:
        """The logarithm so far, shape (canaries,)."""
        if self._step == 0:
            return np.asarray(self._done)
        left = self.steps - self._step
        size = np.arange(max(0, self.participations - left), min(self._step, self.participations) + 1)
        ways = _choose(self._step, size) + _choose(left, self.participations - size)
        ways -= _choose(self.steps, np.array(self.participations))
        return self._done + np.asarray(logsumexp(ways[:, None] + self._means[size], axis=0))


class AllocationLikelihoodRatio(SubsetMean):
    """Log likelihood ratio of a canary that takes part in k of every T steps, a uniform subset of its own.

    With x_t the release on the canary's direction in units of the clipping bound and g_t = (x_t - 1/2) / s^2, a pass
    has the ratio mean of exp(sum of g_t, t in S) over the k-subsets S: `RandomAllocation` with k = 1, an epoch being a
    pass, and `BalancedIteration`, whose pass is the run (Theorems 1.9 and 1.11 of the theory of the accountant).

    Args:
        noise_multiplier: the claimed s, > 0.
        steps: T >= 1.
        participations: k in [1, T].

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> ratio = AllocationLikelihoodRatio(1.0, steps=1)
        >>> ratio.add(np.array([0.0, 1.0]))
        >>> ratio.total
        array([-0.5,  0.5])
    """

    def __init__(self, noise_multiplier: float, steps: int, participations: int = 1):
        super().__init__(steps, participations)
        self._variance = check.positive("noise_multiplier", noise_multiplier) ** 2

    def add(self, release: Array) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Count one release, shape (canaries,)."""
        super().add((np.asarray(release, dtype=float) - 0.5) / self._variance)


def _choose(among: int, chosen: Array | NDArray[np.int64]) -> Array:
    """Log of the binomial coefficient."""
    return gammaln(among + 1) - gammaln(chosen + 1) - gammaln(among - chosen + 1)


Separated = BallsAndBins | CyclicAllocation | CyclicPoisson | MinSeparation
"""Mechanisms whose records take part in the steps of one group alone."""

Array = NDArray[np.float64]


class GroupedLikelihoodRatio:
    """Log likelihood ratio of a canary whose group is known, as it is to the adversary of the proof.

    With y_t the inner product of the rows with what a participation in step t adds to them, c_t its squared norm and
    g_t = (y_t - c_t / 2) / s^2:

    - `CyclicPoisson`: the sum over the group's turns of log(1 - q + q exp(g_t)); columns of C are orthogonal there.
    - `CyclicAllocation`: the sum over blocks of T turns of log mean exp(g_t); a turn that is to come has g_t = 0.
    - `MinSeparation`: g of the pattern of all turns of the group.
    - `BallsAndBins`: log mean over the bins of exp(sum of g_t); a bin is secret.

    Args:
        mechanism: as claimed.
        strategy: C of the run.
        noise_multiplier: the claimed s, > 0.
        groups: gives the group of every canary after the run, shape (canaries,); of one that was left out, a random
            one.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> from tacit.mechanisms import MatrixGaussian
        >>> strategy = ToeplitzStrategy(2, (1.0,))
        >>> known = MinSeparation(MatrixGaussian(1.0, strategy), participations=1, separation=2)
        >>> ratio = GroupedLikelihoodRatio(known, strategy, 1.0, groups=lambda: np.array([0, 0]))
        >>> for release in ([0.0, 1.0], [5.0, 5.0]):
        ...     ratio.add(np.array(release))
        >>> ratio.total
        array([-0.5,  0.5])
    """

    def __init__(
        self, mechanism: Separated, strategy: Strategy, noise_multiplier: float, groups: Callable[[], NDArray[np.int64]]
    ):
        check.positive("noise_multiplier", noise_multiplier)
        self._mechanism, self._variance, self._groups = mechanism, noise_multiplier**2, groups
        self._whitening = Whitening(strategy)
        self._rows: list[Array] = []

    def add(self, release: Array) -> None:
        """Count one estimate, shape (canaries,), in units of the clipping bound."""
        self._rows.append(self._whitening.add(release))

    @property
    def total(self) -> Array:
        """The score of each canary, shape (canaries,)."""
        products = self._whitening.pulled_back(np.stack(self._rows))
        mechanism, steps = self._mechanism, len(products)
        if isinstance(mechanism, MinSeparation | BallsAndBins):
            apart = mechanism.separation if isinstance(mechanism, MinSeparation) else mechanism.steps_per_epoch
            # A pattern for each group, one step at a time: all of them are as many values as steps times groups.
            patterns = (np.equal(np.arange(apart), turn % apart).astype(float) for turn in range(steps))
            squares = self._whitening.squared_norms(patterns)
            along = np.stack([products[group::apart].sum(0) for group in range(apart)])
            gains = (along - squares[:, None] / 2) / self._variance
            if isinstance(mechanism, BallsAndBins):
                return np.asarray(logsumexp(gains, axis=0) - np.log(apart))
            return gains[self._groups(), np.arange(gains.shape[1])]
        assert isinstance(self._whitening.strategy, ToeplitzStrategy)
        squares = np.square(self._whitening.strategy.column_norms)
        gains = (products - squares[:, None] / 2) / self._variance
        groups = self._groups()
        total = np.zeros(products.shape[1])
        for group in range(mechanism.groups):
            own = groups == group
            total[own] = _of_turns(mechanism, gains[group :: mechanism.groups, own])
        return total


def _of_turns(mechanism: CyclicPoisson | CyclicAllocation, gains: Array) -> Array:
    """Log likelihood ratio from the gains of one group's turns, shape (turns, canaries)."""
    if isinstance(mechanism, CyclicPoisson):
        return _sampled(gains, mechanism.sample_rate).sum(0)
    mean = SubsetMean(mechanism.steps_per_block)
    for of_turn in gains:
        mean.add(of_turn)
    return mean.total
