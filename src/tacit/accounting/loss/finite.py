"""Steps known by finitely many losses, exactly or by quadrature, on the saddle line."""

from __future__ import annotations

import numpy as np

from tacit.accounting.loss.complex_log import log1p
from tacit.accounting.loss.decay import log_decay
from tacit.accounting.loss.smooth import Smooth, Unsuitable
from tacit.accounting.loss.sums import shifted_sum
from tacit.mechanisms.pairs import Nodes, Pair
from tacit.mechanisms.pairs.nodes import LOG_TOLERANCE

_UNIT = 2.0**-53
_MOST = 40_000
_FIRST = 256
_EDGES = 600


class SmoothNodes(Smooth):
    """A step by `Pair.nodes`. Its characteristic function need not decay: atoms keep it up at every frequency."""

    def __init__(self, pair: Pair, steps: int, theta: float, log_ignored: float = -np.inf):
        """Atoms beyond all but e^`log_ignored` of the P-mass are left out where a high tilt would see nothing else."""
        self.pair, self.steps, self.theta = pair, steps, theta
        self.largest = 3 * theta + 5
        self._kept = _without_far_tail(pair, self.largest, log_ignored)
        self._ignored = (0.0, 0.0) if self._kept is None else _beyond(pair, float(self._kept.loss[-1]))
        self.left_out = steps * self._ignored[0]
        self.real = self._nodes(0.0)
        self.moment = self.log_moment(theta)
        self.mean, self.variance = self.jet(theta)[1:]

    def _nodes(self, frequency: float) -> Nodes:
        if self._kept is not None:
            return self._kept
        try:
            nodes = self.pair.nodes(self.largest, frequency)
        except OverflowError:
            raise Unsuitable from None
        if nodes is None or len(nodes.loss) > _MOST:
            raise Unsuitable
        return nodes

    def log_moment(self, theta: float) -> float:
        """The digits of small moments are kept by sum p = 1 - infinite, sum p e^{-loss} = 1 - unseen, less the tail."""
        loss, p, _ = self.real.columns
        with np.errstate(divide="ignore"):
            exponent = np.log(p) + theta * loss
        top = float(exponent.max())
        direct = top + float(np.log(np.exp(exponent - top).sum()))
        if abs(direct) > 0.5 or top > 0:
            return direct
        with np.errstate(over="ignore", invalid="ignore"):
            small = float((p * (np.expm1(theta * loss) + theta * np.expm1(-loss))).sum())
        p_lost, q_lost = self.pair.infinite + self._ignored[0], self.pair.unseen + self._ignored[1]
        lost = p_lost + theta * (p_lost - q_lost)
        return float(np.log1p(small - lost)) if np.isfinite(small) else direct

    def jet(self, theta: float) -> tuple[float, float, float]:
        loss, p, _ = self.real.columns
        with np.errstate(divide="ignore"):
            exponent = np.log(p) + theta * loss
        weights = np.exp(exponent - exponent.max())
        weights /= weights.sum()
        mean = float(weights @ loss)
        return self.log_moment(theta), mean, float(weights @ (loss - mean) ** 2)

    def mean_and_variance(self) -> tuple[float, float]:
        return self.mean, self.variance

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """By cells of outcomes merged into one, whose tilted variance is at most that of the outcomes themselves."""
        deviation = self.variance**0.5
        near = self.mean + deviation * np.linspace(-8, 8, _EDGES)
        edges = np.unique(np.concatenate([near, np.sort(self.real.loss)[:: max(len(self.real.loss) // _EDGES, 1)]]))
        if self._kept is not None:
            edges = np.append(edges[edges < self.real.loss[-1]], self.real.loss[-1])
        p, q = self.pair.cells(edges)
        keep = (p > 0) & (q > 0)
        if self._kept is not None:
            keep[-1] = False  # An atom that the law leaves out would make it look as if it decayed.
        loss = np.log(p[keep] / q[keep])
        order = np.argsort(loss)
        weights = np.exp(np.log(p[keep]) + self.theta * loss - self.moment)
        decay = log_decay(loss[order], weights[order], None, t)
        decay[-1] = 0.0  # Nothing is claimed for the frequencies beyond, which the last cell stands for.
        return decay

    def nodes(self, frequency: float) -> int:
        return len(self._nodes(frequency).loss)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, size = np.empty(len(t), dtype=complex), np.empty(len(t))
        start = 0
        while start < len(t):
            stop = max(int(np.searchsorted(t, 2 * t[start])), start + _FIRST)
            nodes = self._nodes(float(t[min(stop, len(t)) - 1]))
            with np.errstate(divide="ignore"):
                weights = np.exp(np.log(nodes.p) + self.theta * nodes.loss - self.moment)
            block = slice(start, stop)
            value[block], size[block] = shifted_sum(weights, nodes.loss - self.mean, t[block], float(t[1]))
            start = stop
        error = 16 * _UNIT * size
        modulus = np.maximum(np.abs(1 + value) - error, 1e-300)
        logarithm = log1p(value)
        relative = error / modulus + 4 * _UNIT * np.abs(logarithm)
        return self.steps * logarithm, -self.steps * np.log1p(-np.minimum(relative, 0.5))


def _without_far_tail(pair: Pair, largest: float, log_ignored: float) -> Nodes | None:
    """The atoms of a table up to where P-mass e^`log_ignored` is left; None where that hardly changes any moment."""
    if pair.table is None or log_ignored == -np.inf:
        return None
    loss, p, q = pair.table
    kept = int(np.searchsorted(-np.cumsum(p[::-1])[::-1], -np.exp(log_ignored)))
    with np.errstate(divide="ignore"):
        exponent = np.log(p) + largest * loss
    if not 0 < kept < len(p) or exponent[kept:].max() < exponent[:kept].max() + LOG_TOLERANCE:
        return None
    return Nodes(loss[:kept], p[:kept], q[:kept])


def _beyond(pair: Pair, loss: float) -> tuple[float, float]:
    """P- and Q-mass of the finite losses above `loss`."""
    p, q = pair.cells(np.array([loss]))
    return float(p[1]), float(q[1])
