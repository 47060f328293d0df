"""The compiled lane against the eager one: the same noise, so the same weights up to rounding.

Every model compiles one graph, which takes some seconds.
"""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD

from tacit.errors import UnsupportedModel
from tacit.noise import SeededStream
from tacit.training import fit, private_step
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

SETTINGS = {"clip_norm": 0.3, "noise_multiplier": 0.7, "expected_batch_size": 16}


def trained(engine, build, batches, **changes):
    model = build()
    optimizer = SGD(model.parameters(), lr=0.5, momentum=0.5)
    step = private_step(model, optimizer, cross_entropy, engine=engine, stream=SeededStream(3), **(SETTINGS | changes))
    for x, y in batches:
        step(x, y)
    return flat(model)


def assert_lanes_agree(build, batches, **changes):
    start = flat(build())
    compiled = trained("compiled", build, batches, **changes)
    torch.testing.assert_close(compiled, trained("eager", build, batches, **changes), rtol=1e-4, atol=1e-5)
    assert torch.isfinite(compiled).all()
    assert not torch.equal(compiled, start)


def test_padding_empty_batches_and_bad_records_change_nothing():
    x, y = blobs(40)
    bad, huge = x.clone(), x.clone()
    bad[3, 1] = math.nan
    huge[2] = 3e30
    batches = [(x[:16], y[:16]), (x[:15], y[:15]), (x[:0], y[:0]), (bad[:15], y[:15]), (huge[:16], y[:16])]
    assert_lanes_agree(small_model, batches)


@pytest.mark.slow
def test_convolutions_norms_and_frozen_parameters():
    def build():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
        )
        model[0].bias.requires_grad_(False)
        return model

    x = torch.randn(16, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    assert_lanes_agree(build, [(x, torch.arange(16) % 5)] * 2)


@pytest.mark.slow
def test_embeddings():
    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(30, 6), nn.Flatten(), nn.Linear(48, 3))

    words = torch.randint(30, (16, 8), generator=torch.Generator().manual_seed(0))
    assert_lanes_agree(build, [(words, torch.arange(16) % 3)] * 2)


def test_fit_takes_the_engine():
    x, y = blobs()
    weights = []
    for engine in ("compiled", "auto"):
        model = small_model()
        result = fit(
            model,
            x,
            y,
            loss=cross_entropy,
            optimizer=plain_sgd(model),
            clip_norm=0.3,
            noise_multiplier=0.7,
            sample_rate=1.0,
            steps=3,
            engine=engine,
            stream=SeededStream(1),
        )
        assert result.ledger.steps == 3
        weights.append(flat(model))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_captured_cannot_be_compiled():
    model = nn.Bilinear(4, 4, 2)
    step = private_step(model, plain_sgd(model), cross_entropy, engine="compiled", **SETTINGS)
    x, y = blobs(16)
    with pytest.raises(UnsupportedModel, match=r'cannot be compiled: .* uses .*Use engine="eager"'):
        step((x, x), y)
