"""Every layer rule, alone and in models, against a float64 loop over examples."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tacit.clipping import FlatClip
from tacit.gradients import clipped_sum
from tacit.gradients.clipped import ClippedSum
from tests.gradients.cases import assert_same, oracle, readout, total_norm

CLIP = 0.8


def check(model, inputs, targets, *, fast=True, loss=readout, clip_norm=CLIP, rtol=1e-4):
    engine = ClippedSum(model, FlatClip(clip_norm))
    reason = engine.fallback_reason(loss, inputs, targets)
    assert (reason == "") == fast, reason
    expected = oracle(model, loss, inputs, targets, clip_norm)
    assert expected[1].min() > 0
    total, norms = engine(loss, inputs, targets)
    assert_same((total.parts, norms), expected, clip_norm=clip_norm, rtol=rtol)
    assert all(p.grad is None for p in model.parameters())
    assert all(p.requires_grad for p in engine.trainable.values())
    for i in range(min(2, len(targets))):
        one, _ = clipped_sum(model, loss, _rows(inputs, i), targets[i : i + 1], clip_norm=clip_norm)
        assert total_norm(one) <= clip_norm * (1 + 1e-6)


def _rows(inputs, i):
    return tuple(x[i : i + 1] for x in inputs) if isinstance(inputs, tuple) else inputs[i : i + 1]


def floats(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ints(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


LAYERS = {
    "linear": (lambda: nn.Linear(5, 3), floats(6, 5)),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False), floats(6, 5)),
    "linear, few positions": (lambda: nn.Linear(5, 3), floats(6, 2, 5)),
    "linear, many positions": (lambda: nn.Linear(5, 3), floats(6, 40, 5)),
    "linear, two axes of positions": (lambda: nn.Linear(9, 8), floats(6, 2, 3, 9)),
    "linear by Gram": (lambda: nn.Linear(60, 50), floats(6, 4, 60)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), floats(6, 4, 11)),
    "conv1d dilated": (lambda: nn.Conv1d(4, 6, 3, dilation=3, padding=2), floats(6, 4, 12)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), floats(6, 3, 7, 8)),
    "conv2d uneven": (
        lambda: nn.Conv2d(3, 4, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2)),
        floats(6, 3, 9, 10),
    ),
    "conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), floats(6, 4, 7, 7)),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, stride=2), floats(6, 4, 9, 9)),
    "conv2d same": (lambda: nn.Conv2d(3, 4, (4, 3), padding="same", dilation=(2, 1)), floats(6, 3, 8, 8)),
    "conv2d valid": (lambda: nn.Conv2d(3, 4, 3, padding="valid"), floats(6, 3, 6, 6)),
    "conv2d circular": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), floats(6, 3, 6, 6)),
    "conv2d with a rest": (lambda: nn.Conv2d(2, 3, 3, stride=3), floats(6, 2, 8, 7)),
    "conv2d 1x1 by Gram": (lambda: nn.Conv2d(40, 50, 1), floats(6, 40, 2, 2)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, stride=2, padding=1), floats(6, 2, 4, 5, 4)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), floats(6, 3, 6)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 1), dilation=2), floats(6, 4, 5, 4)),
    "transposed 2d grouped": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, padding=1), floats(6, 4, 5, 5)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 2, 2, stride=2), floats(6, 2, 3, 2, 3)),
    "embedding": (lambda: nn.Embedding(9, 4), ints(9, 6, 12)),
    "embedding of one index": (lambda: nn.Embedding(9, 4), ints(9, 6)),
    "embedding with padding": (lambda: nn.Embedding(5, 4, padding_idx=-2), ints(5, 6, 12)),
    "embedding of a table": (lambda: nn.Embedding(5, 4), ints(5, 6, 3, 4)),
    "bag, sum": (lambda: nn.EmbeddingBag(7, 3, mode="sum"), ints(7, 6, 10)),
    "bag, mean": (lambda: nn.EmbeddingBag(7, 3), ints(7, 6, 10)),
    "bag, padded mean": (lambda: nn.EmbeddingBag(4, 3, padding_idx=1), ints(4, 6, 10)),
    "layer norm": (lambda: nn.LayerNorm(8), floats(6, 8)),
    "layer norm over two axes": (lambda: nn.LayerNorm((3, 4)), floats(6, 5, 3, 4)),
    "layer norm without bias": (lambda: nn.LayerNorm(8, bias=False), floats(6, 3, 8)),
    "group norm": (lambda: nn.GroupNorm(2, 6), floats(6, 6, 5, 3)),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), floats(6, 3, 5, 4)),
    "rms norm": (lambda: nn.RMSNorm(8), floats(6, 3, 8)),
    "prelu": (lambda: nn.PReLU(), floats(6, 3, 4)),
    "prelu by channel": (lambda: nn.PReLU(3), floats(6, 3, 4, 2)),
}


@pytest.mark.parametrize("case", LAYERS)
def test_a_single_layer_equals_a_float64_loop(case):
    build, inputs = LAYERS[case]
    torch.manual_seed(0)
    check(build(), inputs, torch.zeros(6))


@pytest.mark.parametrize("case", [case for case in LAYERS if LAYERS[case][1].is_floating_point()])
def test_a_layer_behind_others_or_partly_frozen_equals_a_float64_loop(case):
    """Behind a trainable scale the layer's input has a gradient; then only its last parameter is trained."""
    build, inputs = LAYERS[case]

    class Behind(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([1.3]))
            self.layer = build()

        def forward(self, x):
            return F.softplus(self.layer(x * self.scale))

    torch.manual_seed(0)
    model = Behind()
    check(model, inputs, torch.zeros(6))
    for parameter in list(model.parameters())[:-1]:
        parameter.requires_grad_(False)
    check(model, inputs, torch.zeros(6))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_convolutions_of_drawn_shapes_equal_a_float64_loop(data):
    groups, kernel, stride, dilation = (data.draw(st.integers(1, 3)) for _ in range(4))
    padding = data.draw(st.integers(0, 2))
    size = data.draw(st.integers((kernel - 1) * dilation + 1, 11))
    torch.manual_seed(0)
    channels = groups * data.draw(st.integers(1, 2))
    layer = nn.Conv2d(channels, 2 * groups, kernel, stride, padding, dilation, groups)
    check(layer, floats(3, channels, size, size + 1), torch.zeros(3))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(1, 9))
