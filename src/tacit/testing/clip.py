"""`check_clip`: the suite of every way of clipping, whatever the gradients are."""

import functools
import json
import math

import torch
from torch import Tensor, nn

from tacit.clipping import Clip, clip_from_spec
from tacit.gradients import ClippedSum, UnitIds
from tacit.testing.draws import require

# Zero, the smallest subnormal and normal float32 numbers, ordinary lengths, and lengths whose squares overflow.
_LENGTHS = (0.0, 1e-45, 1e-39, 1e-30, 1e-20, 1e-8, 1e-3, 0.3, 1.0, 7.0, 1e6, 1e15, 1e19, 1e25, 3e38)
_NOT_FINITE = (math.nan, math.inf, -math.inf)
_RECORD_ROUNDING = 1e-6  # Relative rounding of a float32 gradient of 22 numbers.
_SUM_ROUNDING = 1e-5  # Relative rounding of the difference of two float32 sums.


def check_clip(clip: Clip, *, keeps_short_gradients: bool) -> None:
    """Check that no record, or user, moves the released sum by more than `clip.sensitivity`.

    The suite covers every length of a gradient from subnormal to overflowing, NaN and infinities, a record that is
    added, zeroed out or replaced, all records of one user together, and the JSON round trip.

    Args:
        clip: fits the parameters of `small_model()`: "0.weight", "0.bias" and "2.weight".
        keeps_short_gradients: whether a gradient well within the bound keeps its length exactly, as in flat clipping;
            False for a clip that rescales every gradient, as automatic clipping does.

    Raises:
        AssertionError: a property does not hold; the sentence names it.

    Example:
        >>> from tacit.clipping import FlatClip
        >>> check_clip(FlatClip(0.7), keeps_short_gradients=True)
    """
    copy = clip_from_spec(json.loads(json.dumps(clip.spec())))
    require(copy == clip, f"a clip must survive its JSON form; got {copy} from {clip}.")
    require(hash(copy) == hash(clip), f"equal clips must have equal hashes; {clip} has not.")
    _check_factors(clip, keeps_short_gradients)
    _check_one_record(clip)
    _check_neighbours(clip)
    _check_users(clip)


def small_model() -> nn.Module:
    """Return a fixed network with three parameters in two layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))


def product(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a loss without curvature, shape (batch,): inputs and targets alone decide the length of a gradient."""
    return (outputs * targets).sum(1)


def released_sum(clip: Clip, inputs: Tensor, targets: Tensor, units: UnitIds | None = None) -> Tensor:
    """Return the finished clipped sum of `small_model()` as one float64 vector.

    Args:
        clip: the clip.
        inputs: shape (batch, 3).
        targets: shape (batch, 2).
        units: the user of every record; None where each record is its own unit.
    """
    total, norms = ClippedSum(_examined(), clip)(product, inputs, targets, units)
    return clip.finish(total.flat, len(norms)).double()


@functools.cache
def _examined() -> nn.Module:
    """Return one model for all sums: what is examined of it holds for any records and clips."""
    return small_model()


def norm(vector: Tensor) -> float:
    """Return the L2 norm, scaled so that squares do not overflow."""
    largest = float(vector.abs().max())
    return largest * float((vector / largest).norm()) if largest else 0.0


def contribution_bound(clip: Clip) -> float:
    """Return the largest norm of one contribution: the sensitivity, or half of it for a clip of the batch mean."""
    return clip.sensitivity / (2 if clip.of_mean else 1)


def _check_factors(clip: Clip, keeps_short_gradients: bool) -> None:
    groups = max(clip.groups(list(dict(small_model().named_parameters()))).values()) + 1
    for dtype in (torch.float32, torch.float64):
        rounding = torch.finfo(dtype).eps
        for first in _LENGTHS:
            for rest in _LENGTHS:
                norms = torch.full((groups, 1), rest, dtype=dtype)
                norms[0] = first
                factors = clip.factors(norms, rounding=rounding)
                _check_factor(clip, norms, factors)
                if keeps_short_gradients and norm(norms.double()) * groups <= 0.5 * clip.sensitivity / groups:
                    require((factors == 1).all(), f"a gradient of norms {norms.tolist()} must keep its length.")
        for value in _NOT_FINITE:
            norms = torch.full((groups, 2), 0.1, dtype=dtype)
            norms[-1, 1] = value
            dropped = (clip.factors(norms, rounding=rounding)[:, 1] == 0).all()
            require(dropped, f"a record with a norm of {value} must get the factor 0 in every group.")


