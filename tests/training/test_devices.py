"""Steps and runs where model and batches lie on another device than what tensors are made on by default."""

import pytest
import torch
from benchmarks.training_models import MODELS
from torch import nn
from torch.optim import SGD

from tacit.clipping import AdaptiveClip, PerLayerClip
from tacit.noise import SeededStream
from tacit.training import fit, private_step
from tests.elsewhere import Elsewhere
from tests.training.cases import blobs, cross_entropy, flat, small_model
from tests.training.test_compiled import Alone


def test_tensors_of_two_devices_do_not_mix():
    with Elsewhere() as device:
        x = device.put(torch.ones(3))
        for mixed in (lambda: x + torch.ones(3), lambda: x.index_select(0, torch.tensor([1])), lambda: x.numpy()):
            with pytest.raises((RuntimeError, TypeError)):
                mixed()
        assert (x * 2 + torch.ones(3, device=x.device) + torch.tensor(1.0))[torch.tensor([0])].device == x.device
        assert x.cpu().numpy().sum() == 3


def _trained(name, device=None):
    case = MODELS[name]
    torch.manual_seed(0)
    inputs, targets, model = case.inputs(8), torch.randint(case.classes, (8,)), case.build()
    if device is not None:
        device.put_module(model)
        inputs = tuple(map(device.put, inputs)) if isinstance(inputs, tuple) else device.put(inputs)
        device.put(targets)
    step = private_step(
        model, SGD([p for p in model.parameters() if p.requires_grad], lr=0.1), cross_entropy, clip_norm=1.0,
        noise_multiplier=1.0, expected_batch_size=8, engine="eager", stream=SeededStream(0))  # fmt: skip
    for _ in range(3):
        step(inputs, targets)
    return flat(model)


@pytest.mark.parametrize("name", ["adult", "mlp784-masked", "mnist", "imdb", "ncf", "lstm"])
def test_steps_there_give_the_weights_of_steps_here(name):
    with Elsewhere() as device:
        there = _trained(name, device)
    assert torch.equal(there, _trained(name))


@pytest.mark.parametrize(
    "changes",
    [{}, {"clipping": PerLayerClip(1.0)}, {"clipping": AdaptiveClip(1.0)}, {"max_physical_batch_size": 5}],
    ids=["flat", "per layer", "adaptive", "physical batches"],
)
@pytest.mark.parametrize("build", [small_model, lambda: nn.Sequential(Alone(4), nn.Linear(4, 2))], ids=["plain", "own"])
def test_runs_there_end_like_runs_here(build, changes):
    def run(device=None, changes=changes):
        changes = dict(changes)
        torch.manual_seed(0)
        model, (x, y) = build(), blobs(100)
        if device is not None:
            device.put_module(model)
            changes["device"] = "cuda:0"
        given = {"noise_multiplier": 1.0, "sample_rate": 0.2, "steps": 3, "delta": 1e-5, "engine": "eager"} | changes
        given |= {} if "clipping" in changes else {"clip_norm": 1.0}
        optimizer = SGD(model.parameters(), lr=0.1)
        fit(model, x, y, loss=cross_entropy, optimizer=optimizer, stream=SeededStream(0), **given)
        return flat(model)

    with Elsewhere() as device:
        there = run(device)
    assert torch.equal(there, run())
