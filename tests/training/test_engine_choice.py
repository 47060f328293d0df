"""engine="auto": recorded where one recording stands for all steps and pays, eager otherwise."""

import itertools
import random
import time

import numpy as np
import pytest
import torch
from torch import nn

from tacit.accounting import Ledger
from tacit.clipping import FlatClip
from tacit.gradients import ClippedSum
from tacit.losses import sequence_classification
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.training import Callback, compile, fit, replayed_passes
from tacit.training.compile import CompiledSum
from tests.training import cases
from tests.training.cases import blobs, plain_sgd, small_model


class Own(nn.Sequential):
    """A user's class, which may do anything."""


class Counting(Own):
    """Its second half depends on how often it ran."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1.0 if self.calls % 2 else 0.5)


class Skipping(Own):
    """A draw of Python decides which layers run."""

    def forward(self, x):
        return super().forward(x) * (1.0 if random.random() < 0.5 else 0.5)


class Drawing(Own):
    """A draw of torch decides it."""

    def forward(self, x):
        return super().forward(x) * (1.0 if torch.rand(()) < 0.5 else 0.5)


class Reading(Own):
    """A number of the records decides it."""

    def forward(self, x):
        return super().forward(x) if float(x.detach().abs().sum()) > 0 else x[:, :3]


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

    def seconds(run):
        return next(seconds.left)

    def again():
        seconds.left = iter([9.0, 0.1, 0.1, 0.1, 0.1, 9.0, 9.0])

    seconds.again = again
    again()
    monkeypatch.setattr(replayed_passes, "_seconds", seconds)


def trained(model=None, steps=8, **changes):
    model = model if model is not None else small_model()
    settings = {"clip_norm": 0.4, "noise_multiplier": 1.3, "batch_size": 40.0, "ledger": Ledger()} | changes
    settings = {"loss": sequence_classification} | settings
    x, y = blobs(400)
    return fit(model, x, y, optimizer=plain_sgd(model), steps=steps, **settings)


def test_a_recording_that_pays_runs_and_stays_proven(quick_recording):
    fitted = trained()
    assert fitted.execution.engine == "recorded"
    assert fitted.ledger.standing is Standing.PROVEN
    assert fitted.ledger.steps == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"model": Counting(*small_model())},
        {"model": Skipping(*small_model())},
        {"model": Drawing(*small_model())},
        {"model": Reading(*small_model())},
        {"model": hooked()},
        {"model": replaced()},
        {"stream": SeededStream(5)},
        {"engine": "eager"},
        {"max_physical_batch_size": "auto"},
        {"precision": "bfloat16"},
    ],
    ids=[
        "counter",
        "Python's draw",
        "torch's draw",
        "number read",
        "hook",
        "another forward",
        "seed",
        "eager",
        "physical batches",
        "bfloat16",
    ],
)
def test_eager_where_a_recording_may_not_stand_for_all_steps(quick_recording, changes):
    assert trained(**changes).execution.engine == "eager"


SCALE = {"of losses": 1.0}


def own_loss(outputs, targets):
    return SCALE["of losses"] * nn.functional.cross_entropy(outputs, targets, reduction="none")


class At(Callback):
    """Runs `change` after the fourth step."""

    def __init__(self, change):
        self.change = change

    def on_step(self, taken, planned):
        if taken == 4:
            self.change()


def test_code_of_the_user_is_recorded_once_two_typed_passes_ran_the_same_operations(quick_recording):
    fitted = trained(Own(*small_model()), loss=own_loss)
    assert fitted.execution.engine == "recorded"
    assert fitted.ledger.standing is Standing.PROVEN


def test_a_schedule_that_a_loss_reads_ends_the_recording(quick_recording, monkeypatch):
    changed = At(lambda: monkeypatch.setitem(SCALE, "of losses", 2.0))
    assert trained(loss=own_loss, callbacks=[changed]).execution.engine == "eager"


def test_an_attribute_of_the_model_that_changes_ends_the_recording(quick_recording):
    model = Own(*small_model(), nn.Dropout(0.1))
    changed = At(lambda: setattr(model[-1], "p", 0.3))
    assert trained(model, loss=own_loss, callbacks=[changed]).execution.engine == "eager"


def test_a_recorded_engine_records_what_an_attribute_has_become():
    model = nn.Sequential(nn.Linear(5, 3), nn.Threshold(-100.0, 0.0))
    clipped = ClippedSum(model, FlatClip(1.0))
    recorded = CompiledSum(clipped, sequence_classification, 8.0, compiler=False)
    x, y = torch.randn(8, 5), torch.zeros(8, dtype=torch.long)
    for threshold in (-100.0, 0.0):
        model[1].threshold = threshold
        assert recorded.changed() == (threshold == 0.0)
        total = recorded(x, y)
        assert torch.allclose(total.flat, clipped(sequence_classification, x, y)[0].flat, atol=1e-6)


CALLS, RNG, START = itertools.count(), np.random.default_rng(0), time.time()
ONCE = np.ones(1)


def counted(outputs, targets):
    return 0.99 ** (next(CALLS) // 1000) * own_loss(outputs, targets)


def drawn(outputs, targets):
    return (1.0 if RNG.random() < 0.999 else 0.5) * own_loss(outputs, targets)


def timed(outputs, targets):
    return (1.0 if time.time() < START + 1e6 else 0.5) * own_loss(outputs, targets)


@pytest.mark.parametrize("loss", [counted, drawn, timed])
def test_a_loss_that_may_answer_otherwise_at_its_next_call_is_not_recorded(quick_recording, loss):
    assert trained(loss=loss).execution.engine == "eager"


def of_array(outputs, targets):
    return float(ONCE[0]) * own_loss(outputs, targets)


def of_module(outputs, targets):
    return cases.SCALE * own_loss(outputs, targets)


def test_an_array_and_a_module_that_a_loss_reads_end_the_recording(quick_recording, monkeypatch):
    monkeypatch.setattr(cases, "SCALE", 1.0, raising=False)
    changes = {of_array: lambda: ONCE.fill(2.0), of_module: lambda: monkeypatch.setattr(cases, "SCALE", 2.0)}
    for loss, change in changes.items():
        for callbacks, engine in (([], "recorded"), ([At(change)], "eager")):
            replayed_passes._seconds.again()
            assert trained(loss=loss, callbacks=callbacks).execution.engine == engine


def test_a_short_run_tries_nothing(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("recorded")

    monkeypatch.setattr(compile, "CompiledSum", fail)
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
    inputs, targets = replayed_passes.random_batch(({"words": torch.tensor([[7, 9]])}, torch.tensor([[3.5]])), 5)
    assert inputs["words"].tolist() == [[0, 0]] * 5
    assert targets.shape == (5, 1)
