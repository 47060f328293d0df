"""The heuristic for deep networks of which only the last iterate is released: as if losses were linear."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, log_ndtr, xlog1py, xlogy

from tacit.accounting.ledger import Ledger
from tacit.errors import Refused
from tacit.mechanisms import Gaussian, Mechanism, Poisson
from tacit.relation import Relation
from tacit.root_finding import bracketed_root
from tacit.standing import Standing
from tacit.tradeoff import Curve, TradeOff


class LinearLossCurve(Curve):
    """N(0, T sigma^2) against its shifts by a Binomial(T, q) number of whole gradients.

    What the sum of all releases tells of a record whose gradient is the same at every step, which is the last iterate
    of descent on linear losses. The ratio of the densities grows with the sum, so each delta is that of one threshold.

    Args:
        noise_multiplier: sigma > 0.
        sample_rate: q in (0, 1].
        steps: T >= 1.

    Example:
        >>> round(LinearLossCurve(2.0, 1.0, 4).epsilon(1e-5), 4) == round(LinearLossCurve(1.0, 1.0, 1).epsilon(1e-5), 4)
        True
    """

    def __init__(self, noise_multiplier: float, sample_rate: float, steps: int):
        self._std = math.sqrt(steps) * noise_multiplier
        mean, spread = steps * sample_rate, math.sqrt(steps * sample_rate * (1 - sample_rate))
        low, high = max(0, int(mean - 40 * spread - 40)), min(steps, int(mean + 40 * spread + 40))
        count = np.arange(low, high + 1)
        self._shifts = count / self._std
        chosen = gammaln(steps + 1) - gammaln(count + 1) - gammaln(steps - count + 1)
        self._log_mass = chosen + xlogy(count, sample_rate) + xlog1py(steps - count, -sample_rate)

    def delta(self, epsilon: float) -> float:
        """The larger delta of both directions."""
        added = 0.0
        above = self._threshold(epsilon)
        with_record = np.logaddexp.reduce(self._log_mass + log_ndtr(self._shifts - above))
        removed = math.exp(with_record) * -math.expm1(min(epsilon + float(log_ndtr(-above)) - with_record, 0.0))
        if -epsilon > self._log_ratio(-1e9):
            below = self._threshold(-epsilon)
            with_record = np.logaddexp.reduce(self._log_mass + log_ndtr(below - self._shifts))
            without = float(log_ndtr(below))
            added = math.exp(without) * -math.expm1(min(epsilon + with_record - without, 0.0))
        return max(added, removed)

    def _log_ratio(self, place: float) -> float:
        """Log of the ratio of densities with the record and without it, at a sum in units of its deviation."""
        return float(np.logaddexp.reduce(self._log_mass + self._shifts * place - self._shifts**2 / 2))

    def _threshold(self, loss: float) -> float:
        low, high = -1.0, 1.0
        while self._log_ratio(low) > loss:
            low *= 2
        while self._log_ratio(high) < loss:
            high *= 2
        return bracketed_root(lambda place: self._log_ratio(place) - loss, low, high)


def last_iterate_heuristic(ledger: Ledger | Mechanism, *, relation: Relation | str = Relation.ADD_REMOVE) -> TradeOff:
    """What the last iterate would tell if every loss were linear: a guess for deep networks, `claimed`, and no bound.

    Steinke, Nasr, Ganesh, Balle, Choquette-Choo, Jagielski, Hayes, Thakurta, Smith & Terzis 2024 (arXiv:2410.06186)
    found no attack on trained networks that exceeds it, and constructed losses that do. It may fall when steps are
    added, so it is no accountant: no budget can be kept by it.

    Args:
        ledger: of one kind of Gaussian step, plain or on Poisson samples, or such a mechanism.
        relation: of a mechanism; add/remove or zero-out.

    Raises:
        Refused: other mechanisms are in it, or the relation is replace-one.

    Example:
        >>> from tacit.accounting import accountant
        >>> run = Gaussian(1.0).poisson(0.01) * 5000
        >>> guess = last_iterate_heuristic(run)
        >>> guess.standing.value, float(guess.epsilon(1e-5)) < float(accountant("pld")(run).epsilon(1e-5))
        ('claimed', True)
    """
    if isinstance(ledger, Mechanism):
        ledger = Ledger.of(ledger, relation=relation)
    parts = list(ledger.mechanism.parts())
    step = parts[0][0] if len(parts) == 1 else None
    base, rate = (step.base, step.sample_rate) if isinstance(step, Poisson) else (step, 1.0)
    known = type(base) is Gaussian and base.noise_multiplier > 0
    if not known or ledger.relation is Relation.REPLACE_ONE:
        raise Refused(
            "last_iterate_heuristic needs one kind of Gaussian step, plain or on Poisson samples, under add_remove or "
            f"zero_out; got {ledger.mechanism} under {ledger.relation.value}."
        )
    assert isinstance(base, Gaussian)
    curve = LinearLossCurve(base.noise_multiplier, rate, parts[0][1])
    return TradeOff(curve, Standing.CLAIMED, ledger.relation, "last_iterate_heuristic")
