"""Gradient differences of pairs of held-out records: what the Bayesian accountant looks at."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit import check
from tacit.gradients.batch import Inputs, Loss, rows, tensors


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
