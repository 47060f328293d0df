"""The recorded and compiled lanes against the eager one: the same noise, so the same weights up to rounding.

Every compiled model takes some seconds.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim import SGD

from tacit.errors import UnsupportedModel
from tacit.noise import SeededStream
from tacit.training import fit, private_step
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

SETTINGS = {"clip_norm": 0.3, "noise_multiplier": 0.7, "expected_batch_size": 16}


class Twice(torch.autograd.Function):
    """An operation that neither capture nor `torch.func` can look into."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).sum(0)


class Alone(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return Twice.apply(x, self.scale)


def trained(engine, build, batches, **changes):
    model = build()
    optimizer = SGD(model.parameters(), lr=0.5, momentum=0.5)
    step = private_step(model, optimizer, cross_entropy, engine=engine, stream=SeededStream(3), **(SETTINGS | changes))
    for x, y in batches:
        step(x, y)
    return flat(model)


def assert_lanes_agree(build, batches, engine="compiled", **changes):
    start = flat(build())
    compiled = trained(engine, build, batches, **changes)
    torch.testing.assert_close(compiled, trained("eager", build, batches, **changes), rtol=1e-4, atol=1e-5)
    assert torch.isfinite(compiled).all()
    assert not torch.equal(compiled, start)


@pytest.mark.parametrize("engine", ["recorded", pytest.param("compiled", marks=pytest.mark.slow)])
def test_padding_empty_batches_and_bad_records_change_nothing(engine):
    x, y = blobs(40)
    bad, huge = x.clone(), x.clone()
    bad[3, 1] = math.nan
    huge[2] = 3e30
    batches = [(x[:16], y[:16]), (x[:15], y[:15]), (x[:0], y[:0]), (bad[:15], y[:15]), (huge[:16], y[:16])]
    assert_lanes_agree(small_model, batches, engine)


class Last(nn.Module):
    """Last position of what a recurrent or attention layer gives, as logits."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 5)

    def forward(self, x):
        x = x.unflatten(1, (3, 4))
        found = self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.head(found[0][:, -1])


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 5))

    def forward(self, x):
        return torch.einsum("bi,ij->bj", x, self.weight)


RECORDED = {
    "deep": lambda: nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 5)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 4, 2, padding=1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 5)
    ),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(12, 5), "weight", 0.5),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(12, 5)),
    "shared": Shared,
    "recurrent": lambda: Last(nn.LSTM(4, 3, batch_first=True), 3),
    "attention": lambda: Last(nn.MultiheadAttention(4, 2, batch_first=True), 4),
    "layer norm": lambda: nn.Sequential(nn.Linear(12, 6), nn.LayerNorm(6), nn.Linear(6, 5)),
    "apart": lambda: nn.Sequential(nn.Linear(12, 12), Odd()),
}


@pytest.mark.slow_cases
@pytest.mark.parametrize("case", RECORDED)
def test_recordings_of_many_models(case):
    def build():
        torch.manual_seed(0)
        return RECORDED[case]()

    x = torch.randn(16, 12, generator=torch.Generator().manual_seed(0))
    assert_lanes_agree(build, [(x, torch.arange(16) % 5), (x[:13], torch.arange(13) % 5)], "recorded")


def test_recorded_embeddings_with_several_arguments():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.users, self.items = nn.Embedding(9, 6), nn.Embedding(7, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, items, users):
            return self.head(self.users(users) * self.items(items))

    batch = {"items": torch.arange(16) % 7, "users": torch.arange(16) % 9}
    assert_lanes_agree(Product, [(batch, torch.arange(16) % 3)] * 2, "recorded")


def test_dropout_is_drawn_anew_in_every_replay():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 40), nn.Dropout(0.5), nn.Linear(40, 5))
    x, y = torch.randn(16, 12), torch.arange(16) % 5
    settings = SETTINGS | {"noise_multiplier": 0.0, "unsafe_no_noise": True}
    step = private_step(model, SGD(model.parameters(), lr=1e-6), cross_entropy, engine="recorded", **settings)
    moves = []
    for _ in range(3):
        before = flat(model)
        step(x, y)
        moves.append((flat(model) - before).double())
    assert not torch.allclose(moves[0], moves[1])
    assert not torch.allclose(moves[1], moves[2])


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


def test_recorded_steps_follow_a_noise_schedule():
    x, y = blobs(40)

    def weights(engine):
        model = small_model()
        settings = {"clip_norm": 0.3, "noise_multiplier": [8.0, 0.5, 4.0, 0.5], "sample_rate": 0.4, "steps": 4}
        fit(
            model,
            x,
            y,
            loss=cross_entropy,
            optimizer=plain_sgd(model),
            engine=engine,
            stream=SeededStream(1),
            **settings,
        )
        return flat(model)

    torch.testing.assert_close(weights("recorded"), weights("eager"), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
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


def test_models_without_capture_cannot_be_compiled():
    model = nn.Sequential(Alone(4), nn.Linear(4, 2))
    step = private_step(model, plain_sgd(model), cross_entropy, engine="compiled", **SETTINGS)
    with pytest.raises(UnsupportedModel, match=r'cannot be compiled: .*Use engine="eager"'):
        step(*blobs(16))
