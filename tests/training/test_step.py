"""The noise that the real step releases, at settings where no two factors can be confused.

Noise multiplier 0.7, clip 2.5, expected batch 37: std 1.75 on the sum, 1.75 / 37 on the released mean. Statistical
tests are seeded; each alone raises a false alarm with probability below 1e-6.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.optim import SGD, Adam

from tacit.errors import InvalidInput, TrainingMisuse, UnsupportedModel
from tacit.gradients import clipped_sum
from tacit.noise import SecureStream, SeededStream
from tacit.noise.rounded_gaussian import grid_of
from tacit.training import private_step
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model, squared_error

SETTINGS = {"clip_norm": 2.5, "noise_multiplier": 0.7, "expected_batch_size": 37}
GRID = grid_of(0.7 * 2.5)[1] / (0.7 * 2.5)


def released(steps, *, stream, inputs=None, dtype=torch.float32):
    """Every update of a step on a constant batch, in units of the noise that it should hold, one row a step."""
    model = nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 5)).to(dtype)
    x = torch.zeros(0, 40, dtype=dtype) if inputs is None else inputs.to(dtype)
    y = torch.zeros(len(x), 5, dtype=dtype)
    step = private_step(model, SGD(model.parameters(), lr=1.0), squared_error, stream=stream, **SETTINGS)
    rows = []
    for _ in range(steps):
        sums, _ = clipped_sum(model, squared_error, x, y, clip_norm=2.5)
        mean = torch.cat([value.flatten() for value in sums.values()]) / 37
        before = flat(model)
        step(x, y)
        rows.append(((before - flat(model) - mean).double() * 37 / (0.7 * 2.5)).numpy())
    return np.array(rows)


@pytest.fixture(scope="module")
def noise():
    return released(400, stream=SeededStream(0))


def test_variance_is_that_of_the_plan_in_all_and_in_every_coordinate(noise):
    total = stats.chi2(noise.size)
    assert 1e-6 < total.cdf(np.sum(noise**2)) < 1 - 1e-6
    each = np.sum(noise**2, axis=0)
    level = 1e-6 / noise.shape[1]
    assert stats.chi2(len(noise)).ppf(level) < each.min()
    assert each.max() < stats.chi2(len(noise)).isf(level)


def is_normal(noise):
    """Kolmogorov-Smirnov at 1e-6, after uniform values have filled the grid of the rounded noise."""
    filled = noise.ravel() + np.random.default_rng(0).uniform(-0.5, 0.5, noise.size) * GRID
    return stats.kstest(filled, "norm").pvalue > 1e-6


def test_noise_is_normal(noise):
    assert is_normal(noise)
    assert np.abs(noise).max() > 4.3


def test_noise_is_independent_across_coordinates_and_steps(noise):
    size = noise.size**0.5
    for lag in (1, 2, 7, 30, 40, 600):
        assert abs((noise[:, :-lag] * noise[:, lag:]).mean()) < 5.2 / (noise[:, lag:].size) ** 0.5
    for lag in (1, 2, 10):
        assert abs((noise[:-lag] * noise[lag:]).mean()) < 5.2 / (noise[lag:].size) ** 0.5
    assert abs((noise[:, ::-1] * noise).mean()) < 5.2 * 2**0.5 / size
    correlations = np.corrcoef(noise[:, :200], rowvar=False)[np.triu_indices(200, 1)] * len(noise) ** 0.5
    assert np.abs(correlations).max() < 7.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_does_not_depend_on_the_batch(dtype):
    inputs = torch.randn(50, 40, generator=torch.Generator().manual_seed(1))
    noise = released(30, stream=SeededStream(1), inputs=inputs, dtype=dtype)
    assert 1e-6 < stats.chi2(noise.size).cdf(np.sum(noise**2)) < 1 - 1e-6
    assert is_normal(noise)


@pytest.mark.parametrize("engine", ["eager", "recorded"])
def test_noise_does_not_depend_on_the_number_of_threads(engine):
    """The same seeded step on one thread and on two: only the order of additions may differ."""
    x, y = blobs(40)

    def stepped(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            model = small_model()
            step = private_step(
                model, plain_sgd(model), cross_entropy, stream=SeededStream(5), engine=engine, **SETTINGS
            )
            step(x, y)
            return flat(model)
        finally:
            torch.set_num_threads(before)

    torch.testing.assert_close(stepped(1), stepped(2))


@pytest.mark.parametrize("engine", ["eager", "recorded"])
def test_released_sums_lie_on_the_grid_of_exact_noise(engine):
    """Low-order bits of a sum stay in the computer: 64 is a power of two, so that the division shows every bit."""
    (x, y), model = blobs(40), small_model()
    step = private_step(
        model, plain_sgd(model, 1.0), cross_entropy, engine=engine, **SETTINGS | {"expected_batch_size": 64}
    )
    for _ in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        step(x, y)
        multiples = flat(model).double() * 64 / grid_of(0.7 * 2.5)[1]
        assert torch.equal(multiples, multiples.round())
        assert multiples.abs().max() > 0


def test_secure_noise_never_repeats_and_seeded_noise_does():
    secure = [released(1, stream=SecureStream()) for _ in range(2)]
    seeded = [released(1, stream=SeededStream(4)) for _ in range(2)]
    assert abs(np.corrcoef(secure[0].ravel(), secure[1].ravel())[0, 1]) < 0.15
    np.testing.assert_allclose(seeded[0], seeded[1], atol=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_bad_records_never_reach_the_weights(value):
    model, (x, y) = small_model(), blobs(20)
    x[3, 1] = value
    step = private_step(model, plain_sgd(model), cross_entropy, **SETTINGS)
    for _ in range(5):
        step(x, y)
    assert torch.isfinite(flat(model)).all()


@pytest.mark.parametrize("optimizer", [SGD, Adam])
def test_without_noise_the_step_is_the_clipped_mean(optimizer):
    model, reference, (x, y) = small_model(), small_model(), blobs(20)
    settings = SETTINGS | {"noise_multiplier": 0.0, "clip_norm": 0.3}
    step = private_step(model, optimizer(model.parameters(), lr=0.1), cross_entropy, unsafe_no_noise=True, **settings)
    other = optimizer(reference.parameters(), lr=0.1)
    for _ in range(3):
        step(x, y)
        sums, _ = clipped_sum(reference, cross_entropy, x, y, clip_norm=0.3)
        for name, parameter in reference.named_parameters():
            parameter.grad = sums[name] / 37
        other.step()
    torch.testing.assert_close(flat(model), flat(reference))


def test_no_gradient_is_left_behind():
    model, (x, y) = small_model(), blobs(20)
    private_step(model, plain_sgd(model), cross_entropy, **SETTINGS)(x, y)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_momentum_and_weight_decay_are_left_to_the_optimizer():
    model, reference, (x, y) = small_model(), small_model(), blobs(20)
    hyper = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    for one in (model, reference):
        step = private_step(one, SGD(one.parameters(), **hyper), cross_entropy, stream=SeededStream(2), **SETTINGS)
        for _ in range(3):
            step(x, y)
    torch.testing.assert_close(flat(model), flat(reference))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("noise_multiplier", v) for v in (0, -1.0, math.nan, math.inf, "1", None)),
        *(("clip_norm", v) for v in (0, -1.0, math.nan, math.inf, "1", None)),
        *(("expected_batch_size", v) for v in (0, -1.0, math.nan, math.inf, "1", None)),
        *(("engine", v) for v in ("eagre", None, 3)),
    ],
)
def test_bad_arguments_are_refused_before_the_first_step(name, value):
    model = small_model()
    with pytest.raises(InvalidInput, match=f"^{name} must be "):
        private_step(model, plain_sgd(model), cross_entropy, **(SETTINGS | {name: value}))


def test_misuse_is_an_error():
    model, (x, y) = small_model(), blobs(20)
    with pytest.raises(TrainingMisuse, match="optimizer must hold the parameters of this model; got 4 of another"):
        private_step(model, plain_sgd(small_model()), cross_entropy, **SETTINGS)
    with pytest.raises(TrainingMisuse, match=r"got none for 0\.weight, 0\.bias"):
        private_step(model, plain_sgd(model[2]), cross_entropy, **SETTINGS)
    mixing = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    with pytest.raises(UnsupportedModel, match="BatchNorm1d"):
        private_step(mixing, plain_sgd(mixing), cross_entropy, **SETTINGS)
    step = private_step(model, plain_sgd(model), cross_entropy, **SETTINGS)
    for inputs, targets in ((x[:, :2], y), (x, y + 9), (None, y), (x, None)):
        with pytest.raises(InvalidInput, match=r"(inputs|targets) must be"):
            step(inputs, targets)
    model.eval()
    before = flat(model)
    with pytest.raises(TrainingMisuse, match="train mode; got eval mode"):
        step(x, y)
    assert torch.equal(before, flat(model))
