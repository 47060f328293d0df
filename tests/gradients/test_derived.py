"""Weights that are made from parameters: masked, normalised, sliced, transposed, combined and indexed."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from tacit.gradients.capture import Capture
from tests.gradients.test_rules import check, floats, ints


class Of(nn.Module):
    """A function of parameters p, q, ... of given shapes and of the inputs."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function = function
        self.parts = nn.ParameterList([nn.Parameter(floats(*shape, seed=seed)) for seed, shape in enumerate(shapes)])

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


def _in_place(x, shift):
    x += shift
    return x


def _placed(values, places, *shape):
    return torch.index_copy(torch.zeros(shape[0] * shape[1], dtype=values.dtype), 0, places, values).view(*shape)


FEW = torch.tensor([0, 1, 7, 149, 150, 152, 201, 449])
MANY = torch.arange(450)[torch.arange(450) % 4 > 0]
LONG = torch.arange(4500)[(torch.arange(4500) < 260) | (torch.arange(4500) == 3000)]

FUNCTIONS = {
    "values at few places": (lambda v, x: F.linear(x, _placed(v, FEW, 3, 150)), [(8,)], floats(6, 150)),
    "values at places in disorder": (
        lambda v, x: F.linear(x, _placed(v, FEW.flip(0), 3, 150)),
        [(8,)],
        floats(6, 150),
    ),
    "values at many places": (lambda v, c, x: F.linear(x, _placed(v, MANY, 3, 150), c), [(337,), (3,)], floats(6, 150)),
    "values in long rows": (lambda v, x: F.linear(x, _placed(v, LONG, 3, 1500)), [(261,)], floats(6, 1500)),
    "values at places, used twice": (
        lambda v, x: F.linear(torch.tanh(F.linear(x, _placed(v, FEW, 3, 150))), _placed(v, FEW, 150, 3)),
        [(8,)],
        floats(6, 150),
    ),
    "values at places, positions": (
        lambda v, x: F.linear(x, _placed(v, FEW, 3, 150)),
        [(8,)],
        floats(6, 4, 150),
    ),
    "adapter merged": (lambda w, b, a, x: F.linear(x, w + b @ a), [(3, 5), (3, 2), (2, 5)], floats(6, 5)),
    "product": (lambda w, c, x: x @ w + c, [(5, 3), (3,)], floats(6, 5)),
    "product and its transpose": (lambda w, c, x: torch.tanh(x @ w) @ w.t() + c, [(5, 3), (5,)], floats(6, 4, 5)),
    "addmm": (lambda w, c, x: torch.addmm(c, x, w), [(5, 3), (3,)], floats(6, 5)),
    "functions of scales": (lambda s, t, x: x * F.softplus(s) + t**2, [(5,), (5,)], floats(6, 5)),
    "columns": (
        lambda w, x: F.linear(x[:, :2], w[:, :2]) + torch.tanh(F.linear(x[:, 2:], w[:, 2:])),
        [(3, 5)],
        floats(6, 5),
    ),
    "overlapping columns": (
        lambda w, x: F.linear(x[:, :3], w[:, :3]) + torch.tanh(F.linear(x[:, 2:], w[:, 2:])),
        [(3, 5)],
        floats(6, 5),
    ),
    "chunks": (
        lambda w, x: torch.cat([torch.tanh(F.linear(x, part)) for part in w.chunk(3)], 1),
        [(6, 5)],
        floats(6, 5),
    ),
    "weight and its transpose": (lambda w, x: F.linear(torch.tanh(F.linear(x, w)), w.t()), [(3, 5)], floats(6, 5)),
    "joined weights": (lambda v, w, x: F.linear(x, torch.cat([v, w])), [(2, 5), (3, 5)], floats(6, 5)),
    "part of a position table": (
        lambda p, s, x: torch.tanh(x + p[:, : x.shape[1]]) * s[0],
        [(1, 9, 5), (2,)],
        floats(6, 4, 5),
    ),
    "rows by index": (lambda t, c, x: t[x] + c[x].unsqueeze(-1), [(7, 5), (7,)], ints(7, 6, 4)),
    "in place": (lambda w, c, x: _in_place(F.linear(x, w), c), [(7, 5), (7,)], floats(6, 5)),
    "repeated token": (
        lambda t, s, x: torch.cat([t.repeat(len(x), 1, 1), x], 1).tanh() * s,
        [(1, 2, 5), (5,)],
        floats(6, 4, 5),
    ),
    "mask of the layer's size": (
        lambda w, x: F.linear(x, w * (torch.arange(15).view(3, 5) % 3)),
        [(3, 5)],
        floats(6, 5),
    ),
    "mask with positions": (
        lambda w, x: F.linear(x, w * (torch.arange(15).view(3, 5) % 2)),
        [(3, 5)],
        floats(6, 4, 5),
    ),
    "mask, and the weight itself": (
        lambda w, x: F.linear(x, w * (torch.arange(15).view(3, 5) % 2)) + torch.tanh(F.linear(x, w)),
        [(3, 5)],
        floats(6, 5),
    ),
    "scaled weight": (lambda w, s, x: F.linear(x, w * s.exp()), [(3, 5), (1,)], floats(6, 5)),
    "single number": (lambda s, x: x * s.reshape(()), [(1,)], floats(6, 5)),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions_of_parameters_equal_a_float64_loop(case):
    function, shapes, inputs = FUNCTIONS[case]
    check(Of(function, *shapes), inputs, torch.zeros(6))


def pruned(layer):
    return prune.l1_unstructured(layer, "weight", 0.5)


LAYERS = {
    "pruned linear": (lambda: pruned(nn.Linear(5, 3)), floats(6, 5)),
    "pruned linear with positions": (lambda: pruned(nn.Linear(5, 3)), floats(6, 4, 5)),
    "pruned convolution": (lambda: pruned(nn.Conv2d(4, 6, 3, groups=2)), floats(6, 4, 6, 6)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), floats(6, 5)),
    "weight norm of a convolution": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3)),
        floats(6, 2, 6, 6),
    ),
    "weight norm over everything": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3), dim=None),
        floats(6, 5),
    ),
    "orthogonal": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), floats(6, 4)),
}


