"""The cumulant of a Poisson-subsampled Gaussian step without its largest noise, by Gauss-Legendre rules (6.2b)."""

import numpy as np
from scipy.special import log_ndtr

from tacit.accounting.pld.quadrature import on_line
from tacit.accounting.pld.schedule_cumulant import MOST_NODES, ScheduleCumulant
from tacit.accounting.pld.step_cumulants import Unsuitable
from tacit.mechanisms.pairs.base import LOG_TOLERANCE, gauss_legendre, steepness
from tacit.mechanisms.pairs.gaussian import SampledGaussian

_ELLIPSES = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0])  # Bernstein ellipses to choose from.
_LOWEST = -np.linspace(6.0, 40.0, 137)  # Lower ends of the noise to try.
_LOG_BELOW = -40.0  # log of what all steps may lose below them, relative to a tilted mass of 1.
_COUNT = 32  # Nodes of one piece.


class TruncatedCumulant(ScheduleCumulant):
    """A Poisson-subsampled Gaussian step without the noise above a threshold, by Gauss-Legendre rules over the noise.

    There lie its largest losses, or the least where the loss falls with the noise. Such runs are not counted as left
    out: whoever truncates the step accounts for them (Theorem 5.7). The noise below the ends hardly occurs, and
    counts as an error of the moments.
    """

    def __init__(self, pair: SampledGaussian, steps: int, theta: float, threshold: float):
        """The step with the noise up to that of the threshold.

        Args:
            pair: a step.
            steps: independent repetitions, >= 1.
            theta: tilt of the saddle point, > 0.
            threshold: the largest loss, or the least where the loss falls with the noise.

        Raises:
            Unsuitable: the noise has no end below which next to nothing is lost.
        """
        log_cut = _LOG_BELOW - np.log(steps) - np.log1p(theta)
        far = float(pair.noise_at(np.array([threshold]))[0])
        low = next((u for u in _LOWEST.tolist() if _log_beyond(pair, theta, u, -1) < log_cut), None)
        if low is None or low >= far:
            raise Unsuitable
        # Losses that fall with the noise hardly count long before they are cut.
        high = next((u for u in (-_LOWEST).tolist() if u < far and _log_beyond(pair, theta, u, 1) < log_cut), far)
        self._ignored = [(low, -1), *([(high, 1)] if high < far else [])]
        self._pair, self._noise = pair, (low, high)
        super().__init__([(pair, steps)], theta, 3 * (theta + 2), [(0, (low, high))])
        self.left_out = 0.0

    def _beyond(self, theta: float) -> float:
        logs = (min(_log_beyond(self._pair, theta, u, side), 700.0) for u, side in self._ignored)
        return float(sum(np.exp(log) for log in logs))

    def _real(self) -> tuple[np.ndarray, np.ndarray | float]:
        return self._legendre(0.0)

    def _line_for(self, frequency: float) -> tuple[np.ndarray, np.ndarray | float, float, np.ndarray | float]:
        missed = float(np.exp(LOG_TOLERANCE)) + self._beyond(self.theta) * np.exp(-self.moment)
        return *self._legendre(frequency), 0.0, 2 * missed

    def _legendre(self, frequency: float) -> tuple[np.ndarray, np.ndarray]:
        u, weights = legendre_nodes(self._pair, self._noise, self.largest, frequency)
        return u / self._pair.sigma - self.schedule.shift[0], weights / self._pair.sigma

    def _miss(self, theta: float) -> np.ndarray | float:
        return float(np.exp(LOG_TOLERANCE + 1.0))


def _log_beyond(pair: SampledGaussian, theta: float, u: float, side: int) -> float:
    """Log of a bound on E_P e^{theta L} of the noise beyond u: its largest loss there, P- or Q-mass by Hoelder's.

    Args:
        pair: a step.
        theta: tilt, >= -1.
        u: end of the noise.
        side: -1 for the noise below u; 1 for that above, where only a loss that falls with the noise has a bound.
    """
    if theta < 0:
        return float(log_ndtr(1 / pair.sigma - side * u))
    falls = side * pair.loss_sign < 0
    largest = float(on_line(pair, np.array([u]), 1.0)[1][0]) if falls else pair.largest
    return float(log_ndtr(-side * u)) + theta * largest


def legendre_nodes(
    pair: SampledGaussian, ends: tuple[float, float], theta: float, frequency: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights over the noise for every E_P e^{zL}, |Re z| <= theta, |Im z| <= frequency.

    Pieces are halved until `_COUNT` nodes miss each integral by at most e^`LOG_TOLERANCE` of that at Im z = 0
    (Theorem 6.2b).

    Args:
        pair: a Poisson-subsampled Gaussian step.
        ends: (low, high), the interval of the noise.
        theta: largest |Re z|, >= 0.
        frequency: largest |Im z|, >= 0.

    Raises:
        Unsuitable: too many nodes would be needed.
    """
    rise = (_ELLIPSES - 1 / _ELLIPSES) / 2
    edges = np.linspace(*ends, int(np.ceil((ends[1] - ends[0]) / min(1.0, pair.sigma))) + 1)
    while _COUNT * len(edges) <= MOST_NODES:
        low, high = edges[:-1], edges[1:]
        far = np.multiply.outer((high - low) / 2, rise)  # No point of an ellipse is farther from its piece.
        slope = _steepest_loss(pair, low, high)[:, None]
        size = np.maximum(np.abs(low), np.abs(high))[:, None] + far
        growth = (high - low)[:, None] * (size + (theta + 1) * slope)
        growth = growth + far * (size + (theta + 1 + frequency) * slope) + far**2 / 2
        growth = np.where(far <= np.pi / 2 * pair.sigma, growth, np.inf)
        wide = (growth + 2.0 - 2 * _COUNT * np.log(_ELLIPSES)).min(axis=1) > LOG_TOLERANCE
        if not wide.any():
            x, weight = gauss_legendre(_COUNT)
            half = (high - low)[:, None] / 2
            return (low[:, None] + half * (1 + x)).ravel(), (half * weight).ravel()
        edges = np.sort(np.append(edges, (low + high)[wide] / 2))
    raise Unsuitable


def _steepest_loss(pair: SampledGaussian, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Bounds on |dL/du| within pi sigma / 2 of each [low, high]."""
    up, down = (steepness(pair.rate, end / pair.sigma - 0.5 / pair.sigma**2) for end in (high, -low))
    return (up + down if pair.symmetric else up) / pair.sigma