def _check_factor(clip: Clip, norms: Tensor, factors: Tensor) -> None:
    where = f"at norms {norms.tolist()}"
    require(factors.shape == norms.shape, f"factors must have the shape of the norms; got {tuple(factors.shape)}.")
    require((factors >= 0).all() and factors.isfinite().all(), f"factors must be >= 0 and finite {where}.")
    if not clip.of_mean:
        length = norm(factors.double() * norms.double())
        require(length <= clip.sensitivity, f"a clipped norm must be at most {clip.sensitivity} {where}; got {length}.")


def _check_one_record(clip: Clip) -> None:
    """Any floats in any place: at most the bound, and exactly nothing for a gradient that is not finite."""
    bound = contribution_bound(clip)
    for value in (*_LENGTHS, *_NOT_FINITE):
        for x, y in (([value, 0.5, -1.0], [1.0, 2.0]), ([0.5, value, value], [value, -3.0]), ([0.0] * 3, [value] * 2)):
            total = released_sum(clip, torch.tensor([x]), torch.tensor([y]))
            where = f"for the record ({x}, {y})"
            require(total.isfinite().all(), f"the clipped sum must be finite {where}.")
            length = norm(total)
            short = length <= bound * (1 + _RECORD_ROUNDING)
            require(short, f"a contribution must be <= {bound} {where}; got {length}.")
            if not math.isfinite(value):
                require(length == 0, f"a gradient that is not finite must contribute 0 {where}; got {length}.")


def _check_neighbours(clip: Clip) -> None:
    """The whole sum again when a record is added, zeroed out or replaced by another."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 3, generator=generator), torch.randn(9, 2, generator=generator)
    others = torch.arange(9) != 4
    for scale in (1e-4, 1.0, 1e4, 1e20, math.nan):
        here, there, blank = (torch.where(others[:, None], y, row) for row in (y * scale, -y * scale, y * 0))
        total = released_sum(clip, x, here)
        for relation, neighbour, times in (
            ("add_remove", released_sum(clip, x[others], y[others]), 1),
            ("zero_out", released_sum(clip, x, blank), 1),
            ("replace_one", released_sum(clip, x, there), 1 if clip.of_mean else 2),
        ):
            moved, allowed = norm(total - neighbour), times * clip.sensitivity
            sentence = f"neighbours under {relation} must differ by at most {allowed} at scale {scale}; got {moved}."
            require(moved <= allowed * (1 + _SUM_ROUNDING), sentence)


def _check_users(clip: Clip) -> None:
    """All records of one user together count as one record does."""
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(9, 3, generator=generator), torch.randn(9, 2, generator=generator)
    users = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 3]).numpy()
    others = torch.from_numpy(users != 2)
    rest = released_sum(clip, x[others], y[others], UnitIds(torch.tensor([0, 1, 1, 2]).numpy()))
    for average in (False, True):
        for scale in (1e-4, 1.0, 1e20, math.nan):
            scaled = torch.where(others[:, None], y, y * scale)
            if not average:
                moved = norm(released_sum(clip, x, scaled, UnitIds(users)) - rest)
                sentence = f"a user must move the sum by at most {clip.sensitivity} at scale {scale}; got {moved}."
                require(moved <= clip.sensitivity * (1 + _SUM_ROUNDING), sentence)
            one_user = UnitIds(users[users == 2] * 0, average=average)
            alone, bound = norm(released_sum(clip, x[~others], scaled[~others], one_user)), contribution_bound(clip)
            sentence = f"a user alone must contribute at most {bound} at scale {scale}; got {alone}."
            require(alone <= bound * (1 + _RECORD_ROUNDING), sentence)
