"""The short way of plain SGD does what the optimizer does, and everything else goes through the optimizer."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR

from tacit.training.optimizers import apply_gradients


def pair():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    gradients = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    return model, dict(model.named_parameters()), gradients


OPTIMIZERS = {
    "plain": lambda p: SGD(p, lr=0.3),
    "momentum": lambda p: SGD(p, lr=0.3, momentum=0.9),
    "decay": lambda p: SGD(p, lr=0.3, weight_decay=0.1),
    "maximize": lambda p: SGD(p, lr=0.3, maximize=True),
    "groups": lambda p: SGD([{"params": [q], "lr": 0.1 * (i + 1)} for i, q in enumerate(p)], lr=0.3),
    "tensor rate": lambda p: SGD(p, lr=torch.tensor(0.3)),
    "adam": lambda p: Adam(p, lr=0.3),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_are_those_of_the_optimizer(kind):
    model, trainable, gradients = pair()
    reference, named, same = pair()
    optimizer, expected = OPTIMIZERS[kind](list(model.parameters())), OPTIMIZERS[kind](list(reference.parameters()))
    for _ in range(3):
        apply_gradients(optimizer, trainable, gradients)
        for name, parameter in named.items():
            parameter.grad = same[name]
        expected.step()
    for name, parameter in trainable.items():
        assert torch.equal(parameter, named[name])
        assert parameter.grad is None


def test_hooks_and_schedulers_see_the_step():
    model, trainable, gradients = pair()
    optimizer = SGD(model.parameters(), lr=0.3)
    seen = []
    handle = optimizer.register_step_pre_hook(lambda *_: seen.append("hook"))
    apply_gradients(optimizer, trainable, gradients)
    assert seen == ["hook"]
    handle.remove()
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    before = model.weight.detach().clone()
    apply_gradients(optimizer, trainable, gradients)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.15
    torch.testing.assert_close(model.weight, before - 0.3 * gradients["weight"])


def test_gradients_of_another_type_are_converted():
    model = nn.Linear(4, 3).to(torch.bfloat16)
    before = model.weight.detach().clone()
    gradients = {name: torch.ones(p.shape) for name, p in model.named_parameters()}
    apply_gradients(SGD(model.parameters(), lr=0.5), dict(model.named_parameters()), gradients)
    torch.testing.assert_close(model.weight, before - 0.5)
