"""Raw models are record-wise as they come, with their default dropout and experts, and no number is read."""

import pytest
import torch
from torch import nn

from tacit.verification import check_recordwise
from tests.architectures.zoo import (
    _BERT,
    ARCHITECTURES,
    causal,
    define_torchvision_operators,
    hugging_face,
    installed,
    texts,
)

SIZE = 6


def run_typed(model, data, loss):
    names = list(data)

    def program(*values):
        given = dict(zip(names, values, strict=True))
        labels = given.pop("labels") if not getattr(model.config, "is_encoder_decoder", False) else given["labels"]
        return loss(model(**given), labels)

    return check_recordwise(program, *[value[:SIZE] for value in data.values()])


@pytest.mark.parametrize("architecture", [pytest.param(one, id=one.name) for one in ARCHITECTURES])
def test_a_raw_model_is_recordwise(architecture):
    if architecture.library not in ("transformers", "peft") or not installed(architecture.library):
        pytest.skip(f"{architecture.library} is not installed")
    define_torchvision_operators()
    torch.manual_seed(0)
    found = run_typed(architecture.build(raw=True).train(), architecture.data(), architecture.loss)
    assert len(found.operations) > 40
    assert not found.reads
    assert not found.foreign


def test_a_model_that_drops_layers_is_recordwise():
    pytest.importorskip("transformers")
    define_torchvision_operators()
    config = _BERT | {"ffn_dim": 32, "word_embed_proj_dim": 16, "layerdrop": 0.5}
    torch.manual_seed(0)
    found = run_typed(hugging_face("OPTForCausalLM", **config)(raw=True).train(), texts(), causal)
    assert not found.reads


MODULES = {
    "mlp": (nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)), (5,)),
    "conv1d": (nn.Conv1d(3, 4, 3, padding=1), (3, 8)),
    "conv2d, dilated": (nn.Conv2d(3, 4, 3, dilation=2), (3, 8, 8)),
    "conv2d, grouped": (nn.Conv2d(4, 8, 3, groups=4, padding_mode="circular", padding=1), (4, 8, 8)),
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 4, 4, 4)),
    "transposed conv": (nn.ConvTranspose2d(3, 4, 3, stride=2), (3, 6, 6)),
    "max pool": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), (3, 8, 8)),
    "average pool": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (3, 8, 8)),
    "instance norm": (nn.InstanceNorm2d(3, affine=True), (3, 5, 5)),
    "instance norm 1d": (nn.InstanceNorm1d(3), (3, 7)),
    "group norm": (nn.GroupNorm(2, 4), (4, 5, 5)),
    "layer norm": (nn.LayerNorm([4, 5]), (4, 5)),
    "rms norm": (nn.RMSNorm(5), (4, 5)),
    "local response norm": (nn.LocalResponseNorm(2), (4, 5, 5)),
    "batch norm, stored": (nn.BatchNorm1d(5).eval(), (5,)),
    "prelu": (nn.PReLU(4), (4, 3)),
    "rrelu": (nn.RReLU(), (4,)),
    "glu": (nn.GLU(1), (6,)),
    "softmax": (nn.Softmax(1), (6,)),
    "dropout2d": (nn.Dropout2d(), (4, 3, 3)),
    "alpha dropout": (nn.AlphaDropout(), (6,)),
    "feature alpha dropout": (nn.FeatureAlphaDropout(), (4, 3)),
    "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), (3, 4, 4)),
    "pixel shuffle": (nn.Sequential(nn.Conv2d(2, 8, 1), nn.PixelShuffle(2)), (2, 3, 3)),
    "unfold": (nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), (3, 4, 4)),
    "padding": (nn.Sequential(nn.ReflectionPad2d(1), nn.ZeroPad2d(1), nn.ReplicationPad2d(1)), (3, 4, 4)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (4, 8)),
    "encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), (4, 8)),
    "spectral norm": (nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), (5,)),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), (5,)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_torch_is_recordwise(name):
    model, shape = MODULES[name]
    found = check_recordwise(model, torch.randn(4, *shape))
    assert found.operations
    assert not found.reads
    assert not found.foreign


RECURRENT = [
    (kind, layers, both, first)
    for kind in ("RNN", "GRU", "LSTM")
    for layers in (1, 2)
    for both in (False, True)
    for first in (False, True)
]


@pytest.mark.parametrize(("kind", "layers", "both", "first"), RECURRENT)
def test_a_recurrent_layer_is_recordwise(kind, layers, both, first):
    dropout = 0.2 if layers > 1 else 0.0
    model = getattr(nn, kind)(5, 6, layers, dropout=dropout, bidirectional=both, batch_first=first)

    def program(x):
        out = model(x if first else x.transpose(0, 1))[0]
        return out if first else out.transpose(0, 1)

    assert not check_recordwise(program, torch.randn(4, 3, 5)).reads


def test_an_embedding_bag_of_one_length_is_recordwise():
    assert check_recordwise(nn.EmbeddingBag(7, 3, mode="mean"), torch.randint(0, 7, (4, 5))).operations


def test_a_bilinear_layer_is_recordwise():
    assert check_recordwise(nn.Bilinear(3, 4, 5), torch.randn(4, 3), torch.randn(4, 4)).operations


def test_a_recurrent_cell_is_recordwise():
    cells = [nn.LSTMCell(3, 4), nn.GRUCell(3, 4)]

    def program(x):
        hidden, _ = cells[0](x)
        return cells[1](x, hidden)

    assert check_recordwise(program, torch.randn(4, 3)).operations
