"""Stacked networks against the same trained one by one."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from tacit.attacks import Recipe, group_training, half_splits, train_stacked
from tacit.attacks.group_training import not_stackable
from tacit.models import convnet
from tacit.noise import SeededStream

RECORDS = 40
RECIPES = {
    "adam": Recipe(batch_size=8, epochs=2),
    "momentum": Recipe(batch_size=8, epochs=2, learning_rate=0.05, optimizer="sgd", momentum=0.9, l2_penalty=1e-3),
    "private": Recipe(batch_size=8, epochs=2, optimizer="sgd", learning_rate=0.1, clip_norm=0.5, noise_multiplier=0.0),
}


def small(pool=None, activation: type[nn.Module] = nn.ReLU, bias=True):
    return nn.Sequential(
        nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(2, 3, (3, 2), stride=2, bias=bias), activation()),
        nn.MaxPool2d(2, stride=1) if pool is None else pool(),
        nn.Conv2d(3, 4, 2, padding=1, dilation=(1, 2)),
        activation(),
        nn.Flatten(),
        nn.LazyLinear(5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


class Own(nn.ReLU):
    """A class of the user's, which may do anything."""


def others():
    """Layers that the papers' networks do not have, one of them at two places."""
    activation = nn.GELU()
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding="same", groups=2), nn.GroupNorm(2, 4), activation, nn.LPPool2d(2, 2)),
        *(nn.Flatten(), nn.LayerNorm(4 * 5 * 6), nn.Linear(4 * 5 * 6, 5), activation, nn.Linear(5, 3)),
    )


KINDS = {
    "max": small,
    "others": others,
    "strided": partial(small, partial(nn.MaxPool2d, (3, 2), stride=(1, 2))),
    "mean, tanh": partial(small, partial(nn.AvgPool2d, 2, padding=1, count_include_pad=False), nn.Tanh),
    "without bias": partial(small, bias=False),
}


def made(kind):
    def network(seed):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = KINDS[kind]()
            model(torch.zeros(1, 2, 11, 12))
            return model

    return network


@pytest.fixture
def data():
    """Images whose borders are equal, as those of digits: whole windows of a pool are ties."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(RECORDS, 2, 11, 12)).astype(np.float32)
    inputs[:, :, :4] = inputs[:, :, :, 8:] = 0
    return inputs, draw.integers(0, 3, RECORDS)


def both(monkeypatch, data, included, **arguments):
    """Stacked, and one by one."""
    together = train_stacked(data, included, classes=3, stream=SeededStream(0), **arguments)
    with monkeypatch.context() as patch:
        patch.setattr(group_training, "not_stackable", lambda network: "anything")
        alone = train_stacked(data, included, classes=3, stream=SeededStream(0), **arguments)
    return together, alone


def furthest(together, alone):
    assert together.state.keys() == alone.state.keys()
    return max(float((values - alone.state[name]).abs().max()) for name, values in together.state.items())


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_models_trained_one_by_one(monkeypatch, data, kind, recipe):
    chosen = replace(RECIPES[recipe], precision="float64")
    included = half_splits(5, RECORDS)
    found = both(monkeypatch, data, included, recipe=chosen, network=made(kind))
    # The clipping factors of a private step allow for the rounding of float32.
    assert furthest(*found) < (1e-6 if recipe == "private" else 1e-10)
    assert (
        furthest(found[0], train_stacked(data, ~half_splits(5, RECORDS), classes=3, recipe=chosen, network=made(kind)))
        > 1e-3
    )


def test_single_precision_differs_by_its_rounding_only(monkeypatch):
    draw = np.random.default_rng(1)
    images = draw.random((RECORDS, 1, 28, 28)).astype(np.float32) * (draw.random((RECORDS, 1, 28, 28)) < 0.3)
    data = images.astype(np.float32), draw.integers(0, 3, RECORDS)

    def network(seed):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return convnet(classes=3)

    recipe = Recipe(batch_size=10, epochs=5, optimizer="sgd", learning_rate=0.05)
    assert furthest(*both(monkeypatch, data, half_splits(3, RECORDS), recipe=recipe, network=network)) < 1e-5


def test_models_may_have_batches_and_sizes_of_their_own_and_any_number_of_threads(monkeypatch, data):
    included = np.random.default_rng(2).random((5, RECORDS)) < np.array([0.3, 0.9, 0.5, 0.6, 0.4])[:, None]
    recipe, before = Recipe(batch_size=8, epochs=2, precision="float64"), torch.get_num_threads()
    assert furthest(*both(monkeypatch, data, included, recipe=recipe, network=made("max"))) < 1e-10
    try:
        torch.set_num_threads(1)
        one = train_stacked(data, included, recipe=recipe, classes=3, network=made("max"), group=2)
        torch.set_num_threads(3)
        several = train_stacked(data, included, recipe=recipe, classes=3, network=made("max"))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert furthest(one, several) < 1e-10


def test_other_networks_are_trained_one_by_one_and_one_line_says_why(data, caplog):
    def network(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 9 * 10, 3))

    with caplog.at_level(logging.WARNING):
        stack = train_stacked(
            data, half_splits(3, RECORDS), recipe=RECIPES["adam"], classes=3, network=network, group=1
        )
    assert [record.getMessage() for record in caplog.records] == [
        "shadow models are trained one by one: BatchNorm2d cannot be stacked"
    ]
    assert stack.model(2)(data[0]).shape == (RECORDS, 3)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(9, 3), nn.Dropout()), "Dropout"),
        (nn.Sequential(nn.Embedding(9, 3, max_norm=1.0)), "Embedding"),
        (nn.Sequential(nn.Linear(9, 3), nn.InstanceNorm1d(3)), "InstanceNorm1d"),
        (nn.Sequential(nn.LSTM(9, 3)), "LSTM"),
        (nn.Sequential(nn.Linear(9, 3), Own()), "Own"),
        (nn.Sequential(nn.Flatten(), nn.Linear(9, 3).requires_grad_(False)), "frozen"),
        (nn.Sequential(nn.Flatten(), *[nn.Linear(9, 9)] * 2), "used twice"),
    ],
)
def test_what_is_not_known_to_be_the_same_is_not_stacked(network, said):
    assert said in not_stackable(network)


def test_layers_that_torch_cannot_batch_are_trained_one_by_one(data, caplog):
    def network(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.FractionalMaxPool2d(2, output_size=4), nn.Flatten(), nn.Linear(32, 3))

    with caplog.at_level(logging.WARNING):
        train_stacked(data, half_splits(2, RECORDS), recipe=RECIPES["adam"], classes=3, network=network)
    assert "an operation of a layer cannot be stacked" in caplog.text


def test_a_network_with_hooks_is_not_stacked():
    network = nn.Sequential(nn.Linear(3, 4))
    network.register_forward_hook(lambda *_: None)
    assert not_stackable(network) == "Sequential"
    replaced = nn.Sequential(nn.Linear(3, 4))
    replaced[0].forward = replaced[0].forward
    assert not_stackable(replaced) == "Linear"
