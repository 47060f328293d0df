"""Clipped sums against separate backward passes in double precision: the first records of a run, and whole batches.

Record types say nothing about arithmetic. These comparisons use nothing of the rules, buffers and graphs that made a
sum; what rounding explains of the model itself, in half precision or on a badly conditioned record, is the difference
of such passes in both precisions, and is left out up to a tenth of the longest sum that there can be.
"""

import copy
import math

import torch
from torch import Tensor, nn

from tacit.clipping import Clip, FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.fallback import by_vmap, one_at_a_time
from tacit.gradients.inputs import Inputs, Loss, PhysicalBatch, doubled
from tacit.gradients.module_state import draws_of_python, restored_generators
from tacit.gradients.rounding import precise_products
from tacit.gradients.verify_capture import NoDropout

# Records of the first check: enough for a batch axis that is not 1, few enough to cost less than a step.
_RECORDS = 3
# Relative difference that float32 rounding explains in deep models; a missed use differs by far more.
TOLERANCE = 1e-3
# Values of per-sample gradients in one comparison at most (0.5 GB in float64, in parts of 32 MB), else it costs many
# steps; larger models are compared by the first batch's few records alone.
_VALUES, _HELD = 2**26, 2**22
# Gradients beyond it may overflow in single precision and not in double.
_LARGE = 1e15
# Relative distance that sums in single precision keep and that half precision exceeds, and values to tell them by.
_NARROW, _LEAST_VALUES = 2.0**-14, 32
# Share of the sensitivity that a contribution may exceed by rounding of the reference itself.
_ROUNDING = 1e-6
_NORMS = 500  # that are clipped for a trial, from a tenth of the sensitivity to a hundred times it


def first_batch_check(clipped: ClippedSum, loss: Loss, inputs: Inputs, targets: Tensor) -> None:
    """Compare the clipped sum of a few records with a loop over them in float64, dropout off.

    The model, the loss, the records and the clip are those of the run; see `difference_of_sum`. A model that runs in
    one precision only is compared in that, and one that is large or keeps state too.

    Args:
        clipped: model and clip of the run.
        loss: one value per record.
        inputs: of the first batch.
        targets: of the first batch.

    Raises:
        UnsupportedModel: the sum is off by more than a thousandth of the longest there can be, or a contribution is
            longer than the sensitivity.

    Example:
        >>> import torch
        >>> from tacit.clipping import FlatClip
        >>> clipped = ClippedSum(torch.nn.Linear(2, 1), FlatClip(1.0))
        >>> first_batch_check(clipped, lambda y, t: (y[:, 0] - t).square(), torch.eye(2), torch.ones(2))
    """
    batch = PhysicalBatch(loss, inputs, targets).select(slice(0, _RECORDS))
    clip = clipped.clip if not clipped.clip.of_mean else FlatClip(clipped.clip.sensitivity)
    # A run draws the same dropout masks with and without the check, as one that is resumed is checked again.
    with NoDropout(), precise_products(), restored_generators() as again:
        alone = ClippedSum(clipped.model, clip)
        covered = clipped.probe.covers(batch.inputs, batch.targets, batch.loss)
        # Types of passes without dropout are none of the run's.
        alone.probe = clipped.probe if covered else clipped.probe.apart()
        alone.fallback_reason(batch.loss, batch.inputs, batch.targets)
        again()
        total = alone(batch.loss, batch.inputs, batch.targets)[0].flat
        difference = difference_of_sum(alone, batch, clip, total)
    if difference is not None and difference > TOLERANCE:
        raise UnsupportedModel(
            "the clipped gradients of the first records must equal those of a loop over them; got a difference of "
            f"{difference:.1e}, relative. The model uses a parameter in a way that was not seen: report it, with the "
            "model."
        )


def difference_of_sum(
    clipped: ClippedSum,
    batch: PhysicalBatch,
    clip: Clip,
    total: Tensor,
    owners: Tensor | None = None,
    *,
    average: bool = False,
) -> float | None:
    """Distance of `total` from the clipped sum of `batch` that separate backward passes in float64 make.

    Nothing of the rules, buffers and graphs that made `total` is used, and every contribution is measured against
    `clip.sensitivity`, whatever the clip says of itself.

    Args:
        clipped: the model.
        batch: the records, and their loss.
        clip: the clip that the noise follows.
        total: clipped sum, flat; before `Clip.finish`.
        owners: unit of every record of the batch that was drawn; None where each record is a unit.
        average: whether the gradient of a unit is the mean of its records' instead of their sum.

    Returns:
        The distance in units of the longest sum that there can be, without what rounding explains. None where it was
        not measured: for models that draw, batches with gradients that may overflow, and, beyond a few records, for
        models that keep state, that double precision or `torch.func` do not take, and large ones.

    Raises:
        UnsupportedModel: a contribution is longer than the sensitivity.
    """
    _check_factors(clipped, clip)
    if owners is not None and len(owners) != len(batch):
        raise UnsupportedModel("the records of a unit must be clipped together; they were split over physical batches.")
    few = len(batch) <= _RECORDS
    if not len(batch) or (not few and (len(batch) * total.numel() > _VALUES or clipped.probe.cleared)):
        return None

    def reference(wider: bool) -> tuple[Tensor, Tensor, int] | None:
        gradients = _gradients(clipped.model, batch, wider)
        if gradients is not None and owners is not None:
            gradients = _by_unit(gradients, owners.to(total.device), average=average)
        return None if gradients is None else _clipped(gradients, clip, torch.finfo(total.dtype).eps)

    with torch.random.fork_rng([total.device] if total.is_cuda else []):
        found = reference(wider=True) or (reference(wider=False) if few else None)
        if found is None:
            return None
        expected, contributions, units = found
        _check_sensitivity(clip, contributions, expected, units)
        scale = max(float(contributions.sum()), 1e-6 * clip.sensitivity)
        distance, narrow = float((total.double() - expected).norm()), _NARROW * float(expected.norm())
        looks_narrow = distance > narrow and _is_narrow(total)
        if distance <= TOLERANCE * scale and not looks_narrow:
            return 0.0
        own = reference(wider=False)
    apart = math.nan if own is None else float((total.double() - own[0]).norm())
    # A model that computes in half precision itself has the same sums record by record.
    if looks_narrow and apart > narrow:
        return math.inf
    if distance <= TOLERANCE * scale:
        return 0.0
    if own is None:
        # A record overflows in the model's precision: its contribution is left out, which double precision would not.
        return None if bool(total.isfinite().all()) else math.nan
    # What rounding makes of separate passes themselves, on badly conditioned records.
    rounding = min(4 * float((own[0] - expected).norm()), 0.1 * scale)
    return min(max(distance - rounding, 0.0), apart) / scale


