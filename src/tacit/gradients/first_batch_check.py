"""The first-step audit: a few records of the first real batch, against ordinary backward passes in double precision."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tacit.clipping import Clip, FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.fallback import clipped_rows, one_at_a_time
from tacit.gradients.inputs import Inputs, Loss, losses_of, outputs_of, rows
from tacit.gradients.privacy_units import PrivacyUnits
from tacit.gradients.verify_capture import NoDropout

_FEW = 3
_TOLERANCE = 1e-3


def first_batch_check(clipped: ClippedSum, loss: Loss, inputs: Inputs, targets: Tensor) -> None:
    """Compare the clipped sum of a few records with a loop over them in float64, dropout off.

    The model, the loss, the records and the clip are those of the run. Models that are random beyond dropout are left
    out, and records whose gradient is not finite; a model that runs in one precision only is compared in that.

    Raises `UnsupportedModel` when the sum is off by more than a thousandth of the longest there can be.
    """
    few = slice(0, _FEW)
    x, y = rows(inputs, few), targets[few]
    # A run draws the same dropout masks with and without the audit, as one that is resumed is audited again.
    with NoDropout(), torch.random.fork_rng([targets.device] if targets.is_cuda else []):
        apart = _apart(clipped, loss, x, y)
    if apart > _TOLERANCE:
        raise UnsupportedModel(
            "the clipped gradients of the first records must equal those of a loop over them; got a difference of "
            f"{apart:.1e}, relative. The model uses a parameter in a way that was not seen: report it, with the model."
        )


def _apart(clipped: ClippedSum, loss: Loss, x: Inputs, y: Tensor) -> float:
    """How far the clipped sum is from that of the loop, relative to the longest there can be.

    Rounding of the model itself, in half precision or on a badly conditioned record, is what loops in both precisions
    differ by; up to a tenth it is left out.
    """
    model, clip = clipped.model, clipped.clip if not clipped.clip.of_mean else FlatClip(clipped.clip.sensitivity)
    if _random(model, loss, x, y):
        return 0.0
    found = ClippedSum(model, clip)(loss, x, y)[0].flat.double()
    expected, scale = _loop(model, clip, loss, x, y, wider=True)
    scale = max(scale, 1e-6 * clip.sensitivity)
    if not expected.isfinite().all():
        return 0.0
    if float((found - expected).norm()) <= _TOLERANCE * scale:
        return 0.0
    own, _ = _loop(model, clip, loss, x, y, wider=False)
    rounding = min(4 * float((own - expected).norm()), 0.1 * scale)
    return max(float((found - own).norm()) - rounding, 0.0) / scale


def _loop(model: nn.Module, clip: Clip, loss: Loss, x: Inputs, y: Tensor, wider: bool) -> tuple[Tensor, float]:
    """The sum of the clipped gradients, and the sum of their lengths."""
    gradients = None
    if wider:
        try:
            gradients, _ = one_at_a_time(copy.deepcopy(model).double(), loss, _doubled(x), _doubled(y))  # type: ignore[arg-type]
        except Exception:
            # Models with a fixed precision or state that cannot be copied fail in many ways; the other loop runs.
            gradients = None
    if gradients is None:
        gradients, _ = one_at_a_time(model, loss, x, y)
    units = PrivacyUnits(clip.groups(list(gradients)))
    _, rowwise = clipped_rows({name: value.double() for name, value in gradients.items()}, clip, units)
    each = torch.cat([value.flatten(1) for value in rowwise.values()], 1)
    return each.sum(0), float(each.norm(dim=1).sum())


def _doubled(value: Inputs) -> Inputs:
    if isinstance(value, tuple):
        return tuple(each.double() if each.is_floating_point() else each for each in value)
    if isinstance(value, dict):
        return {name: each.double() if each.is_floating_point() else each for name, each in value.items()}
    return value.double() if value.is_floating_point() else value


def _random(model: nn.Module, loss: Loss, x: Inputs, y: Tensor) -> bool:
    with torch.no_grad():
        first, second = (losses_of(loss, outputs_of(model, x), y) for _ in range(2))
    return not torch.equal(first.nan_to_num(), second.nan_to_num())
