"""`Correlation`: the correlated noise of a run, one release for each charged step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.errors import TrainingMisuse
from tacit.gradients.rounding import MOST_UNITS
from tacit.mechanisms import Strategy
from tacit.noise.correlated import CorrelatedNoise


class Correlation:
    """The noise of a run whose steps are correlated by `strategy`; every release of the run passes through it.

    A record's contribution reaches several releases, so the steps of the noise must be those of the sampler: each
    charged step is released before the next is charged, at one standard deviation throughout.
    """

    def __init__(self, strategy: Strategy):
        self.begin(strategy)

    def begin(self, strategy: Strategy) -> None:
        """Begin a run, or what is left of an interrupted one, whose sums and noise are not kept: it costs anew."""
        self._noise = CorrelatedNoise.of(strategy)
        self._std: float | None = None
        self._charged = False

    def charge(self) -> None:
        """Expect the release of a step; raises `TrainingMisuse` where that of the last one is missing."""
        if self._charged:
            raise TrainingMisuse(
                "a run with correlated noise must release every step that it charges; got one that failed after its "
                "charge. Resume from a checkpoint, or begin a new run."
            )
        self._charged = True

    def slack(self, of_sums: float) -> float:
        """Nu of the run: that of its sums, and of the products and sums over steps that are made of them."""
        return self._noise.slack(of_sums, MOST_UNITS)

    def encode(self, sums: Tensor, std: float) -> Tensor:
        """What this step releases of the sums so far, before noise of `std`."""
        if self._std not in (None, std):
            raise TrainingMisuse("clip and noise must stay as they are during a run with correlated noise.")
        self._std = std
        return torch.from_numpy(self._noise.encode(sums.detach().cpu().double().numpy()))

    def decode(self, rows: Tensor) -> tuple[Tensor, float]:
        """The estimate of this step's sum from what was released, and the ratio of its noise to that of a row."""
        self._charged = False
        return torch.from_numpy(np.ascontiguousarray(self._noise.decode(rows.numpy()))), self._noise.spread

    def state(self) -> dict[str, Any]:
        """What a checkpoint of a seeded run keeps; private sums are in it, which its seed does not protect anyway."""
        return self._noise.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._noise.restore(state)
        self._charged = False
