from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tacit.attacks import Recipe, half_splits, train_stacked
from tacit.attacks.group_training import Group
from tacit.errors import InvalidInput
from tacit.gradients import clipped_sum
from tacit.models import mlp
from tacit.noise import SeededStream

WIDTHS = [6, 5, 4, 3]


@pytest.fixture
def data():
    draw = np.random.default_rng(0)
    return draw.normal(size=(40, 6)).astype(np.float32), draw.integers(0, 3, 40)


def first_weights(models, seed=0):
    draw = np.random.default_rng(seed)
    return [[draw.normal(size=pair).astype(np.float32) for pair in pairwise(WIDTHS)] for _ in range(models)]


def network(matrices):
    model = mlp(6, 3, hidden=(5, 4))
    with torch.no_grad():
        for layer, matrix in zip(model[::2], matrices, strict=True):
            layer.weight.copy_(torch.from_numpy(matrix).T)
    return model


def group_of(first, recipe):
    networks = [network(matrices) for matrices in first]
    return Group(networks[0], [each.state_dict() for each in networks], recipe)


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def test_a_private_step_is_the_clipped_sum_of_every_model(data):
    """Without noise, one SGD step moves each model by rate times the clipped sum over the expected batch size."""
    first, x, y = first_weights(3), torch.from_numpy(data[0]), torch.from_numpy(data[1])
    recipe = Recipe(
        hidden=(5, 4), batch_size=10, learning_rate=1.0, optimizer="sgd", clip_norm=0.7, noise_multiplier=0.0
    )
    group, rows = group_of(first, recipe), torch.arange(24).view(3, 8)
    kept = torch.ones(3, 8)
    kept[1, 5:] = 0
    with torch.no_grad():
        group.step(x[rows], y[rows], kept, SeededStream(0))
    after = group.parameters()
    for place in range(3):
        own = rows[place][kept[place] > 0]
        total, _ = clipped_sum(network(first[place]), loss, x[own], y[own], clip_norm=0.7)
        for layer in range(3):
            moved = torch.from_numpy(first[place][layer]) - after[f"{2 * layer}.weight"][place].T
            torch.testing.assert_close(moved, total[f"{2 * layer}.weight"].T / 10, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(
                -after[f"{2 * layer}.bias"][place], total[f"{2 * layer}.bias"] / 10, rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_noise_has_the_stated_size(data, noise):
    """One step on no records leaves noise alone; 3 x 107 values, bounds at 6 standard errors."""
    recipe = Recipe(
        hidden=(5, 4), batch_size=10, learning_rate=1.0, optimizer="sgd", clip_norm=0.7, noise_multiplier=noise
    )
    group = group_of(first_weights(3), recipe)
    before = torch.cat([value.flatten() for value in group.parameters().values()])
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    with torch.no_grad():
        group.step(x[:3, None], y[:3, None], torch.zeros(3, 1), SeededStream(1))
    moved = (torch.cat([value.flatten() for value in group.parameters().values()]) - before) * 10 / (noise * 0.7)
    count = moved.numel()
    assert abs(float(moved.square().mean()) - 1) < 6 * np.sqrt(2 / count)
    assert abs(float(moved.mean())) < 6 / np.sqrt(count)


def test_the_group_does_not_matter(data):
    included = half_splits(5, 40)
    recipe = Recipe(hidden=(8,), batch_size=5, epochs=3)
    one, together = (train_stacked(data, included, recipe=recipe, classes=3, group=size) for size in (1, 5))
    for place in range(5):
        assert one.model(place)(data[0]) == pytest.approx(together.model(place)(data[0]), abs=1e-4)


def test_models_learn_their_own_records(data):
    included = half_splits(4, 40)
    stack = train_stacked(data, included, recipe=Recipe(hidden=(64,), batch_size=5, epochs=60), classes=3)
    for place in range(4):
        right = stack.model(place)(data[0]).argmax(1) == data[1]
        assert right[included[place]].all()
        assert not right[~included[place]].all()


def test_half_precision_learns_too(data):
    recipe = Recipe(hidden=(64,), batch_size=5, epochs=60, precision="bfloat16")
    stack = train_stacked(data, np.ones((2, 40), bool), recipe=recipe, classes=3)
    assert np.mean(stack.model(1)(data[0]).argmax(1) == data[1]) > 0.95


def test_an_interrupted_training_goes_on(data, tmp_path):
    included, recipe = half_splits(6, 40), Recipe(hidden=(4,), batch_size=5, epochs=2)
    told = []

    def stop(done, total):
        told.append((done, total))
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_stacked(data, included, recipe=recipe, classes=3, group=2, folder=tmp_path, on_progress=stop)
    assert told == [(2, 6), (4, 6)]
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    resumed = train_stacked(data, included, recipe=recipe, classes=3, group=2, folder=tmp_path)
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}.items()
    straight = train_stacked(data, included, recipe=recipe, classes=3, group=2)
    assert resumed.state.keys() == straight.state.keys()
    assert all(torch.equal(values, straight.state[name]) for name, values in resumed.state.items())


def test_shadows_of_another_training_are_not_used(data, tmp_path):
    included, recipe = half_splits(2, 40), Recipe(hidden=(4,), batch_size=5, epochs=1)
    train_stacked(data, included, recipe=recipe, classes=3, folder=tmp_path)
    with pytest.raises(InvalidInput, match="same recipe, records and seed"):
        train_stacked(data, included, recipe=recipe, classes=3, folder=tmp_path, seed=1)
    next(tmp_path.iterdir()).write_bytes(b"damaged")
    with pytest.raises(InvalidInput, match="damaged"):
        train_stacked(data, included, recipe=recipe, classes=3, folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"included": np.ones((2, 39), bool)}, "included must be"),
        ({"included": np.zeros((2, 40), bool)}, "included must be"),
        ({"included": np.ones((2, 40))}, "included must be"),
        ({"classes": 2}, "labels must be"),
        ({"group": 0}, "group must be"),
    ],
)
def test_bad_arguments_are_refused(data, change, said):
    given = {"included": np.ones((2, 40), bool), "classes": 3, "recipe": Recipe(hidden=(4,), epochs=1)} | change
    with pytest.raises(InvalidInput, match=said):
        train_stacked(data, given.pop("included"), **given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clip_norm": 1.0}, "noise_multiplier must be given together"),
        ({"noise_multiplier": 1.0}, "noise_multiplier must be given together"),
        ({"clip_norm": 1.0, "noise_multiplier": -1.0}, "noise_multiplier must be"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "precision": "bfloat16"}, "precision must be float32 or float64"),
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
        ({"l2_penalty": -1.0}, "l2_penalty must be"),
        ({"epochs": 0}, "epochs must be"),
        ({"hidden": (0,)}, "hidden must be"),
    ],
)
def test_bad_recipes_are_refused(change, said):
    with pytest.raises(InvalidInput, match=said):
        Recipe(**change)