@pytest.mark.parametrize("case", LAYERS)
def test_reparametrised_layers_equal_a_float64_loop(case):
    build, inputs = LAYERS[case]
    torch.manual_seed(0)
    check(build(), inputs, torch.zeros(6))


def test_scalar_parameters_equal_a_float64_loop():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.3))

        def forward(self, x):
            return torch.tanh(x * self.scale)

    check(Scaled(), floats(6, 5), torch.zeros(6))


def test_a_masked_layer_makes_no_per_sample_matrix():
    """Masks cost no memory of batch x parameters: contributions keep activations and output gradients only."""
    from tacit.gradients.engine import Trace, capture_gradients, without_gradients
    from tacit.gradients.inputs import PhysicalBatch
    from tests.gradients.cases import readout

    model = pruned(nn.Linear(50, 40))
    trainable = dict(model.named_parameters())
    with without_gradients(trainable):
        found = capture_gradients(model, trainable, PhysicalBatch(readout, floats(7, 50), torch.zeros(7)), Trace())
    inner = found.gradients["weight_orig"].inner
    assert inner.left.numel() + inner.right.numel() == 7 * 90


def test_constants_are_not_followed():
    weight = nn.Parameter(floats(3, 5), requires_grad=False)
    with Capture({id(weight): "weight"}, 7) as capture:
        with torch.no_grad():
            weight.mul(2.0)
        weight.detach().mul(2.0)
        assert weight.shape == (3, 5)
        assert not weight.T.is_contiguous()
    assert list(capture.derived) == ["@0"]


class Ragged(nn.Module):
    """Flat indices with offsets, as data loaders for text give them."""

    def __init__(self, mode, weighted=False, last=False):
        super().__init__()
        padding = 0 if mode != "max" else None
        self.bag = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding, include_last_offset=last)
        self.weights = nn.Parameter(floats(7)) if weighted else None

    def forward(self, x):
        keep = x > 1
        ends = keep.sum(1).cumsum(0)
        offsets = torch.cat([ends.new_zeros(1), ends if self.bag.include_last_offset else ends[:-1]])
        scales = None if self.weights is None else self.weights[x[keep]]
        return self.bag(x[keep], offsets, per_sample_weights=scales)


@pytest.mark.usefixtures("without_types")  # The ends of bags follow all records before.
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_bags_with_offsets_equal_a_float64_loop(mode, last):
    torch.manual_seed(0)
    check(Ragged(mode, last=last), ints(7, 6, 10), torch.zeros(6))


def test_max_bags_equal_a_float64_loop():
    torch.manual_seed(0)
    check(nn.EmbeddingBag(7, 3, mode="max"), ints(7, 6, 10), torch.zeros(6))


def test_trained_bag_weights_equal_a_float64_loop():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag, self.weights = nn.EmbeddingBag(7, 3, mode="sum"), nn.Parameter(floats(7))

        def forward(self, x):
            return self.bag(x, per_sample_weights=self.weights[x])

    torch.manual_seed(0)
    check(Weighted(), ints(7, 6, 10), torch.zeros(6))


@pytest.mark.parametrize("positions", [(), (3,)])
def test_bilinear_layers_equal_a_float64_loop(positions):
    torch.manual_seed(0)
    check(nn.Bilinear(4, 3, 2), (floats(6, *positions, 4), floats(6, *positions, 3)), torch.zeros(6))
