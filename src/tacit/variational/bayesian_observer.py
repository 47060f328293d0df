"""Gradient differences of pairs of held-out records: what the Bayesian accountant looks at.

The Bayesian accountant at work: it watches pairs of held-out records while a model is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit import check
from tacit.accounting import Ledger
from tacit.accounting.bayesian import Bayesian
from tacit.clipping import FlatClip
from tacit.gradients.inputs import Inputs, Loss, rows, tensors
from tacit.tradeoff import TradeOff
from tacit.training import Plan
from tacit.training.callbacks import Callback


class Pairs:
    """Pairs of different records, drawn anew at every look.

    Args:
        model: any module; its parameters of the moment count.
        inputs, targets: held-out records, at least two for each pair.
        loss: one value per example.
        count: m >= 3 pairs.
        clip_norm: bound on each gradient's norm; None to leave them as they are.
        seed: of the draws.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        targets: Tensor,
        *,
        loss: Loss,
        count: int,
        clip_norm: float | None,
        seed: int,
    ):
        self.count = check.count("pairs", count, minimum=3)
        if any(len(each) != len(targets) for each in tensors(inputs)) or len(targets) < 2 * self.count:
            raise check.fail("inputs", "two held-out records for each pair, with their targets", len(targets))
        self._model, self._inputs, self._targets, self._loss = model, inputs, targets, loss
        self.clip_norm = clip_norm
        self.generator = torch.Generator().manual_seed(seed)

    def differences(self) -> Tensor:
        """Norms of the differences of two records' gradients at the present parameters, shape (pairs,)."""
        chosen = torch.randperm(len(self._targets), generator=self.generator)[: 2 * self.count]
        gradients = self._gradients(rows(self._inputs, chosen), self._targets[chosen])
        return (gradients[: self.count] - gradients[self.count :]).norm(dim=1)

    def _gradients(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """One row for each record."""
        parameters = {name: value.detach() for name, value in self._model.named_parameters() if value.requires_grad}
        found = vmap(grad(self._one), in_dims=(None, 0, 0))(parameters, inputs, targets)
        flat = torch.cat([value.flatten(1) for value in found.values()], dim=1)
        if self.clip_norm is None:
            return flat
        norms = flat.norm(dim=1, keepdim=True)
        return flat * (self.clip_norm / norms.clamp(min=1e-12)).clamp(max=1.0)

    def _one(self, parameters: dict[str, Tensor], x: Inputs, y: Tensor) -> Tensor:
        """The loss of one record."""
        if isinstance(x, Tensor):
            outputs = functional_call(self._model, parameters, (x[None],))
        elif isinstance(x, dict):
            outputs = functional_call(self._model, parameters, (), {name: value[None] for name, value in x.items()})
        else:
            outputs = functional_call(self._model, parameters, tuple(value[None] for value in x))
        return self._loss(outputs, y[None]).sum()


class BayesianObserver(Callback):
    """Feeds gradient differences of held-out pairs to `Bayesian`, those of each step before it is taken.

    The answer has the standing "bayesian": it averages over records like the held-out ones, looks at those without
    protecting them, and is no DP guarantee.

    Args:
        model: the model that is trained.
        inputs, targets: held-out records, which training must not see, at least 6.
        loss: that of the training, one value per example.
        pairs: m >= 3 pairs of different records, drawn anew whenever it looks.
        every: steps from one look to the next, >= 1; what was seen counts for all of them. More than 1 needs one noise
            multiplier for all steps.
        version: "v1", as published, or "v2", by Hoelder's inequality over all planned steps.
        clipped: whether gradients count as the training clips them.
        seed: of the draws of pairs.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        targets: Tensor,
        *,
        loss: Loss,
        pairs: int = 64,
        every: int = 1,
        version: str = "v1",
        clipped: bool = True,
        seed: int = 0,
    ):
        self.version = check.choice("version", version, ("v1", "v2"))
        self._pairs = Pairs(model, inputs, targets, loss=loss, count=pairs, clip_norm=None, seed=seed)
        self._clipped = clipped
        self._every = check.count("every", every)
        self._judge: Bayesian | None = None
        self._plan: Plan | None = None
        self._waiting: Tensor | None = None
        self._held = 0
        self._kept: Mapping[str, Any] | None = None

    def on_plan(self, plan: Plan) -> None:
        if not isinstance(plan.clip, FlatClip):
            raise check.fail("clipping", "flat for the Bayesian accountant", plan.clip.type)
        if self._every > 1 and isinstance(plan.noise_multiplier, tuple):
            raise check.fail("noise_multiplier", "one for all steps where every is above 1", "a schedule")
        self._plan = plan
        self._pairs.clip_norm = plan.clip_norm if self._clipped else None
        self._judge = Bayesian(version=self.version, steps=plan.steps if self.version == "v2" else None)
        self._held = 0
        if self._kept is None:
            self._waiting = self._pairs.differences()
            return
        self._judge.restore(self._kept["judge"])
        self._waiting, self._held = self._kept["waiting"], self._kept["held"]
        self._pairs.generator.set_state(self._kept["generator"])
        self._kept = None

    def on_step(self, taken: int, planned: int) -> None:
        self._held += 1
        if self._held == self._every or taken == planned:
            self._count(taken)
            self._waiting = self._pairs.differences() if taken < planned else None

    def on_end(self) -> None:
        if self._held and self._judge is not None:
            self._count(self._judge.observed + self._held)

    def state(self) -> dict[str, Any]:
        judge = None if self._judge is None else self._judge.state()
        return {
            "judge": judge,
            "waiting": self._waiting,
            "held": self._held,
            "generator": self._pairs.generator.get_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._kept = state

    def _count(self, taken: int) -> None:
        """Let what waits, measured where the first of the held steps started, stand for all of them."""
        assert self._plan is not None
        assert self._judge is not None
        assert self._waiting is not None
        self._judge.observe(
            self._waiting.double().numpy(),
            sample_rate=self._plan.sample_rate,
            noise_multiplier=self._plan.noise_at(taken - 1),
            clip_norm=self._plan.clip_norm,
            steps=self._held,
        )
        self._held = 0

    @property
    def waiting_steps(self) -> int:
        """Steps taken that the next look will count; 0 just after one."""
        return self._held

    def trade_off(self, ledger: Ledger) -> TradeOff:
        """The estimate for a run all of whose steps were watched; raises `Refused` for any other."""
        if self._judge is None:
            raise check.fail("ledger", "that of a run with this callback", "none yet")
        return self._judge(ledger, relation=ledger.relation)
