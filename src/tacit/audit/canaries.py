"""Scores of a white-box attacker from one canary's coordinate of every release.

A Dirac canary has a coordinate of its own. Where it is sampled, the release moves by the clipping bound there; apart
from noise nothing else moves that coordinate. Its gradient is far longer than the bound, so the clip always acts.

What insertion canaries found in one training run, beside the certificate of that run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit import check
from tacit.audit.results import AuditResult, Finding, Report
from tacit.standing import Standing
from tacit.tradeoff import Answer, TradeOff

_LARGEST_GAIN = 600.0  # e^709.8 is the largest double; no sound trainer comes near


@dataclass
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
        array([-0.5, 0.5])
    """

    noise_multiplier: float
    sample_rate: float
    total: np.ndarray | float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        check.positive("noise_multiplier", self.noise_multiplier)
        check.probability("sample_rate", self.sample_rate, open_low=True)

    def add(self, release: np.ndarray) -> None:
        """Count one release, shape (canaries,)."""
        gain = (np.asarray(release, dtype=float) - 0.5) / self.noise_multiplier**2
        if self.sample_rate < 1.0:
            gain = np.log1p(self.sample_rate * np.expm1(np.minimum(gain, _LARGEST_GAIN)))
        self.total = self.total + gain


@dataclass
class ReleaseDifferences:
    """Sum over consecutive releases of (x_t - x_{t-1})^2 / (2 s^2) - 1.

    Fresh noise gives it mean 0 without the canary and a slightly larger mean with it. Reused noise cancels, which
    leaves the steps at which the canary was sampled.

    Args:
        noise_multiplier: the claimed s, > 0.

    Attributes:
        total: the sum so far, shape (canaries,).

    Example:
        >>> differences = ReleaseDifferences(noise_multiplier=1.0)
        >>> for release in ([0.0, 0.0], [2.0, 0.0]):
        ...     differences.add(np.array(release))
        >>> differences.total
        array([ 1., -1.])
    """

    noise_multiplier: float
    total: np.ndarray | float = field(default=0.0, init=False, repr=False)
    _last: np.ndarray | None = field(default=None, init=False, repr=False)

    def add(self, release: np.ndarray) -> None:
        """Count one release, shape (canaries,)."""
        release = np.asarray(release, dtype=float)
        if self._last is not None:
            self.total = self.total + (release - self._last) ** 2 / (2 * self.noise_multiplier**2) - 1
        self._last = release


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
        return (
            f"measured: epsilon >= {_down(found.epsilon_lower)} at delta {found.delta:g} with "
            f"{100 * found.confidence:g} % confidence, of at most {_down(self.ceiling)} that {count} canaries could "
            f"show; {self.claim.standing.value}: epsilon <= {_up(self.certified)} ({self.claim.source}), {verdict}. "
            f"Neighbours differ in one {self.unit}, a canary that is trained on or blank ({self.claim.relation.value})."
        )

    def report(self) -> Report:
        """For `tacit.reports.write_audit`: a page with both in one trade-off picture, and `audit.json`."""
        return Report(
            self.finding.delta,
            results=[self.rates],
            findings=[self.finding],
            claim=self.claim,
            differences=(_WHY,),
            refuted_by=[self.finding.attack] if self.refuted else [],
        )

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


def _up(value: float) -> str:
    """Three decimals, rounded up, as a certificate must not shrink in print."""
    return f"{np.ceil(1000 * value) / 1000:.3f}"