def test_linear_layers_of_drawn_shapes_equal_a_float64_loop(inputs, outputs, positions, batch):
    torch.manual_seed(0)
    check(nn.Linear(inputs, outputs), floats(batch, positions, inputs), torch.zeros(batch))


class Shared(nn.Module):
    """One layer used twice, and a table whose rows are both inputs and output weights."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.layer = nn.Linear(6, 6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(self.table(x))))))


class Functional(nn.Module):
    """Parameters without modules, one of them used under another name."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(floats(4, 5))
        self.again = self.first
        self.shift = nn.Parameter(floats(4))

    def forward(self, x):
        return F.linear(x, self.first, self.shift) + F.linear(x * 2, self.again)


class Vision(nn.Module):
    """Class token, position table, layer scale and flattened positions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.token = nn.Parameter(floats(1, 1, 8, seed=1))
        self.position = nn.Parameter(floats(1, 6, 8, seed=2))
        self.gamma = nn.Parameter(floats(8, seed=3))
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), self.embed(x)], 1) + self.position
        flat = self.mix(x.reshape(-1, 8)).reshape(x.shape)
        return self.head((x + self.gamma * F.gelu(flat)).mean(1))


class Positions(nn.Module):
    """A table looked up without a batch axis."""

    def __init__(self):
        super().__init__()
        self.table, self.position = nn.Embedding(9, 6), nn.Embedding(12, 6)

    def forward(self, x):
        return torch.tanh(self.table(x) + self.position(torch.arange(x.shape[1])))


class TimeFirst(nn.Module):
    """Works on (T, B, d) inside; T is the size of the batch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x.transpose(0, 1)))).transpose(0, 1)


