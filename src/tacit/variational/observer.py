"""The Bayesian accountant at work: it watches pairs of held-out records while a model is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit import check
from tacit.accounting import Ledger
from tacit.accounting.bayesian import Bayesian
from tacit.clipping import FlatClip
from tacit.gradients.batch import Loss
from tacit.tradeoff import TradeOff
from tacit.training import Plan
from tacit.training.callbacks import Callback


class BayesianObserver(Callback):
    """Feeds gradient differences of held-out pairs to `Bayesian`, those of each step before it is taken.

    The answer has the standing "bayesian": it averages over records like the held-out ones, looks at those without
    protecting them, and is no DP guarantee. A resumed run was not watched whole, and the accountant refuses it.

    Args:
        model: the model that is trained.
        inputs, targets: held-out records, which training must not see, at least 6.
        loss: that of the training, one value per example.
        pairs: m >= 3 pairs of different records, drawn anew for every step.
        version: "v1", as published, or "v2", by Hoelder's inequality over all planned steps.
        clipped: whether gradients count as the training clips them.
        seed: of the draws of pairs.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        *,
        loss: Loss,
        pairs: int = 64,
        version: str = "v1",
        clipped: bool = True,
        seed: int = 0,
    ):
        self._pairs = check.count("pairs", pairs, minimum=3)
        if len(inputs) != len(targets) or len(inputs) < 2 * self._pairs:
            raise check.fail("inputs", "two held-out records for each pair, with their targets", len(inputs))
        self.version = check.choice("version", version, ("v1", "v2"))
        self._model, self._inputs, self._targets, self._loss = model, inputs, targets, loss
        self._clipped, self._generator = clipped, torch.Generator().manual_seed(seed)
        self._judge: Bayesian | None = None
        self._plan: Plan | None = None
        self._waiting: Tensor | None = None

    def on_plan(self, plan: Plan) -> None:
        if not isinstance(plan.clip, FlatClip):
            raise check.fail("clipping", "flat for the Bayesian accountant", plan.clip.type)
        self._plan = plan
        self._judge = Bayesian(version=self.version, steps=plan.steps if self.version == "v2" else None)
        self._waiting = self.differences()

    def on_step(self, taken: int, planned: int) -> None:
        if self._plan is None or self._judge is None or self._waiting is None:
            return
        # What waits was measured at the parameters from which the step just taken started.
        self._judge.observe(
            self._waiting.double().numpy(),
            sample_rate=self._plan.sample_rate,
            noise_multiplier=self._plan.noise_at(taken - 1),
            clip_norm=self._plan.clip_norm,
        )
        self._waiting = self.differences() if taken < planned else None

    def differences(self) -> Tensor:
        """Norms of the differences of two records' gradients at the present parameters, shape (pairs,)."""
        chosen = torch.randperm(len(self._inputs), generator=self._generator)[: 2 * self._pairs]
        gradients = self._gradients(self._inputs[chosen], self._targets[chosen])
        return (gradients[: self._pairs] - gradients[self._pairs :]).norm(dim=1)

    def trade_off(self, ledger: Ledger) -> TradeOff:
        """The estimate for a run all of whose steps were watched; raises `Refused` for any other."""
        if self._judge is None:
            raise check.fail("ledger", "that of a run with this callback", "none yet")
        return self._judge(ledger, relation=ledger.relation)

    def _gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One row for each record."""
        parameters = {name: value.detach() for name, value in self._model.named_parameters() if value.requires_grad}

        def one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return self._loss(functional_call(self._model, parameters, (x[None],)), y[None]).sum()

        found = vmap(grad(one), in_dims=(None, 0, 0))(parameters, inputs, targets)
        rows = torch.cat([value.flatten(1) for value in found.values()], dim=1)
        if not self._clipped or self._plan is None:
            return rows
        norms = rows.norm(dim=1, keepdim=True)
        return rows * (self._plan.clip_norm / norms.clamp(min=1e-12)).clamp(max=1.0)
