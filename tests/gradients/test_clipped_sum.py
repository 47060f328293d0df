import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tacit.clipping import FlatClip
from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients import ClippedSum, clipped_sum
from tacit.gradients import clipped as clipped_module
from tests.gradients.cases import cross_entropy, oracle, squared_error, total_norm


@pytest.mark.parametrize("clip_norm", [0.03, 0.7, 50.0])
def test_equals_a_float64_loop(clip_norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x, y = torch.randn(23, 5), torch.randint(3, (23,))
    sums, norms = clipped_sum(model, cross_entropy, x, y, clip_norm=clip_norm)
    expected, expected_norms = oracle(model, cross_entropy, x, y, clip_norm)
    assert norms.shape == (23,)
    torch.testing.assert_close(norms.double(), expected_norms.double(), rtol=1e-5, atol=0)
    assert sums.keys() == expected.keys()
    for name, value in sums.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)


def test_float64_models_are_exact():
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double()
    x, y = torch.randn(9, 5).double(), torch.randint(3, (9,))
    sums, _ = clipped_sum(model, cross_entropy, x, y, clip_norm=0.5)
    expected, _ = oracle(model, cross_entropy, x, y, 0.5)
    for name, value in sums.items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(value, expected[name].double(), rtol=1e-12, atol=1e-13)
        model.double()


EXTREMES = [0.0, 1.0, -3.5, 1e-45, 1e-39, 1e-20, 1e10, 1e19, 3e19, 3e38, -3e38, math.inf, -math.inf, math.nan]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.one_of(st.sampled_from(EXTREMES), st.floats(width=32)), min_size=4, max_size=4),
    clip_norm=st.sampled_from([1e-9, 1e-3, 0.7, 2.5, 1e12]),
)
def test_no_record_contributes_more_than_clip_norm(values, clip_norm):
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.3, -0.2, 0.1, 0.7], [1.0, 0.5, -0.6, 0.0]]))
    record = torch.tensor([values], dtype=torch.float32)
    sums, norms = clipped_sum(model, squared_error, record, torch.ones(1, 2), clip_norm=clip_norm)
    assert all(torch.isfinite(value).all() for value in sums.values())
    assert total_norm(sums) <= clip_norm * (1 + 1e-6)
    if not torch.isfinite(norms).all():
        assert total_norm(sums) == 0 or float(norms) == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, 1e20, 1e-30])
def test_one_record_moves_the_sum_by_at_most_clip_norm(value):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    x, y = torch.randn(12, 4), torch.randn(12, 2)
    x[5, 2] = value
    keep = torch.arange(12) != 5
    whole, _ = clipped_sum(model, squared_error, x, y, clip_norm=0.9)
    rest, _ = clipped_sum(model, squared_error, x[keep], y[keep], clip_norm=0.9)
    difference = {name: whole[name] - rest[name] for name in whole}
    assert total_norm(difference) <= 0.9 * (1 + 1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_contributes_exactly_nothing(value):
    torch.manual_seed(1)
    model = nn.Linear(4, 2)
    x, y = torch.randn(1, 4), torch.randn(1, 2)
    x[0, 1] = value
    sums, norms = clipped_sum(model, squared_error, x, y, clip_norm=0.9)
    assert total_norm(sums) == 0
    assert not torch.isfinite(norms).any()


def test_a_gradient_whose_square_overflows_keeps_its_direction():
    model = nn.Linear(3, 1, bias=False)
    x = torch.tensor([[3e30, 4e30, 0.0]])
    sums, _ = clipped_sum(model, lambda out, t: out[:, 0] * t, x, torch.ones(1), clip_norm=2.5)
    torch.testing.assert_close(sums["weight"], torch.tensor([[1.5, 2.0, 0.0]]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38, 1e25])
def test_a_bad_record_after_good_batches_changes_the_others_sum_by_at_most_clip_norm(value):
    """The first batch decides by what method gradients are made; that of a later one overflows in it."""
    torch.manual_seed(1)
    engine = ClippedSum(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), FlatClip(0.9))
    x, y = torch.randn(12, 4), torch.randn(12, 2)
    before = engine(squared_error, x, y)[0].flat.clone()
    rest, others = torch.arange(12) != 5, x.clone()
    others[5] = value
    whole = engine(squared_error, others, y)[0].flat.clone()
    kept = engine(squared_error, x[rest], y[rest])[0].flat
    assert whole.isfinite().all()
    assert float((before - kept).norm()) <= 0.9 * (1 + 1e-6)
    assert float((whole - kept).norm()) <= 0.9 * (1 + 1e-6)


