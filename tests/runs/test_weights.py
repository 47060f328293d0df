"""Weights of records and classes: they enter the loss, and no weight moves a clipped sum beyond the clipping norm."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.clipping import FlatClip
from tacit.data import from_arrays
from tacit.errors import InvalidInput
from tacit.gradients import ClippedSum
from tacit.runs import config_from_table
from tacit.runs.builders import loss_of, targets_of
from tacit.runs.methods import method_of
from tacit.runs.run import train_by

SETTINGS = {"epsilon": 4.0, "delta": 1e-3, "epochs": 1, "batch_size": 20, "engine": "eager"}


def data(task="classification", rows=60):
    generator = np.random.default_rng(0)
    x = generator.uniform(0, 1, (rows, 3)).astype(np.float32)
    answers = (x[:, 0] > 0.5).astype(int) if task == "classification" else x[:, 0]
    kind = {"classes": ["no", "yes"]} if task == "classification" else {"target_range": (0, 1)}
    made = from_arrays(x, y_train=answers, bounds=(0, 1), task=task, **kind)
    return replace(made, weights=generator.uniform(0, 1, len(made.y_train)).astype(np.float32))


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("weight", [0.0, 1e-3, 1.0, 1e30, float("inf"), float("nan")])
def test_one_record_moves_the_clipped_sum_by_at_most_the_norm_whatever_its_weight(task, weight):
    """Neighbours differ in one record, for weights that no declared bound would even let through."""
    dataset, clip_norm = data(task), 0.7
    config = config_from_table(SETTINGS | ({"class_weights": {"yes": 1e6}} if task == "classification" else {}))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2 if task == "classification" else 1)
    clipped, loss = ClippedSum(model, FlatClip(clip_norm)), loss_of(dataset, config)
    inputs, targets = torch.from_numpy(dataset.x_train), torch.from_numpy(targets_of(dataset))
    targets[0, 1] = weight
    whole, without = clipped(loss, inputs, targets)[0], clipped(loss, inputs[1:], targets[1:])[0]
    assert (whole.flat - without.flat).norm() <= clip_norm * (1 + 1e-5)


def test_a_weight_multiplies_the_loss_of_its_record_and_class():
    dataset = data()
    outputs, targets = torch.randn(len(dataset.y_train), 2), torch.from_numpy(targets_of(dataset))
    plain = loss_of(replace(dataset, weights=None))(outputs, torch.from_numpy(dataset.y_train))
    config = config_from_table(SETTINGS | {"class_weights": {"yes": 7.0}})
    found = loss_of(dataset, config)(outputs, targets)
    factor = torch.from_numpy(dataset.weights * np.where(dataset.y_train == 1, 7.0, 1.0))
    assert torch.allclose(found.double(), plain.double() * factor)


@pytest.mark.slow
def test_a_weighted_run_is_as_proven_as_any_other(tmp_path):
    config = config_from_table(SETTINGS | {"class_weights": {"yes": 3.0}})
    run = train_by(method_of(config), config, data(), out=tmp_path / "run")
    assert run.card.ledger.standing == "proven"
    assert all(fact.how != "assumed" for fact in run.card.ledger.facts)


def test_a_convex_run_takes_both_kinds_of_weights(tmp_path):
    config = config_from_table(SETTINGS | {"method": "objective", "class_weights": {"yes": 3.0}})
    run = train_by(method_of(config), config, data(), out=tmp_path / "run")
    assert run.card.ledger.standing == "proven"


@pytest.mark.parametrize("given", ["class_weights", "weights"])
def test_a_method_that_would_ignore_weights_is_refused(given, tmp_path):
    settings = SETTINGS | {"method": "vi"} | ({"class_weights": {"yes": 3.0}} if given == "class_weights" else {})
    dataset = data() if given == "weights" else replace(data(), weights=None)
    config = config_from_table(settings)
    with pytest.raises(InvalidInput, match="method must be gradient or objective for weighted records or classes"):
        train_by(method_of(config), config, dataset, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"maybe": 2.0}, "key of class_weights must be one of no, yes"),
        ({"yes": 0.0}, r"weight of class 'yes' of \[class_weights\] must be in"),
        (3.0, "class_weights must be a table"),
    ],
)
def test_bad_class_weights(weights, sentence, tmp_path):
    with pytest.raises(InvalidInput, match=sentence):
        loss_of(data(), config_from_table(SETTINGS | {"class_weights": weights}))
