"""`clipped_sum`: what every private training step needs from a batch."""

from __future__ import annotations

from torch import Tensor, nn

from tacit.clipping import FlatClip
from tacit.gradients.batch import Inputs, Loss, batch_size
from tacit.gradients.doctor import examine
from tacit.gradients.fallback import clipped_sum_by_example


def clipped_sum(
    model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor, *, clip_norm: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Sum over the batch of every example's gradient, clipped to L2 norm `clip_norm`, and the unclipped norms.

        sum_i g_i min(1, clip_norm / |g_i|),  g_i the gradient of loss_i in all trainable parameters together

    One example changes the sum by at most `clip_norm` (1 + 1e-6), whatever its values: an example whose gradient is
    NaN or infinite contributes exactly 0, one whose squares overflow is clipped like any other. The norms are private
    data: they must not be released.

    Args:
        model: any module whose layers treat examples independently; its mode and gradients are left alone.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        inputs: tensor (batch, ...), or a tuple or dict of such tensors for models with several arguments.
        targets: tensor (batch, ...).
        clip_norm: > 0.

    Returns:
        Parameter name -> clipped sum of that parameter's shape (float32 for half precision), and norms, shape (batch,).

    Raises:
        InvalidInput: `loss` returns one number or a mean, or inputs and targets differ in length.
        UnsupportedModel: a layer mixes the examples of a batch (its path and the fix are named).

    Source: Abadi et al. 2016, Algorithm 1.
    """
    clip = FlatClip(clip_norm)
    examine(model)
    batch_size(inputs, targets)
    return clipped_sum_by_example(model, loss, inputs, targets, clip)
