"""Attention and transformer layers against a float64 loop, and their outputs against torch's own."""

import pytest
import torch
from torch import nn

from tacit.gradients.capture import Capture
from tests.gradients.test_rules import check, floats


class Apply(nn.Module):
    """Attention with fixed options; keys and values are the query unless they are given."""

    def __init__(self, options, masks=None):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, **({"batch_first": True} | options))
        self.masks = masks or {}

    def forward(self, x, other=None):
        first = self.attention.batch_first
        x, other = (value if first or value is None else value.transpose(0, 1) for value in (x, other))
        key = x if other is None else other
        found = self.attention(x, key, key, **self.masks)[0]
        return found if first else found.transpose(0, 1)


CAUSAL = torch.ones(4, 4).triu(1).bool()
SELF = {
    "plain": ({}, None),
    "time first": ({"batch_first": False}, None),
    "without biases": ({"bias": False}, None),
    "causal": ({}, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
    "mask of numbers": ({}, {"attn_mask": CAUSAL.float() * -3.0, "need_weights": False}),
    "zero attention": ({"add_zero_attn": True}, {"attn_mask": CAUSAL}),
    "key biases": ({"add_bias_kv": True}, {"attn_mask": CAUSAL}),
}


@pytest.mark.parametrize("case", SELF)
def test_self_attention_equals_a_float64_loop(case):
    torch.manual_seed(0)
    check(Apply(*SELF[case]), floats(5, 4, 6), torch.zeros(5))


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 3, "vdim": 3}, {"add_bias_kv": True}])
def test_cross_attention_equals_a_float64_loop(options):
    torch.manual_seed(0)
    width = options.get("kdim", 6)
    check(Apply(options), (floats(5, 4, 6), floats(5, 3, width)), torch.zeros(5))


def test_attention_with_padding_masks_equals_a_float64_loop():
    class Padded(Apply):
        def forward(self, x):
            hide = x[..., 0] > 0.5
            hide[:, 0] = False
            return self.attention(x, x, x, key_padding_mask=hide, need_weights=False)[0]

    torch.manual_seed(0)
    check(Padded({}), floats(5, 4, 6), torch.zeros(5))


@pytest.mark.parametrize("case", SELF)
def test_outputs_and_weights_are_those_of_torch(case):
    torch.manual_seed(0)
    model, x = Apply(*SELF[case]), floats(7, 4, 6)
    options = {"need_weights": True} | (SELF[case][1] or {})
    given = x if model.attention.batch_first else x.transpose(0, 1)
    expected, weights = model.attention(given, given, given, **options)
    model.requires_grad_(False)
    with Capture({id(p): name for name, p in model.named_parameters()}, 7):
        found, seen = model.attention(given, given, given, **options)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(seen, weights)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers_equal_a_float64_loop(norm_first):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    check(nn.TransformerEncoderLayer(6, 2, 8, **options), floats(5, 4, 6), torch.zeros(5))
    check(nn.TransformerDecoderLayer(6, 2, 8, **options), (floats(5, 4, 6), floats(5, 3, 6)), torch.zeros(5))


def test_whole_transformers_equal_a_float64_loop():
    torch.manual_seed(0)
    whole = nn.Transformer(6, 2, 1, 1, 8, dropout=0.0, batch_first=True)
    check(whole, (floats(5, 4, 6), floats(5, 3, 6)), torch.zeros(5))
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    check(nn.TransformerEncoder(layer, 2).eval(), floats(5, 4, 6), torch.zeros(5))


def test_attention_with_dropout_is_captured():
    torch.manual_seed(0)
    from tacit.clipping import FlatClip
    from tacit.gradients.clipped import ClippedSum
    from tests.gradients.cases import readout

    engine = ClippedSum(nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, batch_first=True), FlatClip(1.0))
    assert engine.fallback_reason(readout, floats(5, 4, 6), torch.zeros(5)) == ""
