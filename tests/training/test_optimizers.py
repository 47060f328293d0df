"""AdamBC against its formulas, and every other optimizer and scheduler of torch under a private step."""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from tacit.clipping import BatchMeanClip
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.gradients.rounding import single_slack, slack
from tacit.noise import SeededStream
from tacit.training import AdamBC, fit, private_step
from tests.training.cases import blobs, cross_entropy, flat, small_model

NU = slack(torch.float32, len(list(small_model().parameters())), single_slack(40))
LENGTH = 0.4 * (1 + NU)


def by_formula(gradients, noises, *, lr, betas, floor):
    """The path of Algorithm 1 in float64."""
    theta = m = v = f = torch.zeros_like(gradients[0])
    path = []
    for t, (gradient, noise) in enumerate(zip(gradients, noises, strict=True), start=1):
        m = betas[0] * m + (1 - betas[0]) * gradient
        v = betas[1] * v + (1 - betas[1]) * gradient**2
        f = betas[1] * f + (1 - betas[1]) * noise**2
        own = (v - f) / (1 - betas[1] ** t)
        theta = theta - lr * m / (1 - betas[0] ** t) / own.clamp(min=floor).sqrt()
        path.append(theta)
    return path


@pytest.mark.parametrize("floor", [1e-12, 1e-3, 10.0])
def test_adam_bc_equals_its_formulas(floor):
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(20)]
    noises = [0.3 + 0.05 * i for i in range(20)]
    settings = {"lr": 0.1, "betas": (0.8, 0.95), "floor": floor}
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = AdamBC([parameter], **settings)
    for gradient, noise, expected in zip(gradients, noises, by_formula(gradients, noises, **settings), strict=True):
        parameter.grad = gradient.clone()
        optimizer.expect_noise(noise)
        optimizer.step()
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-10, atol=1e-12)


def test_without_noise_it_is_adam():
    paths = []
    for build in (lambda p: AdamBC(p, lr=0.1, floor=1e-30), lambda p: Adam(p, lr=0.1, eps=1e-15)):
        parameter = nn.Parameter(torch.zeros(5))
        optimizer = build([parameter])
        generator = torch.Generator().manual_seed(1)
        for _ in range(30):
            parameter.grad = torch.randn(5, generator=generator)
            if isinstance(optimizer, AdamBC):
                optimizer.expect_noise(0.0)
            optimizer.step()
        paths.append(parameter.detach())
    torch.testing.assert_close(paths[0], paths[1])


def test_the_second_moment_is_freed_of_the_noise():
    """Gradient .5 under noise of std 5 on 4000 coordinates: v' - f' averages to .25, not 25.25; 5 standard errors."""
    parameter = nn.Parameter(torch.zeros(4000))
    optimizer = AdamBC([parameter], lr=1e-6)
    generator = torch.Generator().manual_seed(2)
    for _ in range(400):
        parameter.grad = 0.5 + 5.0 * torch.randn(4000, generator=generator)
        optimizer.expect_noise(5.0)
        optimizer.step()
    state = optimizer.state[parameter]
    own = (state["second"] - state["noise"]) / (1 - 0.999**400)
    error = 25 * math.sqrt(2) / math.sqrt(4000 * 400 * 0.9)
    assert float(own.mean()) == pytest.approx(0.25, abs=6 * error)


def run(optimizer, model, **changes):
    x, y = blobs()
    arguments = {"clip_norm": 0.4, "noise_multiplier": 1.3, "batch_size": 40, "steps": 6, "stream": SeededStream(0)}
    return fit(model, x, y, loss=cross_entropy, optimizer=optimizer, **(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "noises"),
    [
        ({}, [1.3 * LENGTH / 40] * 6),
        ({"noise_multiplier": [1.0 + 0.2 * i for i in range(6)]}, [(1.0 + 0.2 * i) * LENGTH / 40 for i in range(6)]),
        ({"clip_norm": None, "clipping": BatchMeanClip(0.4)}, [1.3 * 0.8] * 6),
    ],
    ids=["constant", "schedule", "mean"],
)
def test_the_private_step_tells_it_the_noise(monkeypatch, changes, noises):
    told = []
    monkeypatch.setattr(AdamBC, "expect_noise", lambda self, std: (told.append(std), setattr(self, "_noise_std", std)))
    model = small_model()
    run(AdamBC(model.parameters(), lr=0.01), model, **changes)
    assert told == pytest.approx(noises)


def test_gradients_that_no_private_step_made_are_refused():
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    optimizer = AdamBC([parameter])
    with pytest.raises(TrainingMisuse, match="AdamBC must step on gradients of a private step"):
        optimizer.step()
    optimizer.expect_noise(1.0)
    optimizer.step()
    with pytest.raises(TrainingMisuse, match="got others"):
        optimizer.step()


@pytest.mark.parametrize(
    "settings", [{"lr": 0.0}, {"lr": math.nan}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"floor": 0.0}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(InvalidInput, match=f"{next(iter(settings))} must be in"):
        AdamBC([nn.Parameter(torch.zeros(2))], **settings)


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "build",
    [
        lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: Adam(p, lr=0.01),
        lambda p: AdamW(p, lr=0.01),
        lambda p: Adagrad(p, lr=0.05),
        lambda p: RMSprop(p, lr=0.01),
        lambda p: AdamBC(p, lr=0.01),
    ],
    ids=["momentum", "adam", "adamw", "adagrad", "rmsprop", "adam_bc"],
)
def test_any_optimizer_sees_the_released_gradient_and_nothing_else(build):
    """The same updates as by hand from gradients that a recording optimizer saw."""

    class Recorder(SGD):
        def step(self, closure=None):
            seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])

    seen, model = [], small_model()
    run(Recorder(model.parameters(), lr=0.1), model, steps=1)
    first, second = small_model(), small_model()
    run(build(first.parameters()), first, steps=1)
    optimizer = build(second.parameters())
    for parameter, gradient in zip(second.parameters(), seen[0], strict=True):
        parameter.grad = gradient
    if isinstance(optimizer, AdamBC):
        optimizer.expect_noise(1.3 * 0.4 * (1 + NU) / 40)
    optimizer.step()
    assert torch.equal(flat(first), flat(second))
    assert not torch.equal(flat(first), flat(small_model()))


@pytest.mark.parametrize(
    "schedule", [lambda o: CosineAnnealingLR(o, 10), lambda o: LambdaLR(o, lambda step: 0.5**step)]
)
def test_learning_rates_of_schedulers_are_used(schedule):
    model = small_model()
    x, y = blobs(0)
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler = schedule(optimizer)
    step = private_step(
        model, optimizer, cross_entropy, clip_norm=1.0, noise_multiplier=1.0, expected_batch_size=1,
        stream=SeededStream(0),
    )  # fmt: skip
    for _ in range(3):
        before, rate, noise = flat(model), optimizer.param_groups[0]["lr"], None
        step(x, y)
        noise = (before - flat(model)) / rate
        assert 0.3 < float(noise.std()) < 2.0
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] < 1.0