def test_an_empty_batch_gives_zeros():
    model = nn.Linear(3, 2)
    sums, norms = clipped_sum(model, cross_entropy, torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), clip_norm=1.0)
    assert norms.shape == (0,)
    assert {name: value.shape for name, value in sums.items()} == {"weight": (2, 3), "bias": (2,)}
    assert total_norm(sums) == 0


def test_models_with_several_arguments_are_called_with_all():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(5, 3), nn.Embedding(4, 3)

        def forward(self, user, item):
            return (self.users(user) * self.items(item)).sum(1, keepdim=True)

    torch.manual_seed(0)
    model, user, item = Product(), torch.tensor([0, 1, 4]), torch.tensor([3, 3, 0])
    by_tuple, _ = clipped_sum(model, squared_error, (user, item), torch.ones(3, 1), clip_norm=0.5)
    by_name, _ = clipped_sum(model, squared_error, {"item": item, "user": user}, torch.ones(3, 1), clip_norm=0.5)
    for name, value in by_tuple.items():
        torch.testing.assert_close(by_name[name], value)
    assert total_norm(by_tuple) > 0


def test_half_precision_is_clipped_in_float32():
    torch.manual_seed(0)
    model = nn.Linear(4, 2).to(torch.bfloat16)
    x = torch.full((1, 4), 1e4, dtype=torch.bfloat16)
    sums, _ = clipped_sum(model, squared_error, x, torch.ones(1, 2, dtype=torch.bfloat16), clip_norm=0.3)
    assert {value.dtype for value in sums.values()} == {torch.float32}
    assert total_norm(sums) == pytest.approx(0.3, rel=2e-6)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        lambda out, t: F.cross_entropy(out, t, reduction="none").mean(),
        lambda out, t: F.cross_entropy(out, t, reduction="none").unsqueeze(1),
        lambda out, t: 1.0,
    ],
)
def test_a_loss_that_is_not_per_example_is_refused(loss):
    with pytest.raises(InvalidInput, match=r'reduction="none"'):
        clipped_sum(nn.Linear(3, 2), loss, torch.randn(4, 3), torch.zeros(4, dtype=torch.long), clip_norm=1.0)


@pytest.mark.parametrize("clip_norm", [0, -1.0, math.nan, math.inf, "1", None, True, 1e-10, 1e13])
def test_bad_clip_norms_are_refused(clip_norm):
    with pytest.raises(InvalidInput, match="clip_norm must be in"):
        clipped_sum(nn.Linear(3, 2), cross_entropy, torch.randn(4, 3), torch.zeros(4).long(), clip_norm=clip_norm)


def test_lengths_that_differ_are_refused():
    with pytest.raises(InvalidInput, match=r"of equal length; got \[4, 3\]"):
        clipped_sum(nn.Linear(3, 2), cross_entropy, torch.randn(4, 3), torch.zeros(3).long(), clip_norm=1.0)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(6), r"layer '0\.1' \(BatchNorm1d\) mixes.*nn\.GroupNorm\(2, 6\)"),
        (nn.SyncBatchNorm(64), r"layer '0\.1' \(SyncBatchNorm\) mixes.*nn\.GroupNorm\(32, 64\)"),
        (nn.InstanceNorm1d(6, track_running_stats=True), r"'0\.1'.*track_running_stats=False"),
        (nn.LazyLinear(3), r"'0\.1' \(LazyLinear\) has no parameters yet"),
    ],
)
def test_layers_that_mix_examples_are_named_with_their_fix(layer, message):
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 6), layer))
    with pytest.raises(UnsupportedModel, match=message):
        clipped_sum(model, cross_entropy, torch.randn(4, 3), torch.zeros(4).long(), clip_norm=1.0)


