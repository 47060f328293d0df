"""What the Bayesian accountant says along the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from tacit.accounting import Ledger
from tacit.gradients.batch import Loss
from tacit.mechanisms import Gaussian
from tacit.training import Plan
from tacit.variational import BayesianObserver


class Course(BayesianObserver):
    """Notes epsilon at `delta`, and delta at `epsilon`, at the first look at or after each of `marks` (epochs).

    `seen` has a dictionary for each, with the epoch of that look.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        *,
        marks: Sequence[float],
        epsilon: float,
        delta: float,
        loss: Loss,
        pairs: int,
        every: int,
        seed: int,
    ):
        super().__init__(model, inputs, targets, loss=loss, pairs=pairs, every=every, seed=seed)
        self.seen: list[dict[str, float]] = []
        self._marks, self._epsilon, self._delta = marks, epsilon, delta
        self._rate = self._noise = 1.0

    def on_plan(self, plan: Plan) -> None:
        super().on_plan(plan)
        self._rate, self._noise = plan.sample_rate, plan.noise_at(0)

    def on_step(self, taken: int, planned: int) -> None:
        super().on_step(taken, planned)
        epoch = taken * self._rate
        if self.waiting_steps or len(self.seen) == len(self._marks) or epoch < self._marks[len(self.seen)] - 1e-9:
            return
        judged = self.trade_off(Ledger.of(Gaussian(self._noise).poisson(self._rate) * taken))
        found = {"epsilon": float(judged.epsilon(self._delta)), "delta": float(judged.delta(self._epsilon))}
        self.seen.append({"epoch": epoch} | found)

    def state(self) -> dict[str, Any]:
        return super().state() | {"seen": list(self.seen)}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.seen = list(state["seen"])
