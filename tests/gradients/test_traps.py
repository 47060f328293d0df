"""Mistakes that private training is known to make, each as a test of its name.

Those about the step as a whole (the fixed divisor, noise once over micro-batches, the given sample rate) stand with
the tests of training.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients import clipped_sum
from tacit.gradients.flat_gradient import row_squares
from tests.gradients.cases import cross_entropy, readout, squared_error, total_norm
from tests.gradients.test_rules import check, floats, ints

pytestmark = pytest.mark.usefixtures("without_types")


@pytest.mark.parametrize("size", [2_400_000, 10_000_000])
def test_norms_of_long_rows_are_not_underestimated(size):
    """`tensor.norm` loses 4e-5 to 4e-4 of such a row in float32."""
    row = torch.full((1, size), 0.1)
    exact = float(row.double().square().sum())
    assert float(row_squares(row)) == pytest.approx(exact, rel=1e-6)


def test_the_clipped_norm_of_a_long_gradient_is_at_most_clip_norm():
    class Long(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(600_000))

        def forward(self, x):
            return (self.weight * x).sum(1)

    x = torch.rand(1, 600_000, generator=torch.Generator().manual_seed(0))
    sums, _ = clipped_sum(Long(), lambda outputs, _: outputs, x, torch.zeros(1), clip_norm=0.7)
    assert 0.7 * (1 - 1e-5) <= total_norm(sums) <= 0.7 * (1 + 1e-6)


def model_of(forward, **parts):
    """A model with the given layers or parameters whose forward pass is a function of itself and the inputs."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs):
            return forward(self, *inputs)

    return Model()


def _tied():
    model = model_of(lambda m, x: m.head(torch.tanh(m.table(x))), table=nn.Embedding(9, 6), head=nn.Linear(6, 9))
    model.head.weight = model.table.weight
    return model


def _unreached():
    return model_of(lambda m, x: m.used(x), used=nn.Linear(5, 3), unused=nn.Linear(4, 2))


