"""A step that is one of two, picked by a coin that both sides see, on the saddle line."""

from __future__ import annotations

import numpy as np

from tacit.accounting.loss.complex_log import log1p
from tacit.accounting.loss.smooth import Smooth, SmoothSampled

_UNIT = 2.0**-53


class SmoothMixed(Smooth):
    """E e^{zL} = (1 - share) E_usual e^{zL} + share E_rare e^{zL}, of two sampled Gaussians seen at the same tilt."""

    def __init__(self, usual: SmoothSampled, rare: SmoothSampled, share: float):
        self._views, self._shares = (usual, rare), np.array([1 - share, share])
        self.steps, self.theta = usual.steps, usual.theta
        self.largest = min(usual.largest, rare.largest)
        self.moment = self.log_moment(self.theta)
        self.mean = self.jet(self.theta)[1]

    def _weights(self, theta: float) -> np.ndarray:
        moments = np.array([view.log_moment(theta) for view in self._views])
        return np.exp(np.log(self._shares) + moments - self.log_moment(theta))

    def log_moment(self, theta: float) -> float:
        moments = np.array([view.log_moment(theta) for view in self._views])
        if moments.max() > 0.5:
            return float(np.logaddexp(*(np.log(self._shares) + moments)))
        return float(np.log1p(self._shares @ np.expm1(moments)))

    def jet(self, theta: float) -> tuple[float, float, float]:
        weights, jets = self._weights(theta), [view.jet(theta) for view in self._views]
        means, variances = (np.array([jet[k] for jet in jets]) for k in (1, 2))
        mean = float(weights @ means)
        return self.log_moment(theta), mean, float(weights @ (variances + (means - mean) ** 2))

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        parts = [np.log(w) + view.log_decay(t) for w, view in zip(self._weights(self.theta), self._views, strict=True)]
        return np.minimum(np.logaddexp(*parts), 0.0)

    def nodes(self, frequency: float) -> int:
        return sum(view.nodes(frequency) for view in self._views)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        change, error = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for weight, view in zip(self._weights(self.theta), self._views, strict=True):
            value, miss = view.change(t, self.mean)
            change += weight * value
            error += weight * miss
        logarithm = log1p(change)
        relative = error / np.maximum(np.abs(1 + change) - error, 1e-300) + 4 * _UNIT * np.abs(logarithm)
        return self.steps * logarithm, -self.steps * np.log1p(-np.minimum(relative, 0.5))
