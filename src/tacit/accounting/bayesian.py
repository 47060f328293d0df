"""The Bayesian accountant of Triastcyn & Faltings (2019; ICML 2020): an estimate, never a DP guarantee."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, stdtrit, xlog1py, xlogy

from tacit import check
from tacit.accounting.base import Accountant
from tacit.accounting.ledger import Ledger
from tacit.accounting.renyi import MomentsCurve
from tacit.errors import Refused
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, TradeOff

EXPONENTS = np.concatenate([np.arange(1.0, 65.0), [80.0, 96.0, 128.0, 256.0, 512.0]])
"""Moments lambda over which the tail bound minimises: dense where the optimum usually lies, sparse beyond."""
VERSIONS = ("v1", "v2")


class Bayesian(Accountant):
    """Averages the exponentiated loss over pairs of records instead of taking the worst pair.

    One step costs c(lambda) = log mean_j e^{l_j} over m pairs, raised by a Student-t quantile for the estimate's
    uncertainty, where for differences d_j of two records' gradients and s_j = |d_j| / (sigma C)

    - v1 (arXiv 1901.09697): l_j = q^2 lambda (lambda + 1) s_j^2 / 2;
    - v2 (ICML 2020): l_j = T max(log E_{k ~ Bin(lambda + 1, q)} e^{k (k - 1) s_j^2 / 2},
      log E_{k ~ Bin(lambda, q)} e^{k (k + 1) s_j^2 / 2}) and the cost is divided by the number of steps T, by
      Hoelder's inequality, because every step uses the same record.

    The result depends on the data, assumes independent records of one distribution, and covers the average record
    only: 0.1 % outliers can have thousands of times the stated delta.

    Args:
        version: "v1" or "v2".
        steps: number of steps T that will be observed (v2 only).
        failure: probability per step that the Student-t bound is below the true mean; adds to delta.
    """

    name: ClassVar[str] = "bayesian"
    standing: ClassVar[Standing] = Standing.BAYESIAN

    def __init__(self, *, version: str = "v1", steps: int | None = None, failure: float = 1e-16):
        self.version = check.choice("version", version, VERSIONS)
        self._failure = check.probability("failure", failure, open_low=True, open_high=True)
        if (self.version == "v2") != (steps is not None):
            raise check.fail("steps", "given for v2 and only for v2", steps)
        self._horizon = 1 if steps is None else check.count("steps", steps)
        self._costs = np.zeros_like(EXPONENTS)
        self.observed = 0

    def observe(
        self,
        differences: np.ndarray,
        *,
        sample_rate: float,
        noise_multiplier: float,
        clip_norm: float,
        steps: int = 1,
    ) -> None:
        """Add `steps` steps that cost alike.

        Args:
            differences: gradient differences of m >= 3 pairs of records, shape (m, parameters), or their norms (m,).
            sample_rate: q in (0, 1].
            noise_multiplier: sigma > 0.
            clip_norm: C > 0.
            steps: how many steps these differences stand for, >= 1.

        Raises:
            InvalidInput: an argument breaks its rule.
        """
        times = check.count("steps", steps)
        array = np.asarray(differences, dtype=float)
        if array.ndim not in (1, 2) or len(array) < 3 or not np.all(np.isfinite(array)):
            raise check.fail("differences", "finite, of shape (m,) or (m, parameters) with m >= 3", array.shape)
        rate = check.probability("sample_rate", sample_rate, open_low=True)
        scale = check.positive("noise_multiplier", noise_multiplier) * check.positive("clip_norm", clip_norm)
        squares = (np.sum(array**2, axis=1) if array.ndim == 2 else array**2) / scale**2
        if self.version == "v1":
            exponents = rate**2 * EXPONENTS * (EXPONENTS + 1) / 2
            losses = exponents[:, None] * squares
        else:
            # The larger of both directions' log moments of a binomially subsampled Gaussian, one for each pair.
            ways = [
                [_log_binomial_mean(int(order) + (sign < 0), rate, squares, sign) for sign in (-1, 1)]
                for order in EXPONENTS
            ]
            losses = self._horizon * np.max(ways, axis=1)
        self._costs += times * np.maximum(_upper_log_mean(losses, self._failure), 0.0) / self._horizon
        self.observed += times

    def state(self) -> dict[str, Any]:
        """The observed costs, for a checkpoint."""
        return {"costs": self._costs, "observed": self.observed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self._costs, self.observed = state["costs"], state["observed"]

    def __call__(self, ledger: Ledger | Mechanism, *, relation: Relation | str = Relation.ADD_REMOVE) -> TradeOff:
        """The estimate for `ledger`, every step of which must have been observed."""
        steps = sum(times for _, times in ledger.parts()) if isinstance(ledger, Mechanism) else ledger.steps
        if steps != self.observed:
            raise Refused(
                f"it needs the gradient differences of every step: {steps} steps ran, {self.observed} were observed."
            )
        if self.version == "v2" and self.observed != self._horizon:
            raise Refused(f"v2 was set up for {self._horizon} steps, {self.observed} were observed.")
        return super().__call__(ledger, relation=relation)

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The tail bound of the observed costs; the failures of the Student-t bounds add to delta."""
        missed = -math.expm1(self.observed * math.log1p(-self._failure))
        return MomentsCurve(EXPONENTS + 1, self._costs / EXPONENTS, extra_delta=missed)


def _log_binomial_mean(trials: int, rate: float, squares: np.ndarray, sign: int) -> np.ndarray:
    """Log E_{k ~ Bin(trials, rate)} e^{k (k + sign) s / 2} for each s in `squares`."""
    k = np.arange(trials + 1)
    log_binomial = gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1)
    log_weight = log_binomial + xlogy(k, rate) + xlog1py(trials - k, -rate)
    return np.logaddexp.reduce(log_weight[:, None] + (k * (k + sign) / 2)[:, None] * squares, axis=0)


def _upper_log_mean(losses: np.ndarray, failure: float) -> np.ndarray:
    """Logarithm log(M + t S / sqrt(m - 1)) for each row of log values, M and S of their exponentials."""
    pairs = losses.shape[1]
    largest = losses.max(axis=1, keepdims=True)
    scaled = np.exp(losses - largest)
    quantile = -stdtrit(pairs - 1, failure)
    upper = scaled.mean(axis=1) + quantile * scaled.std(axis=1) / math.sqrt(pairs - 1)
    return np.log(upper) + largest[:, 0]