class InPlace(nn.Module):
    """Writes into the outputs of layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.first(x)
        hidden *= 2
        output = self.second(hidden)
        return F.relu_(output) + hidden.sum(1, keepdim=True)


class Unreached(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(5, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 6)
        self.second = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.act(self.norm(self.first(x)))
        x = self.act(x + self.norm(self.second(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


MODELS = {
    "shared": (Shared, ints(9, 5, 7)),
    "functional": (Functional, floats(5, 5)),
    "vision": (Vision, floats(5, 5, 6)),
    "positions": (Positions, ints(9, 5, 12)),
    "time first": (TimeFirst, floats(7, 7, 5)),
    "in place": (InPlace, floats(5, 5)),
    "unreached": (Unreached, floats(5, 5)),
    "residual": (Residual, floats(5, 3, 8, 8)),
}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("batch", [None, 1])
def test_whole_models_equal_a_float64_loop(case, batch):
    build, inputs = MODELS[case]
    torch.manual_seed(0)
    inputs = inputs[:batch]
    check(build(), inputs, torch.zeros(len(inputs)))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("mask", (floats(3, 5) > 0).float())

    def forward(self, x):
        return F.linear(x, self.layer.weight * self.mask, self.layer.bias)


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).sum(0)


class Hidden(nn.Module):
    """A parameter used where no operation shows it, behind a layer that starts at zero."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))
        self.layer = nn.Linear(5, 3)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        return self.layer(Doubling.apply(x, self.scale))


class Odd(nn.Module):
    """A product that no rule covers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(floats(4, 4))

    def forward(self, x, scale=1.0):
        return {"y": torch.einsum("...i,ij->...j", x, self.weight) * scale, "kind": "odd"}


class Partly(nn.Module):
    """One odd module, used twice, among ordinary layers, with dropout around it."""

    def __init__(self):
        super().__init__()
        self.first, self.odd, self.last = nn.Linear(5, 4), Odd(), nn.Linear(4, 3)

    def forward(self, x):
        x = F.dropout(torch.tanh(self.first(x)), 0.0, self.training)
        return self.last(torch.tanh(self.odd(self.odd(x)["y"], scale=2.0)["y"]))


class Outside(nn.Module):
    """A parameter of one module that another uses in an odd way."""

    def __init__(self):
        super().__init__()
        self.first, self.part = nn.Linear(4, 4), nn.ModuleDict({"inner": Odd()})

    def forward(self, x):
        return torch.einsum("bi,ij->bj", torch.tanh(self.first(x)), self.part["inner"].weight)


FALLBACK = {
    "hidden": (Hidden, floats(5, 5)),
    "partly": (Partly, floats(5, 5)),
    "partly, with positions": (Partly, floats(5, 3, 5)),
    "outside": (Outside, floats(5, 4)),
}


@pytest.mark.parametrize("case", FALLBACK)
def test_models_that_no_rule_covers_are_still_right(case):
    build, inputs = FALLBACK[case]
    torch.manual_seed(0)
    model = build()
    loss = (
        (lambda outputs, targets: readout(outputs, targets) + outputs.flatten(1).sum(1))
        if case == "hidden"
        else readout
    )
    if case == "hidden":
        nn.init.normal_(model.layer.weight)
    check(model, inputs, torch.zeros(5), fast=False, loss=loss)


def test_only_the_module_without_a_rule_runs_by_vmap():
    engine = ClippedSum(Partly(), FlatClip(1.0))
    assert engine.fallback_reason(readout, floats(5, 5), torch.zeros(5)).startswith("odd by copies of its parameters")
    trace = engine.trace(readout, floats(5, 5), torch.zeros(5))
    assert trace.modules_by_vmap == (engine.model.odd,)
    assert "forward" not in vars(engine.model.odd)


def test_an_embedding_that_looks_at_the_whole_batch_is_not_captured():
    engine = ClippedSum(nn.Embedding(5, 3, scale_grad_by_freq=True), FlatClip(1.0))
    assert "scale_grad_by_freq" in engine.fallback_reason(readout, ints(5, 4, 6), torch.zeros(4))


def test_zero_layers_hide_nothing_from_the_examination():
    engine = ClippedSum(Hidden(), FlatClip(1.0))
    before = [p.clone() for p in engine.model.parameters()]
    assert engine.fallback_reason(readout, floats(5, 5), torch.zeros(5))
    assert all(torch.equal(a, b) for a, b in zip(before, engine.model.parameters(), strict=True))