def _is_narrow(total: Tensor) -> bool:
    """Whether many values all have at most the digits of half precision, which a sum in single precision has not."""
    values = total[total != 0]
    if len(values) < _LEAST_VALUES or total.dtype not in (torch.float32, torch.float64):
        return False
    return any(bool((values.to(narrow).to(values.dtype) == values).all()) for narrow in (torch.bfloat16, torch.float16))


def _check_factors(clipped: ClippedSum, clip: Clip) -> None:
    """Norms of the model's own precision times their factors, over all groups, are within the sensitivity."""
    if clip.of_mean:
        return
    groups = clip.groups(list(clipped.trainable))
    norms = clip.sensitivity * torch.logspace(-1, 2, _NORMS).repeat(max(groups.values()) + 1, 1)
    longest = (clipped.factors(norms.square()).double() * norms.double()).square().sum(0).sqrt().max()
    _check_longest(clip, float(longest))


def _clipped(gradients: dict[str, Tensor], clip: Clip, rounding: float) -> tuple[Tensor, Tensor, int] | None:
    """Clipped sum, length of every contribution, and number of units; None where gradients may overflow."""
    groups = clip.groups(list(gradients))
    first = next(iter(gradients.values()))
    norms = first.new_zeros(max(groups.values()) + 1, len(first), dtype=torch.float64)
    for name, rows in gradients.items():
        norms[groups[name]] += rows.flatten(1).double().square().sum(1)
    norms = norms.sqrt()
    if not bool((norms < _LARGE).all()):
        return None
    # The lanes lower the bound by the rounding of their precision; so does the reference.
    factors = clip.factors(norms, rounding=rounding)
    total = [torch.tensordot(factors[groups[name]], rows.double(), 1).flatten() for name, rows in gradients.items()]
    return torch.cat(total), (factors * norms).square().sum(0).sqrt(), norms.shape[1]


def _check_sensitivity(clip: Clip, contributions: Tensor, total: Tensor, units: int) -> None:
    """One unit may add a contribution, or turn around a mean: neither moves the release by more than stated."""
    longest = float(contributions.max())
    if clip.of_mean:
        longest = 2 * float(clip.finish(total.clone(), units).norm())
    _check_longest(clip, longest)


def _check_longest(clip: Clip, longest: float) -> None:
    if not longest <= clip.sensitivity * (1 + _ROUNDING):
        raise UnsupportedModel(
            f"the contribution of a unit must be at most the sensitivity {clip.sensitivity:g} of {clip.type} clipping, "
            "which the noise follows; one is longer. Report it, with the clip."
        )


def _gradients(model: nn.Module, batch: PhysicalBatch, wider: bool) -> dict[str, Tensor] | None:
    """Per-sample gradients, name -> (batch, *shape), in float64 if `wider`; None where they cannot be had."""
    try:
        if _draws(model, batch):
            return None
        if wider:
            model, batch = copy.deepcopy(model).double(), doubled(batch)
        if len(batch) <= _RECORDS:
            return one_at_a_time(model, batch)[0]
        values = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        size = max(1, _HELD // max(1, values))
        parts = [by_vmap(model, batch.select(slice(start, start + size))) for start in range(0, len(batch), size)]
    except Exception:
        # Models with a fixed precision, state that cannot be copied or operations that torch.func lacks fail in many
        # ways; they are compared on the first few records alone.
        return None
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _draws(model: nn.Module, batch: PhysicalBatch) -> bool:
    """Whether the losses depend on a generator: a global one moves, or two passes differ."""
    with restored_generators(), torch.no_grad():
        before = _generators(batch)
        first, second = (batch.checked_losses(model).nan_to_num() for _ in range(2))
        return _generators(batch) != before or not torch.equal(first, second)


def _generators(batch: PhysicalBatch) -> tuple[object, ...]:
    """States of the generators that a model may draw from, to be compared."""
    device = batch.targets.device
    on_device = torch.cuda.get_rng_state(device).numpy().tobytes() if device.type == "cuda" else b""
    return torch.get_rng_state().numpy().tobytes(), on_device, *draws_of_python()


def _by_unit(gradients: dict[str, Tensor], owners: Tensor, *, average: bool) -> dict[str, Tensor]:
    """Sums, or means, of the gradients of the records of each unit."""
    count = int(owners.max()) + 1
    sizes = torch.bincount(owners, minlength=count).double()

    def summed(rows: Tensor) -> Tensor:
        found = rows.new_zeros(count, *rows.shape[1:]).index_add_(0, owners, rows)
        return found / sizes.view(-1, *[1] * (rows.dim() - 1)) if average else found

    return {name: summed(rows) for name, rows in gradients.items()}
