"""One engine, inputs of several sizes in turn: layers share buffers, and every branch of a rule is reached.

Layers of one kind stand in a row, so that a layer's temporary arrays are taken again before its gradient is summed.
"""

import pytest
import torch
from torch import nn

from tacit.clipping import FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients.clipped import ClippedSum
from tests.gradients.cases import assert_same, oracle, readout

pytestmark = pytest.mark.usefixtures("without_types")

CLIP = 0.3


def floats(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def ints(high, *shape):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(sum(shape)))


class Last(nn.Module):
    """The outputs of a recurrent layer or of self-attention alone."""

    def __init__(self, layer, attention=False):
        super().__init__()
        self.layer, self.attention = layer, attention

    def forward(self, x):
        return self.layer(x, x, x, need_weights=False)[0] if self.attention else self.layer(x)[0]


def three(layer):
    return nn.Sequential(*(part for _ in range(3) for part in (layer(), nn.Tanh())))


CASES = {
    "conv1d": (lambda: three(lambda: nn.Conv1d(4, 4, 3, padding=1)), lambda n: floats(5, 4, n)),
    "conv1d wide with a stride": (
        lambda: three(lambda: nn.Conv1d(4, 4, 7, stride=2, padding=3)),
        lambda n: floats(5, 4, n),
    ),
    "conv2d": (lambda: three(lambda: nn.Conv2d(4, 4, 3, padding=1)), lambda n: floats(5, 4, n, n)),
    "conv2d with many channels": (
        lambda: three(lambda: nn.Conv2d(24, 24, 3, padding=1)),
        lambda n: floats(5, 24, n, n),
    ),
    "conv2d grouped": (lambda: three(lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2)), lambda n: floats(5, 4, n, n)),
    "conv2d with a stride": (
        lambda: three(lambda: nn.Conv2d(4, 4, 3, stride=2, padding=1)),
        lambda n: floats(5, 4, n, n),
    ),
    "conv3d": (lambda: three(lambda: nn.Conv3d(2, 2, 3, padding=1)), lambda n: floats(5, 2, n, n, n)),
    "transposed conv2d": (
        lambda: three(lambda: nn.ConvTranspose2d(4, 4, 3, padding=1)),
        lambda n: floats(5, 4, n, n),
    ),
    "transposed conv1d with groups": (
        lambda: three(lambda: nn.ConvTranspose1d(4, 4, 3, padding=1, groups=2)),
        lambda n: floats(5, 4, n),
    ),
    "linear": (lambda: three(lambda: nn.Linear(12, 12)), lambda n: floats(5, n, 12)),
    "wide linear": (lambda: three(lambda: nn.Linear(60, 60)), lambda n: floats(5, n, 60)),
    "layer norm": (lambda: three(lambda: nn.LayerNorm(6)), lambda n: floats(5, n, 6)),
    "group norm": (lambda: three(lambda: nn.GroupNorm(2, 4)), lambda n: floats(5, 4, n, n)),
    "convolution, norm": (
        lambda: three(lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4))),
        lambda n: floats(5, 4, n, n),
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 6), nn.Tanh()), lambda n: ints(11, 5, n)),
    "lstm": (
        lambda: nn.Sequential(Last(nn.LSTM(6, 6, batch_first=True)), Last(nn.LSTM(6, 6, batch_first=True))),
        lambda n: floats(5, n, 6),
    ),
    "gru": (
        lambda: nn.Sequential(Last(nn.GRU(6, 6, batch_first=True)), Last(nn.GRU(6, 6, batch_first=True))),
        lambda n: floats(5, n, 6),
    ),
    "attention": (
        lambda: nn.Sequential(*(Last(nn.MultiheadAttention(6, 2, batch_first=True), attention=True) for _ in range(2))),
        lambda n: floats(5, n, 6),
    ),
    "weight norm": (
        lambda: three(lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1))),
        lambda n: floats(5, 4, n),
    ),
}


@pytest.mark.slow_cases
@pytest.mark.parametrize("sizes", [(8, 1, 3), (1, 8, 2)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_every_rule_is_right_at_one_input_size_after_another(case, sizes):
    build, inputs = CASES[case]
    torch.manual_seed(0)
    model = build()
    engine = ClippedSum(model, FlatClip(CLIP))
    for size in sizes:
        x = inputs(size)
        y = torch.zeros(len(x))
        expected = oracle(model, readout, x, y, CLIP)
        total, norms = engine(readout, x, y)
        assert_same((total.parts, norms), expected, clip_norm=CLIP)


class MixesShort(nn.Module):
    """Centres the batch where records have a single position."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x - x.mean(0) if x.shape[1] == 1 else x)


def test_a_model_that_mixes_records_at_another_input_size_is_refused_there():
    engine = ClippedSum(MixesShort(), FlatClip(CLIP))
    engine(readout, floats(5, 3, 6), torch.zeros(5))
    with pytest.raises(UnsupportedModel, match="mixes the examples"):
        engine(readout, floats(5, 1, 6), torch.zeros(5))


@pytest.mark.parametrize("before", [8, 4])
def test_one_record_moves_the_sum_of_deep_convolutions_by_at_most_the_clipping_norm(before):
    """Examined at one size and used at 1 x 1, where a convolution's patches outlive the next layer's."""
    torch.manual_seed(0)
    model = three(lambda: nn.Conv2d(4, 4, 3, padding=1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 8
    engine = ClippedSum(model, FlatClip(1.0))
    engine(readout, floats(6, 4, before, before), torch.zeros(6))
    x, y = floats(6, 4, 1, 1), torch.zeros(6)
    whole = engine(readout, x, y)[0].flat.clone()
    for i in range(6):
        others = torch.arange(6) != i
        assert float((whole - engine(readout, x[others], y[others])[0].flat).norm()) <= 1.0 + 1e-5
