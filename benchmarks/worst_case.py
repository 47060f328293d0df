"""Black-box audit of the final model from worst-case initial weights (Annamalai & De Cristofaro 2024).

The guarantee of DP-SGD holds for every initial model. Here the initial weights misclassify the canary with confidence
throughout the training, so that its clipped gradient has the same direction at every step and no other record has a
gradient there. The answers of the final model then give the sum of all releases in that direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from tacit import check
from tacit.accounting import accountant
from tacit.mechanisms import Gaussian
from tacit.models import mlp
from tacit.runs.builders import cross_entropy
from tacit.tradeoff import TradeOff
from tacit.tradeoff.gaussian import gaussian_mu
from tacit.training import fit

_WRONG = 1e-3  # weight of the canary's feature for the wrong class, and minus that for the right one
_AMPLIFIED = 1000.0  # weight of its path through each hidden layer: the last layer then has nearly all its gradient
_SILENT = -1.0  # bias of that path, so that no other record ever takes it
_FEATURE = 1e6  # the canary's own feature; it is 0 in every other record
_PROBED = 10.0  # value of the last layer's feature that the probes aim at
_TRAVEL = 1e-4  # how far the weights move, so that the path stays as it was


class WorstCase:
    """Membership game: `steps` of full-batch DP-SGD with or without the canary, then two queries of the final model.

    Args:
        hidden: widths of the network; () is logistic regression.
        records: ordinary records, >= 1.
        epsilon: of the claim that the noise is calibrated to.
        delta: of that claim.
        steps: of training.

    Raises:
        InvalidInput: a number is outside its range.
    """

    def __init__(self, *, hidden: Sequence[int], records: int, epsilon: float, delta: float, steps: int):
        self.hidden, self.steps = tuple(hidden), check.count("steps", steps)
        self.noise = math.sqrt(self.steps) / gaussian_mu(check.epsilon(epsilon), check.delta(delta))
        draw = np.random.default_rng(0)
        inputs = draw.normal(size=(check.count("records", records), 10)).astype(np.float32)
        self._inputs = np.column_stack([inputs, np.zeros(records, np.float32)])
        self._targets = draw.integers(0, 2, records)
        self._canary = np.append(np.zeros(10), _FEATURE).astype(np.float32)[None]
        self._rate = _TRAVEL * records / self.steps

    @property
    def claim(self) -> TradeOff:
        """The guarantee that every trial claims."""
        return accountant("pld")(Gaussian(self.noise) * self.steps)

    @property
    def threshold(self) -> float:
        """Score half way between the means with and without the canary."""
        return self.steps / 2

    def trial(self, included: bool) -> float:
        """Train once and score the final model: N(0, steps noise^2), or the same about `steps` with the canary in."""
        model = self._network()
        inputs = np.concatenate([self._inputs, self._canary]) if included else self._inputs
        targets = np.append(self._targets, 0) if included else self._targets
        fit(
            model,
            inputs,
            targets,
            loss=cross_entropy,
            optimizer=torch.optim.SGD(model.parameters(), lr=self._rate),
            clip_norm=1.0,
            noise_multiplier=self.noise,
            sample_rate=1.0,
            expected_batch_size=len(self._targets),
            steps=self.steps,
        )
        moved = (self._log_odds(model, self._probe) - self._log_odds(model, 0.0)) / _PROBED + 2 * _WRONG
        return moved * len(self._targets) / (math.sqrt(2) * self._rate)

    @property
    def _probe(self) -> float:
        """The canary's feature at which the last layer's feature is `_PROBED`."""
        value = _PROBED
        for _ in self.hidden:
            value = (value - _SILENT) / _AMPLIFIED
        return value

    def _network(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = mlp(11, 2, hidden=self.hidden)
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        source = 10
        with torch.no_grad():
            for layer in layers[:-1]:
                layer.weight[:, source] = 0.0
                layer.weight[0] = 0.0
                layer.weight[0, source], layer.bias[0] = _AMPLIFIED, _SILENT
                source = 0
            layers[-1].weight[:, source] = torch.tensor([-_WRONG, _WRONG])
        return model

    @staticmethod
    def _log_odds(model: nn.Module, feature: float) -> float:
        """Log-odds log p_0 / p_1 of an input with the canary's feature alone."""
        probe = torch.zeros(1, 11)
        probe[0, 10] = feature
        with torch.no_grad():
            answer = torch.log_softmax(model(probe).double(), dim=1)[0]
        return float(answer[0] - answer[1])
