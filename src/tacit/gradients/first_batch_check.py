"""The first-batch check: a few real records against ordinary backward passes in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tacit.clipping import Clip, FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.fallback import clipped_rows, one_at_a_time
from tacit.gradients.inputs import Inputs, Loss, PhysicalBatch, doubled
from tacit.gradients.privacy_units import PrivacyUnits
from tacit.gradients.rounding import precise_products
from tacit.gradients.verify_capture import NoDropout

# Records to check: enough for a batch axis that is not 1, few enough to cost less than a step.
_RECORDS = 3
# Relative difference that float32 rounding explains in deep models; a missed use differs by far more.
TOLERANCE = 1e-3


def first_batch_check(clipped: ClippedSum, loss: Loss, inputs: Inputs, targets: Tensor) -> None:
    """Compare the clipped sum of a few records with a loop over them in float64, dropout off.

    The model, the loss, the records and the clip are those of the run. Records whose gradient is not finite are left
    out; a model that runs in one precision only is compared in that, and one that is random beyond dropout with the
    same draws.

    Args:
        clipped: model and clip of the run.
        loss: one value per record.
        inputs: of the first batch.
        targets: of the first batch.

    Raises:
        UnsupportedModel: the sum is off by more than a thousandth of the longest there can be.

    Example:
        >>> import torch
        >>> from tacit.clipping import FlatClip
        >>> clipped = ClippedSum(torch.nn.Linear(2, 1), FlatClip(1.0))
        >>> first_batch_check(clipped, lambda y, t: (y[:, 0] - t).square(), torch.eye(2), torch.ones(2))
    """
    few = slice(0, _RECORDS)
    batch = PhysicalBatch(loss, inputs, targets).select(few)
    # A run draws the same dropout masks with and without the check, as one that is resumed is checked again.
    with NoDropout(), precise_products(), torch.random.fork_rng([targets.device] if targets.is_cuda else []):
        difference = _relative_difference(clipped, batch)
    if difference > TOLERANCE:
        raise UnsupportedModel(
            "the clipped gradients of the first records must equal those of a loop over them; got a difference of "
            f"{difference:.1e}, relative. The model uses a parameter in a way that was not seen: report it, with the "
            "model."
        )


def _relative_difference(clipped: ClippedSum, batch: PhysicalBatch) -> float:
    """Distance of the clipped sum from that of the loop, relative to the longest there can be.

    Rounding of the model itself, in half precision or on a badly conditioned record, is the difference of loops in
    both precisions; up to a tenth of the longest sum is left out.
    """
    model, clip = clipped.model, clipped.clip if not clipped.clip.of_mean else FlatClip(clipped.clip.sensitivity)
    again = _generators(batch)
    random = _random(model, batch, again)
    clipped_sum = ClippedSum(model, clip)
    clipped_sum.fallback_reason(batch.loss, batch.inputs, batch.targets)
    again()
    found = clipped_sum(batch.loss, batch.inputs, batch.targets)[0].flat.double()
    again()
    # Draws in double precision are others than those in single precision.
    expected, scale = _loop_sum(model, clip, batch, wider=not random)
    scale = max(scale, 1e-6 * clip.sensitivity)
    if not expected.isfinite().all():
        return 0.0
    if float((found - expected).norm()) <= TOLERANCE * scale:
        return 0.0
    own, _ = _loop_sum(model, clip, batch, wider=False)
    rounding = min(4 * float((own - expected).norm()), 0.1 * scale)
    return max(float((found - own).norm()) - rounding, 0.0) / scale


def _loop_sum(model: nn.Module, clip: Clip, batch: PhysicalBatch, wider: bool) -> tuple[Tensor, float]:
    """The sum of the clipped per-sample gradients by a loop, and the sum of their lengths."""
    gradients = None
    if wider:
        try:
            gradients, _ = one_at_a_time(copy.deepcopy(model).double(), doubled(batch))
        except Exception:
            # Models with a fixed precision or state that cannot be copied fail in many ways; the other loop runs.
            gradients = None
    if gradients is None:
        gradients, _ = one_at_a_time(model, batch)
    units = PrivacyUnits(clip.groups(list(gradients)))
    _, clipped = clipped_rows({name: value.double() for name, value in gradients.items()}, clip, units)
    flat = torch.cat([value.flatten(1) for value in clipped.values()], 1)
    return flat.sum(0), float(flat.norm(dim=1).sum())


def _random(model: nn.Module, batch: PhysicalBatch, again: Callable[[], None]) -> bool:
    with torch.no_grad():
        again()
        first, second = (batch.checked_losses(model) for _ in range(2))
    return not torch.equal(first.nan_to_num(), second.nan_to_num())


def _generators(batch: PhysicalBatch) -> Callable[[], None]:
    """A function that puts torch's generators where they are now."""
    cpu, device = torch.get_rng_state(), batch.targets.device
    cuda = torch.cuda.get_rng_state(device) if batch.targets.is_cuda else None

    def again() -> None:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)

    return again