def test_a_frozen_model_is_refused():
    model = nn.Linear(3, 2).requires_grad_(False)
    with pytest.raises(UnsupportedModel, match="no trainable parameter"):
        clipped_sum(model, cross_entropy, torch.randn(4, 3), torch.zeros(4).long(), clip_norm=1.0)


def test_frozen_parameters_are_left_out_of_sum_and_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    x, y = torch.randn(6, 3), torch.randint(2, (6,))
    sums, norms = clipped_sum(model, cross_entropy, x, y, clip_norm=0.2)
    expected, expected_norms = oracle(model, cross_entropy, x, y, 0.2)
    assert sums.keys() == {"1.weight", "1.bias"}
    torch.testing.assert_close(norms.double(), expected_norms.double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(sums["1.weight"].double(), expected["1.weight"], rtol=1e-5, atol=1e-6)


X, Y = torch.ones(40, 3), torch.zeros(40, dtype=torch.long)


@pytest.mark.parametrize(
    ("loss", "inputs", "targets", "message"),
    [
        (cross_entropy, X[:, :2], Y, r"inputs must be examples of the shape that the model takes; got \[\(2,\)\]"),
        (cross_entropy, X, Y + 9, "targets must be what the loss takes"),
        (cross_entropy, X, torch.cat([Y[:39], Y[:1] + 9]), "targets must be what the loss takes"),
        (cross_entropy, None, Y, "inputs and targets must be tensors"),
        (lambda out, t: cross_entropy(out, t)[:3], X, Y, "one value per example"),
        (lambda out, t: cross_entropy(out.detach(), t), X, Y, "loss must be one that depends on"),
        (lambda out, t: torch.tensor(out.tolist()).sum(1), X, Y, "loss must be one that depends on"),
    ],
)
def test_batches_and_losses_that_do_not_fit_are_refused_by_name(loss, inputs, targets, message):
    with pytest.raises(InvalidInput, match=message):
        clipped_sum(nn.Linear(3, 2), loss, inputs, targets, clip_norm=1.0)


def test_a_later_batch_that_does_not_fit_is_refused_by_name():
    model = nn.Linear(3, 2)
    clipped_sum(model, cross_entropy, X, Y, clip_norm=1.0)
    with pytest.raises(InvalidInput, match="shape that the model takes"):
        clipped_sum(model, cross_entropy, X[:, :2], Y, clip_norm=1.0)
    with pytest.raises(InvalidInput, match="targets must be what the loss takes"):
        clipped_sum(model, cross_entropy, X, Y + 9, clip_norm=1.0)


@pytest.mark.parametrize("late", [False, True], ids=["on capture", "after a part was summed"])
def test_a_physical_batch_that_runs_out_of_memory_is_halved_and_counted_once(monkeypatch, late):
    model, x, y = nn.Linear(4, 3), torch.randn(40, 4), torch.randn(40, 3)
    # One record of a square that overflows is summed by the fallback first.
    x[7] = 1e17
    expected, norms = ClippedSum(model, FlatClip(1.0))(squared_error, x, y)
    clipped = ClippedSum(model, FlatClip(1.0), max_physical_batch_size="auto")
    clipped.fallback_reason(squared_error, x, y)
    captured, sizes = clipped_module.capture_gradients, []

    def limited(model, trainable, batch, *more):
        sizes.append(len(batch))
        if len(batch) > 10 and (not late or len(batch) % 2):
            raise torch.OutOfMemoryError("out of memory")
        return captured(model, trainable, batch, *more)

    monkeypatch.setattr(clipped_module, "capture_gradients", limited)
    found, again = clipped(squared_error, x, y)
    assert max(sizes) > 10 > sizes[-1] or sizes[-1] == 10
    torch.testing.assert_close(found.flat.float(), expected.flat.float())
    torch.testing.assert_close(again, norms)
    assert clipped(squared_error, x, y)[0].flat.isfinite().all()


def test_other_errors_are_no_lack_of_memory(monkeypatch):
    def failing(*given):
        raise RuntimeError("shapes cannot be multiplied")

    clipped = ClippedSum(nn.Linear(4, 3), FlatClip(1.0), max_physical_batch_size="auto")
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    clipped.fallback_reason(squared_error, x, y)
    monkeypatch.setattr(clipped_module, "capture_gradients", failing)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        clipped(squared_error, x, y)
