"""Per-sample gradients of small parameters side by side: one norm and one weighted sum serve all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.gradients.per_sample_gradients import DenseGradients, PerSampleGradients
from tacit.gradients.rounding import Blocks

# Values of one unit that are copied in less time than the operations take which joining spares. It depends on the model
# alone: how a record is clipped must not depend on how many others there are.
_MOST_VALUES = 2**11


def joins(gradients: PerSampleGradients) -> bool:
    """Whether `gradients` stand side by side with others: those of biases, scales and whatever else is small."""
    return isinstance(gradients, DenseGradients) and gradients.gradients.shape[1:].numel() <= _MOST_VALUES


@dataclass(frozen=True)
class JoinedGradients:
    """Per-sample gradients of several parameters as one matrix, a row for each privacy unit.

    Attributes:
        names: of the parameters, in the order of the columns.
        widths: columns of each parameter.
        rows: shape (units, sum of `widths`).

    Example:
        >>> import torch
        >>> parts = [DenseGradients("weight", torch.ones(2, 3)), DenseGradients("bias", torch.ones(2, 1))]
        >>> JoinedGradients.of(parts).squared_norms()
        tensor([4., 4.])
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    rows: DenseGradients

    @classmethod
    def of(cls, gradients: Sequence[PerSampleGradients]) -> JoinedGradients:
        """`gradients` of different parameters, side by side.

        Args:
            gradients: those for which `joins` holds, at least one, of the same units.
        """
        flat = [each.dense().flatten(1) if each.dense().dim() > 1 else each.dense().unsqueeze(1) for each in gradients]
        names, widths = tuple(each.name for each in gradients), tuple(each.shape[1] for each in flat)
        return cls(names, widths, DenseGradients(" ".join(names), flat[0] if len(flat) == 1 else torch.cat(flat, 1)))

    def squared_norms(self) -> Tensor:
        """Sum over the parameters of the squared norm of each unit's gradient, shape (units,)."""
        return self.rows.squared_norms()

    def add_in_blocks(self, parts: Mapping[str, Tensor], factors: Tensor, blocks: Blocks) -> None:
        """The weighted sum of every parameter, as `PerSampleGradients.add_in_blocks` makes it.

        Args:
            parts: parameter name -> zeros of its shape, of the type of `blocks`.
            factors: shape (units,).
            blocks: from `tacit.gradients.rounding.blocks`.
        """
        first = parts[self.names[0]]
        if len(self.names) == 1:
            self.rows.add_in_blocks(first, factors, blocks)
            return
        total = first.new_zeros(sum(self.widths))
        self.rows.add_in_blocks(total, factors, blocks)
        for name, part in zip(self.names, total.split_with_sizes(list(self.widths)), strict=True):
            parts[name].copy_(part.view(parts[name].shape))

    def values(self) -> int:
        """Values that the matrix holds in memory."""
        return self.rows.values()
