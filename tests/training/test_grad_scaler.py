"""Scaled losses of autocast to float16: the released sum is that of a run without scaling, and within its bound."""

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tacit import Standing
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.training import GradScaler, make_private
from tests.training.cases import blobs, cross_entropy, flat, small_model


def small_gradients():
    """A network whose first layer has gradients of about 1e-8, below the least number of float16."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 3, bias=False)]
    for layer in layers[1:]:
        layer.weight.data.mul_(3e-4)
        layer.weight.requires_grad_(False)
    return nn.Sequential(layers[0], nn.Tanh(), *layers[1:])


def moved(model, scaler, dtype=torch.float16, clip_norm=1.0, batch_size=60, physical=None):
    """What one step without noise subtracts from the weights."""
    x, y = blobs(60)
    # Sums of 1e-8 must not vanish beside weights of 1.
    model = model.double() if dtype is None else model
    before = flat(model).clone()
    private = make_private(
        model,
        SGD([each for each in model.parameters() if each.requires_grad], lr=1e4),
        DataLoader(TensorDataset(x.double() if dtype is None else x, y), batch_size=batch_size),
        clip_norm=clip_norm,
        noise_multiplier=0.0,
        unsafe_no_noise=True,
        epochs=1,
        max_physical_batch_size=physical,
    )
    for rows, labels in private.loader:
        with torch.autocast("cpu", dtype=dtype or torch.float16, enabled=dtype is not None):
            losses = cross_entropy(private.model(rows), labels)
        if scaler is None:
            losses.backward()
            private.optimizer.step()
        else:
            scaler.scale(losses).backward()
            scaler.unscale_(private.optimizer)
            scaler.step(private.optimizer)
            scaler.update()
    return before.double() - flat(model).double()


def far(left, right):
    return float((left - right).norm() / right.norm())


def test_gradients_below_the_range_of_float16_are_kept():
    exact = moved(small_gradients(), None, dtype=None)
    assert far(moved(small_gradients(), None), exact) > 0.5
    assert far(moved(small_gradients(), GradScaler(init_scale=4096.0)), exact) < 0.02


@pytest.mark.parametrize("physical", [None, 7])
@pytest.mark.parametrize("scale", [1.0, 1024.0, 65536.0])
def test_the_sum_is_that_of_a_run_without_scaling(scale, physical):
    """Whatever the scale: records that overflow float16, as all do at 65536, are computed again alone."""
    exact = moved(small_model(), None, dtype=None, clip_norm=0.05)
    assert far(moved(small_model(), GradScaler(init_scale=scale), clip_norm=0.05, physical=physical), exact) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1024.0, 65536.0])
def test_no_record_moves_the_sum_by_more_than_clip_norm(scale):
    for seed in range(10):
        x, y = blobs(1, seed)
        model = small_model()
        private = make_private(
            model,
            SGD(model.parameters(), lr=1.0),
            DataLoader(TensorDataset(x * 1e3, y), batch_size=1),
            clip_norm=0.05,
            noise_multiplier=0.0,
            unsafe_no_noise=True,
            epochs=1,
        )
        before, scaler = flat(model).double(), GradScaler(init_scale=scale)
        for rows, labels in private.loader:
            with torch.autocast("cpu", dtype=torch.float16):
                losses = cross_entropy(private.model(rows), labels)
            scaler.scale(losses).backward()
            scaler.step(private.optimizer)
        assert float((before - flat(model).double()).norm()) <= 0.05 * (1 + 1e-4)


def private_parts():
    model = small_model()
    loader = DataLoader(TensorDataset(*blobs(40)), batch_size=20)
    return make_private(model, SGD(model.parameters(), lr=0.1), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=2)


def test_a_scaled_run_is_proven():
    private, scaler = private_parts(), GradScaler()
    for _ in range(2):
        for x, y in private.loader:
            with torch.autocast("cpu", dtype=torch.float16):
                losses = cross_entropy(private.model(x), y)
            scaler.scale(losses).backward()
            scaler.step(private.optimizer)
    assert private.ledger.standing is Standing.PROVEN


class TestMisuse:
    def test_the_scaler_of_torch_is_named_with_what_replaces_it(self):
        private, scaler = private_parts(), torch.amp.GradScaler("cpu")
        x, y = next(iter(private.loader))
        scaler.scale(cross_entropy(private.model(x), y)).backward()
        with pytest.raises(TrainingMisuse, match=r"Use tacit\.training\.GradScaler, which has the same calls"):
            scaler.step(private.optimizer)
        assert not private.ledger.entries

    @pytest.mark.parametrize("used", [lambda losses, scaled: losses, lambda losses, scaled: scaled / 2])
    def test_backward_on_another_value(self, used):
        private, scaler = private_parts(), GradScaler()
        x, y = next(iter(private.loader))
        losses = cross_entropy(private.model(x), y)
        with pytest.raises(TrainingMisuse, match=r"must be called on what scaler.scale\(losses\) returned"):
            used(losses, scaler.scale(losses)).backward()

    def test_scaled_twice(self):
        private, scaler = private_parts(), GradScaler()
        x, y = next(iter(private.loader))
        with pytest.raises(TrainingMisuse, match="called once for each batch"):
            scaler.scale(scaler.scale(cross_entropy(private.model(x), y)))

    def test_a_loss_of_another_model(self):
        with pytest.raises(TrainingMisuse, match=r"torch\.amp\.GradScaler for a model that is not private"):
            GradScaler().scale(torch.ones(3))

    @pytest.mark.parametrize("scale", [0.0, 0.5, 1000.0, 2.0**17, float("nan"), float("inf"), -2.0])
    def test_a_scale_that_rounds_or_overflows(self, scale):
        with pytest.raises(InvalidInput, match="power of two"):
            GradScaler(init_scale=scale)

    def test_another_scale_later(self):
        scaler = GradScaler(init_scale=256.0)
        scaler.load_state_dict(scaler.state_dict())
        assert (scaler.get_scale(), scaler.is_enabled(), GradScaler(enabled=False).get_scale()) == (256.0, True, 1.0)
        with pytest.raises(InvalidInput, match="scale of private gradients is constant"):
            scaler.update(512.0)
