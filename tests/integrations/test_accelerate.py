"""Private training under accelerate equals that without it, in any order of the calls."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.noise import SeededStream
from tacit.training import make_private
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

accelerate = pytest.importorskip("accelerate")

PRIVACY = {"clip_norm": 1.0, "noise_multiplier": 1.0, "epochs": 1}


def parts(seed=0):
    model = small_model(seed)
    return model, plain_sgd(model), DataLoader(TensorDataset(*blobs()), batch_size=20)


def train(private, backward=None):
    for x, y in private.loader:
        private.optimizer.zero_grad()
        losses = cross_entropy(private.model(x), y)
        backward(losses) if backward else losses.backward()
        private.optimizer.step()
    return flat(private.model.module), private.ledger


@pytest.mark.slow_cases
@pytest.mark.parametrize("prepared", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_any_order_gives_the_weights_and_the_ledger_of_a_loop_without_accelerate(prepared):
    from tacit.integrations.accelerate import prepare

    accelerator = accelerate.Accelerator(cpu=True)
    given = [accelerator.prepare(part) if i in prepared else part for i, part in enumerate(parts())]
    weights, ledger = train(prepare(accelerator, *given, **PRIVACY, stream=SeededStream(3)), accelerator.backward)
    expected, alone = train(make_private(*parts(), **PRIVACY, stream=SeededStream(3)))
    assert torch.equal(weights, expected)
    assert ledger.steps == alone.steps == 10


def test_private_parts_may_be_prepared_afterwards():
    accelerator = accelerate.Accelerator(cpu=True)
    private = make_private(*parts(), **PRIVACY)
    model, optimizer, loader = accelerator.prepare(private.model, private.optimizer, private.loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(cross_entropy(model(x), y))
        optimizer.step()
    assert private.ledger.steps == 10
    assert private.ledger.standing.value == "proven"


def test_accumulation_and_scaled_losses_are_refused():
    from tacit.integrations.accelerate import prepare

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    with pytest.raises(TrainingMisuse, match="gradient_accumulation_steps must be 1"):
        prepare(accelerator, *parts(), **PRIVACY)
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.state._mixed_precision = "fp16"
    try:
        with pytest.raises(InvalidInput, match="mixed_precision must be 'no' or 'bf16'"):
            prepare(accelerator, *parts(), **PRIVACY)
    finally:
        accelerator.state._mixed_precision = "no"
