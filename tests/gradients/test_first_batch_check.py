"""The first-batch check lets right models pass and stops wrong gradients."""

import pytest
import torch
from torch import nn

from tacit.clipping import AutomaticClip, BatchMeanClip, FlatClip, PerLayerClip
from tacit.errors import UnsupportedModel
from tacit.gradients import ClippedSum, first_batch_check
from tacit.gradients.per_sample_gradients import DenseGradients
from tacit.noise import SeededStream
from tacit.training import private_step
from tests.gradients.cases import cross_entropy


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 3))


def batch(records=8):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(records, 4, generator=generator), torch.randint(3, (records,), generator=generator)


CLIPS = [FlatClip(0.1), FlatClip(50.0), PerLayerClip(0.3), BatchMeanClip(0.1)]


@pytest.mark.parametrize("clip", [*CLIPS, AutomaticClip()])
def test_right_gradients_pass(clip):
    for model in (net(), nn.Linear(4, 3).double(), nn.Linear(4, 3).bfloat16()):
        x, y = batch()
        first_batch_check(ClippedSum(model, clip), cross_entropy, x.to(next(model.parameters()).dtype), y)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("broken", ["sum", "norm"])
def test_wrong_gradients_are_stopped(monkeypatch, clip, broken):
    """A rule that goes wrong after the examination: its sums, or only its norms, are off by a hundredth."""
    clipped = ClippedSum(net(), clip)
    x, y = batch()
    clipped(cross_entropy, x, y)
    if broken == "norm":
        if clip in (FlatClip(50.0), BatchMeanClip(0.1)):
            pytest.skip("nothing is clipped by these norms")
        right = ClippedSum.factors
        monkeypatch.setattr(ClippedSum, "factors", lambda self, squared: right(self, 0.9 * squared))
    else:
        add = DenseGradients.add_weighted
        monkeypatch.setattr(DenseGradients, "add_weighted", lambda self, sums, factors: add(self, sums, factors * 1.05))
    said = r"must equal those of a loop over them; got a difference|contribution of a unit must be at most"
    with pytest.raises(UnsupportedModel, match=said):
        first_batch_check(clipped, cross_entropy, x, y)


def test_the_first_private_step_is_checked_before_anything_is_released(monkeypatch):
    model = net()
    x, y = batch()
    settings = {"clip_norm": 0.5, "noise_multiplier": 1.0, "expected_batch_size": 8, "stream": SeededStream(0)}
    step = private_step(model, torch.optim.SGD(model.parameters(), lr=0.1), cross_entropy, **settings)
    step(x[:0], y[:0])
    added = DenseGradients.add_weighted
    ClippedSum(model, FlatClip(0.5))(cross_entropy, x, y)
    monkeypatch.setattr(DenseGradients, "add_weighted", lambda self, total, factors: added(self, total, factors * 1.5))
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(UnsupportedModel, match="first records"):
        step(x, y)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_records_that_are_not_finite_and_random_models_are_left_to_the_other_checks():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x + torch.randn_like(x))

    x, y = batch()
    first_batch_check(ClippedSum(Noisy(4, 3), FlatClip(1.0)), cross_entropy, x, y)
    x[0, 0] = torch.nan
    first_batch_check(ClippedSum(net(), FlatClip(1.0)), cross_entropy, x, y)


def test_models_of_one_precision_are_compared_in_it():
    class Fixed(nn.Linear):
        def forward(self, x):
            return super().forward(x.float())

    x, y = batch()
    first_batch_check(ClippedSum(Fixed(4, 3), FlatClip(0.1)), cross_entropy, x, y)
