"""`BayesianObserver`: the Bayesian accountant as a callback, on gradient differences of pairs of held-out records."""

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

# Least norm that a gradient is divided by: a zero gradient stays zero.
_LEAST_NORM = 1e-12


class Pairs:
    """Pairs of different held-out records, drawn anew for every measurement.

    Args:
        model: any module, at its present parameters.
        inputs: held-out records, at least two for each pair.
        targets: of those records.
        loss: one value per example.
        count: m >= 3 pairs.
        clip_norm: bound on each gradient's norm; None to leave them as they are.
        seed: of the draws.

    Raises:
        InvalidInput: there are fewer than three pairs, or fewer than two records for each.
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
        if any(len(tensor) != len(targets) for tensor in tensors(inputs)) or len(targets) < 2 * self.count:
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
        """Per-sample gradients, one row for each record."""
        parameters = {name: value.detach() for name, value in self._model.named_parameters() if value.requires_grad}
        found = vmap(grad(self._one), in_dims=(None, 0, 0))(parameters, inputs, targets)
        flat = torch.cat([value.flatten(1) for value in found.values()], dim=1)
        if self.clip_norm is None:
            return flat
        norms = flat.norm(dim=1, keepdim=True)
        return flat * (self.clip_norm / norms.clamp(min=_LEAST_NORM)).clamp(max=1.0)

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

    The answer has the standing "bayesian": it averages over records like the held-out ones, reads those without
    protecting them, and is no DP guarantee.

    Args:
        model: the model that is trained.
        inputs: held-out records, which training must not see, at least 6.
        targets: of those records.
        loss: that of the training, one value per example.
        pairs: m >= 3 pairs of different records, drawn anew for every measurement.
        every: steps from one measurement to the next, >= 1; it counts for all of them. More than 1 needs one noise
            multiplier for all steps.
        version: "v1", as published, or "v2", by Hoelder's inequality over all planned steps.
        clipped: whether gradients count as the training clips them.
        seed: of the draws of pairs.

    Raises:
        InvalidInput: there are fewer than two held-out records for each pair, or an argument is out of range.

    Example:
        >>> loss = lambda outputs, targets: (outputs[:, 0] - targets).square()
        >>> BayesianObserver(nn.Linear(2, 1), torch.zeros(6, 2), torch.zeros(6), loss=loss, pairs=3).waiting_steps
        0
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
        self._accountant: Bayesian | None = None
        self._plan: Plan | None = None
        self._waiting: Tensor | None = None
        self._steps_since = 0
        self._restored: Mapping[str, Any] | None = None

    def on_plan(self, plan: Plan) -> None:
        """Measure the pairs before the first step, or go on from a checkpoint."""
        if not isinstance(plan.clip, FlatClip):
            raise check.fail("clipping", "flat for the Bayesian accountant", plan.clip.type)
        if self._every > 1 and isinstance(plan.noise_multiplier, tuple):
            raise check.fail("noise_multiplier", "one for all steps where every is above 1", "a schedule")
        self._plan = plan
        self._pairs.clip_norm = plan.clip_norm if self._clipped else None
        self._accountant = Bayesian(version=self.version, steps=plan.steps if self.version == "v2" else None)
        self._steps_since = 0
        if self._restored is None:
            self._waiting = self._pairs.differences()
            return
        self._accountant.restore(self._restored["judge"])
        self._waiting, self._steps_since = self._restored["waiting"], self._restored["held"]
        self._pairs.generator.set_state(self._restored["generator"])
        self._restored = None

    def on_step(self, taken: int, planned: int) -> None:
        """Count the last measurement after `every` steps, and measure anew."""
        self._steps_since += 1
        if self._steps_since == self._every or taken == planned:
            self._count(taken)
            self._waiting = self._pairs.differences() if taken < planned else None

    def on_end(self) -> None:
        """Count the last measurement for the steps since."""
        if self._steps_since and self._accountant is not None:
            self._count(self._accountant.observed + self._steps_since)

    def state(self) -> dict[str, Any]:
        """Accountant, last measurement and generator, for a checkpoint."""
        accountant = None if self._accountant is None else self._accountant.state()
        return {
            "judge": accountant,
            "waiting": self._waiting,
            "held": self._steps_since,
            "generator": self._pairs.generator.get_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state` once the plan is known."""
        self._restored = state

    def _count(self, taken: int) -> None:
        """Count the last measurement, made before the first of the steps since, for all of them."""
        assert self._plan is not None
        assert self._accountant is not None
        assert self._waiting is not None
        self._accountant.observe(
            self._waiting.double().numpy(),
            sample_rate=self._plan.sample_rate,
            noise_multiplier=self._plan.noise_at(taken - 1),
            clip_norm=self._plan.clip_norm,
            steps=self._steps_since,
        )
        self._steps_since = 0

    @property
    def waiting_steps(self) -> int:
        """Steps since the last measurement; 0 just after one."""
        return self._steps_since

    def trade_off(self, ledger: Ledger) -> TradeOff:
        """The estimate for a run all of whose steps were observed.

        Raises:
            Refused: the ledger has other steps.
        """
        if self._accountant is None:
            raise check.fail("ledger", "that of a run with this callback", "none yet")
        return self._accountant(ledger, relation=ledger.relation)
