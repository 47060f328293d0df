"""Whole models against a float64 loop over examples, within 1e-5: the papers' networks and those of the benchmark."""

import sys
from pathlib import Path

import pytest
import torch

from tacit.gradients import clipped_sum
from tests.gradients.cases import assert_same, cross_entropy, oracle

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from training_models import MODELS

QUICK = ["adult", "logistic", "mlp256", "mlp784", "mlp784-masked", "mnist", "imdb", "ncf", "lstm"]
LARGE = [name for name in MODELS if name not in QUICK]


def conforms(name, batch, clip_norm):
    case = MODELS[name]
    torch.manual_seed(0)
    model, inputs = case.build(), case.inputs(batch)
    targets = torch.randint(case.classes, (batch,))
    expected = oracle(model, cross_entropy, inputs, targets, clip_norm)
    found = clipped_sum(model, cross_entropy, inputs, targets, clip_norm=clip_norm)
    assert expected[1].min() > 0
    assert_same(found, expected, clip_norm=clip_norm, rtol=1e-5)


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("batch", [4, 1])
def test_small_networks_equal_a_float64_loop(name, batch):
    conforms(name, batch, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_networks_equal_a_float64_loop(name):
    conforms(name, 2, 0.5)
