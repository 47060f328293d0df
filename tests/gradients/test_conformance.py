"""Whole models against a float64 loop over examples, within 1e-5: the papers' networks and those of the benchmark."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tacit.gradients import clipped_sum
from tests.gradients.cases import assert_same, cross_entropy, oracle

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from training_models import MODELS, Transformer, adapted, resnet, values, words

QUICK = ["adult", "logistic", "mlp256", "mlp784", "mlp784-masked", "mnist", "imdb", "ncf", "lstm"]
# Every layer of the benchmark's models that are too large for a float64 loop, at smaller sizes.
SIZES = {"words": 200, "width": 32, "layers": 2, "length": 16}
SMALLER = {
    "transformer": replace(
        MODELS["transformer"], build=lambda: Transformer(**SIZES), inputs=words(200, 16), classes=200
    ),
    "transformer-lora": replace(
        MODELS["transformer-lora"], build=lambda: adapted(**SIZES), inputs=words(200, 16), classes=200
    ),
    "resnet18": replace(MODELS["resnet18"], build=lambda: resnet(32), inputs=values(3, 16, 16)),
    "resnet18-torchvision": replace(MODELS["resnet18-torchvision"], inputs=values(3, 16, 16)),
}


def conforms(name, batch, clip_norm, dtype=torch.float32):
    case = (MODELS | SMALLER)[name]
    if case.library:
        pytest.importorskip(case.library)
    torch.manual_seed(0)
    model, inputs = case.build().to(dtype), case.inputs(batch)
    inputs = inputs.to(dtype) if isinstance(inputs, torch.Tensor) and inputs.is_floating_point() else inputs
    targets = torch.randint(case.classes, (batch,))
    expected = oracle(model, cross_entropy, inputs, targets, clip_norm)
    found = clipped_sum(model, cross_entropy, inputs, targets, clip_norm=clip_norm)
    assert expected[1].min() > 0
    assert_same(found, expected, clip_norm=clip_norm, rtol=1e-5)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("batch", [4, 1])
def test_small_networks_equal_a_float64_loop(name, batch):
    conforms(name, batch, 0.5)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in QUICK])
def test_large_networks_equal_a_float64_loop(name):
    """In double precision: a maximum or a ReLU near a tie may fall either way in single, by the order of sums."""
    conforms(name, 2, 0.5, torch.float64)
