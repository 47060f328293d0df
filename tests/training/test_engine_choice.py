"""engine="auto": recorded where one recording stands for all steps and pays, eager otherwise."""

import pytest
import torch
from torch import nn

from tacit.accounting import Ledger
from tacit.losses import sequence_classification
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.training import engine_choice, fit
from tests.training.cases import blobs, plain_sgd, small_model


class Own(nn.Sequential):
    """A user's class, which may do anything."""


def hooked():
    model = small_model()
    model[0].register_forward_hook(lambda layer, inputs, outputs: outputs)
    return model


def replaced():
    model = small_model()
    model[0].forward = model[0].forward
    return model


@pytest.fixture
def quick_recording(monkeypatch):
    """Timings by which a recorded step costs next to nothing: eager, recording, replays, eager."""
    seconds = iter([9.0, 0.1, 0.1, 0.1, 0.1, 9.0, 9.0])
    monkeypatch.setattr(engine_choice, "_seconds", lambda run: next(seconds))


def trained(model=None, steps=8, **changes):
    model = model if model is not None else small_model()
    settings = {"clip_norm": 0.4, "noise_multiplier": 1.3, "batch_size": 40.0, "ledger": Ledger()} | changes
    x, y = blobs(400)
    return fit(model, x, y, loss=sequence_classification, optimizer=plain_sgd(model), steps=steps, **settings)


@pytest.mark.slow
def test_a_recording_that_pays_runs_and_stays_proven(quick_recording):
    fitted = trained()
    assert fitted.execution.engine == "recorded"
    assert fitted.ledger.standing is Standing.PROVEN
    assert fitted.ledger.steps == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"model": Own(*small_model())},
        {"model": hooked()},
        {"model": replaced()},
        {"stream": SeededStream(5)},
        {"engine": "eager"},
        {"max_physical_batch_size": "auto"},
        {"precision": "bfloat16"},
    ],
    ids=["user's class", "hook", "another forward", "seed", "eager", "physical batches", "bfloat16"],
)
def test_eager_where_a_recording_may_not_stand_for_all_steps(quick_recording, changes):
    assert trained(**changes).execution.engine == "eager"


def test_a_short_run_tries_nothing(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("recorded")

    monkeypatch.setattr(engine_choice, "CompiledSum", fail)
    assert trained().execution.engine == "eager"


def test_a_loss_of_the_user_stays_eager(quick_recording):
    model = small_model()
    x, y = blobs(400)
    calls = []

    def loss(outputs, targets):
        calls.append(len(calls))
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    settings = {"clip_norm": 0.4, "noise_multiplier": 1.3, "batch_size": 40.0, "steps": 3}
    assert fit(model, x, y, loss=loss, optimizer=plain_sgd(model), **settings).execution.engine == "eager"


def test_integers_of_a_random_batch_are_indices_of_every_table():
    inputs, targets = engine_choice.random_batch(({"words": torch.tensor([[7, 9]])}, torch.tensor([[3.5]])), 5)
    assert inputs["words"].tolist() == [[0, 0]] * 5
    assert targets.shape == (5, 1)
