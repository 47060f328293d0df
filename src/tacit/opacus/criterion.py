"""The criterion of ghost mode: any `nn` loss with a mean that is taken example by example."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from tacit import check


class PerExampleMean(nn.Module):
    """`criterion` without its reduction, then a mean over each example's own positions, then over the batch.

    Positions whose target is `criterion.ignore_index` do not count; class weights weigh without dividing by the sum of
    the batch's weights, which would mix the examples.

    Args:
        criterion: a loss module with an attribute `reduction`, such as nn.CrossEntropyLoss(ignore_index=0).
        reduction: "mean" or "sum", over the batch.
    """

    def __init__(self, criterion: nn.Module, reduction: str = "mean"):
        super().__init__()
        if getattr(criterion, "reduction", None) not in ("mean", "sum", "none"):
            hint = 'Give one such as nn.CrossEntropyLoss(), or use grad_sample_mode="hooks" with your own function.'
            raise check.fail("criterion", "a loss module with an attribute `reduction`", type(criterion).__name__, hint)
        self.criterion = copy.deepcopy(criterion)
        self.criterion.reduction = "none"  # type: ignore[assignment]
        self.reduction = reduction

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean or sum over the batch of one loss per example."""
        losses = self._per_example(outputs, targets)
        return losses.sum() if self.reduction == "sum" else losses.mean()

    def _per_example(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """One loss per example, shape (batch,)."""
        losses = self.criterion(outputs, targets)
        if losses.dim() == 1:
            return losses
        losses = losses.flatten(1)
        ignored = getattr(self.criterion, "ignore_index", None)
        if ignored is None:
            return losses.mean(1)
        counted = (targets.flatten(1) != ignored).sum(1).clamp(min=1)
        return losses.sum(1) / counted
