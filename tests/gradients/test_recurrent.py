"""Recurrent layers: the unrolled layer computes what torch does, and its gradients are those of a float64 loop."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tacit.clipping import FlatClip
from tacit.gradients.capture import Capture
from tacit.gradients.clipped import ClippedSum
from tests.gradients.cases import assert_same, oracle, readout
from tests.gradients.test_rules import check, floats

SHAPES = {
    "one layer": {},
    "time first": {"batch_first": False},
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
    "without biases": {"bias": False},
    "three layers with dropout of nothing": {"num_layers": 3, "dropout": 0.0},
}
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}


class Whole(nn.Module):
    """Outputs and last states together, time first inside where the layer wants it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        x = x if self.layer.batch_first else x.transpose(0, 1)
        outputs, state = self.layer(x)
        outputs = outputs if self.layer.batch_first else outputs.transpose(0, 1)
        last = torch.cat(state, 2) if isinstance(state, tuple) else state
        return torch.cat([outputs.flatten(1), last.transpose(0, 1).flatten(1)], 1)


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_recurrent_layers_equal_a_float64_loop(kind, shape):
    torch.manual_seed(0)
    model = Whole(KINDS[kind](5, 4, **({"batch_first": True} | SHAPES[shape])))
    check(model, floats(6, 3, 5), torch.zeros(6))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projected_lstms_equal_a_float64_loop(bidirectional):
    torch.manual_seed(0)
    layer = nn.LSTM(5, 4, num_layers=2, proj_size=2, bidirectional=bidirectional, batch_first=True)
    check(Whole(layer), floats(6, 3, 5), torch.zeros(6))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l0", "bias_hh_l0"])
def test_partly_frozen_recurrent_layers_equal_a_float64_loop(kind, frozen):
    torch.manual_seed(0)
    layer = KINDS[kind](5, 4, batch_first=True)
    getattr(layer, frozen).requires_grad_(False)
    check(Whole(layer), floats(6, 3, 5), torch.zeros(6))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells_equal_a_float64_loop(cell):
    class Stepped(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell(5, 4)

        def forward(self, x):
            state = None
            for step in x.unbind(1):
                state = self.cell(step, state)
            return torch.cat(state, 1) if isinstance(state, tuple) else state

    torch.manual_seed(0)
    check(Stepped(), floats(6, 3, 5), torch.zeros(6))


@pytest.mark.parametrize("kind", KINDS)
def test_the_unrolled_layer_computes_what_torch_does(kind):
    torch.manual_seed(0)
    layer = KINDS[kind](5, 4, num_layers=2, bidirectional=True, batch_first=True)
    x = floats(7, 9, 5)
    expected, state = layer(x)
    layer.requires_grad_(False)
    with Capture({id(p): name for name, p in layer.named_parameters()}, 7) as capture:
        found, last = layer(x)
    assert len(capture.uses) == 4
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(last, state)


def test_a_start_state_from_the_batch_is_differentiated_through():
    class Started(nn.Module):
        def __init__(self):
            super().__init__()
            self.start, self.layer = nn.Linear(5, 4), nn.GRU(5, 4, batch_first=True)

        def forward(self, x):
            return self.layer(x, self.start(x[:, 0]).unsqueeze(0))[0]

    torch.manual_seed(0)
    check(Started(), floats(6, 3, 5), torch.zeros(6))


def test_dropout_between_layers_stays_random_and_off_in_the_examination():
    torch.manual_seed(0)
    engine = ClippedSum(Whole(nn.LSTM(5, 30, num_layers=2, dropout=0.5, batch_first=True)), FlatClip(1.0))
    x = floats(6, 3, 5)
    assert engine.fallback_reason(readout, x, torch.zeros(6)) == ""
    first, again = engine(readout, x, torch.zeros(6))[0], engine(readout, x, torch.zeros(6))[0]
    assert not torch.equal(first.flat, again.flat)


def test_packed_sequences_take_the_fallback_and_are_right():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(5, 4, batch_first=True)

        def forward(self, x):
            lengths = (x[..., 0].abs() > 0.3).sum(1).clamp(min=1)
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    torch.manual_seed(0)
    model, x = Packed(), floats(6, 4, 5)
    engine = ClippedSum(model, FlatClip(0.5))
    assert "packed sequence" in engine.fallback_reason(readout, x, torch.zeros(6))
    total, norms = engine(readout, x, torch.zeros(6))
    assert_same((total.parts, norms), oracle(model, readout, x, torch.zeros(6), 0.5), clip_norm=0.5)