TRAPS = {
    "tied weights": (_tied, ints(9, 6, 4)),
    "a layer used twice": (lambda: model_of(lambda m, x: m.a(torch.tanh(m.a(x))), a=nn.Linear(5, 5)), floats(6, 5)),
    "a functional use with a mask": (
        lambda: model_of(lambda m, x: F.linear(x, m.a.weight * (m.a.weight > 0), m.a.bias), a=nn.Linear(5, 3)),
        floats(6, 5),
    ),
    "a raw parameter": (lambda: model_of(lambda m, x: x * m.scale, scale=nn.Parameter(floats(5))), floats(6, 5)),
    "a parametrisation": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), floats(6, 5)),
    "padding_idx": (lambda: nn.Embedding(5, 3, padding_idx=0), ints(5, 6, 9)),
    "a layer that is not reached": (_unreached, floats(6, 5)),
    "a position table with batch dimension 1": (
        lambda: model_of(lambda m, x: torch.tanh(x + m.position), position=nn.Parameter(floats(1, 4, 5))),
        floats(6, 4, 5),
    ),
    "flattened positions": (
        lambda: model_of(lambda m, x: m.a(x.reshape(-1, 5)).reshape(*x.shape[:2], 3), a=nn.Linear(5, 3)),
        floats(6, 4, 5),
    ),
    "in-place ReLU": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)),
        floats(6, 5),
    ),
    "grouped convolution": (lambda: nn.Conv2d(4, 6, 3, groups=2), floats(6, 4, 6, 6)),
    "dilated convolution": (lambda: nn.Conv2d(2, 3, 3, dilation=2), floats(6, 2, 7, 7)),
    "'same' convolution": (lambda: nn.Conv2d(2, 3, 4, padding="same"), floats(6, 2, 6, 6)),
    "LSTM": (lambda: model_of(lambda m, x: m.a(x)[0], a=nn.LSTM(5, 4, batch_first=True)), floats(6, 3, 5)),
    "attention": (
        lambda: model_of(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(6, 2, batch_first=True)),
        floats(6, 4, 6),
    ),
    "time first with as many steps as examples": (
        lambda: model_of(lambda m, x: m.a(x.transpose(0, 1))[0].transpose(0, 1), a=nn.GRU(5, 4)),
        floats(6, 6, 5),
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("batch", [6, 1])
def test_known_pitfalls_equal_a_float64_loop(trap, batch):
    build, inputs = TRAPS[trap]
    torch.manual_seed(0)
    check(build(), inputs[:batch], torch.zeros(batch), rtol=2e-5)


@pytest.mark.parametrize("trap", TRAPS)
def test_known_pitfalls_are_right_on_an_empty_batch(trap):
    build, inputs = TRAPS[trap]
    sums, norms = clipped_sum(build(), readout, inputs[:0], torch.zeros(0), clip_norm=1.0)
    assert norms.shape == (0,)
    assert total_norm(sums) == 0


def test_examples_along_another_axis_than_the_first_are_refused():
    """Time-first tensors with as many steps as examples have the right shape and the wrong meaning."""
    model = model_of(lambda m, x: m.a(x)[0], a=nn.GRU(5, 4))
    with pytest.raises(UnsupportedModel, match="mixes the examples of a batch"):
        clipped_sum(model, readout, floats(6, 6, 5), torch.zeros(6), clip_norm=1.0)


def test_a_mean_reduced_loss_is_refused():
    with pytest.raises(InvalidInput, match=r'reduction="none"'):
        clipped_sum(nn.Linear(5, 3), nn.CrossEntropyLoss(), floats(6, 5), torch.zeros(6).long(), clip_norm=1.0)


def test_a_table_that_rescales_what_a_batch_looks_up_is_refused():
    model = nn.Sequential(nn.Embedding(9, 4, max_norm=0.1), nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(UnsupportedModel, match=r"layer '0' \(Embedding\) rescales the rows .* Set max_norm=None"):
        clipped_sum(model, cross_entropy, ints(9, 6, 3), torch.zeros(6).long(), clip_norm=1.0)


def test_weights_written_in_the_forward_pass_are_named():
    class Shrinking(nn.Linear):
        def forward(self, x):
            with torch.no_grad():
                self.weight.mul_(0.9)
            return super().forward(x)

    with pytest.raises(UnsupportedModel, match=r"writes the parameter '0\.weight'"):
        clipped_sum(nn.Sequential(Shrinking(5, 2)), squared_error, floats(6, 5), torch.zeros(6, 2), clip_norm=1.0)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_layer_at_two_names_keeps_its_parameters_after_the_slower_method(frozen):
    """As the word table of prompt tuning has two names."""

    class Prompted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.ModuleDict({"table": nn.Embedding(9, 4).requires_grad_(not frozen)})
            self.prompt, self.table = nn.Embedding(3, 4), self.base["table"]

        def forward(self, x):
            words = self.table(x)
            return (self.prompt.weight @ words.transpose(1, 2)).cos() + words.sum(2).unsqueeze(1)

    torch.manual_seed(0)
    model = Prompted()
    before = dict(model.named_parameters())
    check(model, ints(9, 6, 5), torch.zeros(6), fast=False)
    assert {name: id(value) for name, value in model.named_parameters()} == {n: id(v) for n, v in before.items()}


@pytest.mark.parametrize("padding", [None, 0, 2])
def test_a_table_indexed_without_the_batch_is_captured_in_any_arrangement(padding):
    """As relative positions, prompts and position tables are; row 1 is looked up several times."""

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.prompt = nn.Embedding(9, 4), nn.Embedding(3, 4, padding_idx=padding)
            self.bias = nn.Embedding(4, 2)

        def forward(self, x):
            prompt = self.prompt(torch.tensor([[0, 1, 2, 1, 1]]))
            bias = self.bias(torch.tensor([[0, 1, 3], [1, 1, 0]])).permute(2, 0, 1).unsqueeze(0)
            words = self.words(x) + prompt
            return torch.cat([prompt.repeat(len(x), 1, 1), words], 1).cos().sum(1)[:, :2, None, None] * bias

    torch.manual_seed(0)
    check(Positions(), ints(9, 6, 5), torch.zeros(6))
