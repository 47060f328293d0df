"""`check_clip`: what every way of clipping must satisfy, whatever the gradients are."""

import json
import math

import torch
from torch import nn

from tacit.clipping import Clip, clip_from_spec
from tacit.gradients import ClippedSum, UnitIds

EXTREMES = (0.0, 1e-45, 1e-39, 1e-30, 1e-20, 1e-8, 1e-3, 0.3, 1.0, 7.0, 1e6, 1e15, 1e19, 1e25, 3e38)
NEVER = (math.nan, math.inf, -math.inf)


def check_clip(clip: Clip, *, keeps_short_gradients: bool) -> None:
    """Run the whole suite on one clip, which must fit the parameters of `model()`."""
    assert clip_from_spec(json.loads(json.dumps(clip.spec()))) == clip
    assert hash(clip) == hash(clip_from_spec(clip.spec()))
    _factors(clip, keeps_short_gradients)
    _one_record(clip)
    _neighbours(clip)
    _units(clip)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))


def product(outputs, targets):
    """A loss without curvature, so that the inputs and targets alone decide how long gradients are."""
    return (outputs * targets).sum(1)


def whole(clip, x, y, members=None):
    """The finished sum as one vector in float64."""
    total, norms = ClippedSum(model(), clip)(product, x, y, members)
    return clip.finish(total.flat, len(norms)).double()


def norm(vector):
    largest = float(vector.abs().max())
    return largest * float((vector / largest).norm()) if largest else 0.0


def bound_of(clip):
    """Length of one contribution: the sensitivity, or half of it where any two outputs differ by that much."""
    return clip.sensitivity / (2 if clip.of_mean else 1)


def _factors(clip, keeps_short_gradients):
    groups = max(clip.groups(list(dict(model().named_parameters()))).values()) + 1
    for dtype in (torch.float32, torch.float64):
        rounding = torch.finfo(dtype).eps
        for first in EXTREMES:
            for rest in EXTREMES:
                norms = torch.full((groups, 1), rest, dtype=dtype)
                norms[0] = first
                factors = clip.factors(norms, rounding=rounding)
                assert factors.shape == norms.shape
                assert (factors >= 0).all()
                assert factors.isfinite().all()
                if not clip.of_mean:
                    assert norm(factors.double() * norms.double()) <= clip.sensitivity
                if keeps_short_gradients and norm(norms.double()) * groups <= 0.5 * clip.sensitivity / groups:
                    assert (factors == 1).all()
        for value in NEVER:
            norms = torch.full((groups, 2), 0.1, dtype=dtype)
            norms[-1, 1] = value
            assert (clip.factors(norms, rounding=rounding)[:, 1] == 0).all()


def _one_record(clip):
    """Any floats in any place: at most the bound, and exactly nothing for a gradient that is not finite."""
    for value in (*EXTREMES, *NEVER):
        for x, y in (([value, 0.5, -1.0], [1.0, 2.0]), ([0.5, value, value], [value, -3.0]), ([0.0] * 3, [value] * 2)):
            total = whole(clip, torch.tensor([x]), torch.tensor([y]))
            assert total.isfinite().all()
            assert norm(total) <= bound_of(clip) * (1 + 1e-6)
            if not math.isfinite(value):
                assert norm(total) == 0


def _neighbours(clip):
    """Replay of the whole sum when a record is added, zeroed out or replaced by another."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 3, generator=generator), torch.randn(9, 2, generator=generator)
    away = torch.arange(9) != 4
    for scale in (1e-4, 1.0, 1e4, 1e20, math.nan):
        here, there = y.clone(), y.clone()
        here[4] *= scale
        there[4] *= -scale
        with_record, without = whole(clip, x, here), whole(clip, x[away], y[away])
        assert norm(with_record - without) <= clip.sensitivity * (1 + 1e-5)
        blank = y.clone()
        blank[4] = 0.0
        assert norm(with_record - whole(clip, x, blank)) <= clip.sensitivity * (1 + 1e-5)
        twice = 1 if clip.of_mean else 2
        assert norm(with_record - whole(clip, x, there)) <= twice * clip.sensitivity * (1 + 1e-5)


def _units(clip):
    """All records of one user together count as one record does."""
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(9, 3, generator=generator), torch.randn(9, 2, generator=generator)
    owners = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 3]).numpy()
    away = torch.from_numpy(owners != 2)
    rest = whole(clip, x[away], y[away], UnitIds(torch.tensor([0, 1, 1, 2]).numpy()))
    for average in (False, True):
        for scale in (1e-4, 1.0, 1e20, math.nan):
            scaled = torch.where(away[:, None], y, y * scale)
            total = whole(clip, x, scaled, UnitIds(owners, average=average))
            if not average:
                assert norm(total - rest) <= clip.sensitivity * (1 + 1e-5)
            alone = whole(clip, x[~away], scaled[~away], UnitIds(owners[owners == 2] * 0, average=average))
            assert norm(alone) <= bound_of(clip) * (1 + 1e-6)
