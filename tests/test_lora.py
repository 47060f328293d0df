"""Adapters: the function they start as, what is trained, what merging gives, and that the frozen base costs nothing."""

import pytest
import torch
from torch import nn

from tacit.clipping import FlatClip
from tacit.errors import InvalidInput
from tacit.gradients import ClippedSum
from tacit.lora import LoraLinear, add_lora, merge_lora
from tests.gradients.test_rules import check, floats, readout


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.ModuleDict({"head": nn.Linear(7, 3)})["head"])


def adapted(**options):
    model = add_lora(mlp(), rank=2, alpha=4.0, **options)
    for layer in model.modules():
        if isinstance(layer, LoraLinear):
            nn.init.normal_(layer.up)
    return model


def test_adapters_start_as_the_model_itself():
    x = floats(6, 5)
    assert torch.equal(add_lora(mlp(), rank=2)(x), mlp()(x))


def test_only_adapters_and_what_is_kept_are_trained():
    names = [name for name, p in adapted(patterns=["0"], keep=["2"]).named_parameters() if p.requires_grad]
    assert names == ["0.down", "0.up", "2.weight", "2.bias"]


def test_merging_gives_the_same_function_in_the_old_architecture():
    model, x = adapted(), floats(6, 5)
    merged = merge_lora(model)
    torch.testing.assert_close(merged(x), model(x))
    assert [type(layer) for layer in merged] == [nn.Linear, nn.Tanh, nn.Linear]
    assert isinstance(model[0], LoraLinear)


@pytest.mark.parametrize("inputs", [floats(6, 5), floats(6, 3, 5)])
def test_gradients_of_adapters(inputs):
    check(adapted(keep=["2"], patterns=["0"]), inputs, torch.zeros(6))


def test_frozen_weights_are_not_captured():
    engine = ClippedSum(adapted(), FlatClip(1.0))
    trace = engine.trace(readout, floats(6, 5), torch.zeros(6))
    assert {name for operation in trace.operations for name in operation[1:]} == set(engine.trainable)


@pytest.mark.parametrize(
    "options", [{"rank": 0}, {"alpha": -1.0}, {"patterns": ["nothing"]}, {"keep": ["nothing"]}, {"rank": 1.5}]
)
def test_bad_input(options):
    with pytest.raises(InvalidInput):
        add_lora(mlp(), **options)
