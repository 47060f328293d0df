"""The model probe refuses modules that keep or mix records, and no others."""

import copy
import gc
import random
import sys
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tacit.clipping import FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients import ClippedSum, clipped_sum
from tacit.gradients.model_probe import ModelProbe
from tacit.verification.reads import tensors_alive
from tests.gradients.cases import cross_entropy
from tests.gradients.modules import GOOD, WRONG, Net, wrong
from tests.refusals import sentence, stored

X = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(24) % 3


@pytest.mark.parametrize("name", WRONG)
def test_a_module_that_keeps_or_mixes_records_is_refused(name):
    torch.manual_seed(0)
    model = WRONG[name]()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        UnsupportedModel,
        match=r"follows the records|mixes the examples|must treat the records|would carry private data",
    ) as caught:
        clipped_sum(model, cross_entropy, X, Y, clip_norm=1.0)
    assert sentence(caught.value) == stored("modules", name)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", GOOD)
def test_a_module_that_treats_records_apart_is_accepted(name):
    torch.manual_seed(0)
    model = GOOD[name]()
    clipped_sum(model, cross_entropy, X, Y, clip_norm=1.0)
    for _ in range(5):
        assert ModelProbe(model)(X, thorough=True)


def test_a_dependence_on_one_fixed_row_is_always_found():
    class First(nn.Linear):
        def forward(self, x):
            return super().forward(x + x[:1])

    for _ in range(20):
        with pytest.raises(UnsupportedModel, match="one record meets others"):
            ModelProbe(First(6, 3))(X)


MIXING = ("mean of the batch", "largest of the batch", "attention with noise", "mixing in backward alone", "median")


@pytest.mark.parametrize("name", [*MIXING, "codebook", "last batch", "Python float", "running mean"])
def test_replaced_halves_refute_without_the_types(name, without_types):
    with pytest.raises(UnsupportedModel, match=r"follows the records|mixes the examples"):
        ModelProbe(WRONG[name]())(X, thorough=True)


KEPT = []


def _kept_for_the_next(m, x):
    KEPT.append(torch.tanh(x[:, :1]))
    return Net.forward(m, x + KEPT[0][: len(x)])


def test_a_value_of_an_earlier_pass_is_met_wherever_it_was_kept():
    KEPT.clear()
    with pytest.raises(UnsupportedModel, match=r"got memory at .*an earlier pass computed from its records"):
        ModelProbe(wrong(_kept_for_the_next)())(X)


def test_a_probe_leaves_generators_and_model_alone():
    model = GOOD["noise and dropout"]()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    ModelProbe(model)(X, thorough=True)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert states[2] == random.getstate()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_state_that_changes_alike_is_cleared_by_name():
    probe = ModelProbe(GOOD["calls with annealing"]())
    probe(X)
    assert probe.cleared == {"calls"}


def test_a_model_that_cannot_be_copied_is_put_back_as_it_was():
    class Held(nn.Linear):
        def __init__(self):
            super().__init__(6, 3)
            self.calls, self.log, self.graph = 0, [], torch.ones(1, requires_grad=True) * 2

        def forward(self, x):
            self.calls += 1
            self.log.append(self.calls)
            return super().forward(x)

    model = Held()
    ModelProbe(model)(X, thorough=True)
    assert (model.calls, model.log) == (0, [])


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, t: cross_entropy(o, t) * (cross_entropy(o, t).detach() / cross_entropy(o, t).detach().mean()),
        lambda o, t: cross_entropy(o, t) + 0.1 * torch.randn(len(o)) * o.detach().mean(),
        lambda o, t: cross_entropy(o, t[torch.randperm(len(t))]),
        lambda o, t: F.cross_entropy(
            F.normalize(o, dim=1) @ F.normalize(o, dim=1).T, torch.arange(len(o)), reduction="none"
        ),
    ],
)
def test_a_loss_that_mixes_examples_is_refused_even_if_it_draws(loss):
    with pytest.raises(UnsupportedModel, match="must treat the records"):
        clipped_sum(nn.Linear(6, 3), loss, X, Y, clip_norm=1.0)


def test_a_loss_that_keeps_a_statistic_is_refused():
    kept = {"mean": torch.zeros(3)}

    def loss(outputs, targets):
        kept["mean"] = 0.5 * kept["mean"] + 0.5 * outputs.detach().mean(0)
        return cross_entropy(outputs - kept["mean"], targets)

    with pytest.raises(UnsupportedModel, match=r"aten.mean at .*its result is of the whole batch"):
        clipped_sum(nn.Linear(6, 3), loss, X, Y, clip_norm=1.0)


def test_a_loss_that_takes_probabilities_alone_is_accepted():
    model = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid(), nn.Flatten(0))
    loss = nn.BCELoss(reduction="none")
    clipped_sum(model, loss, X, (Y == 1).float(), clip_norm=1.0)


def test_random_models_are_compared_with_a_loop_that_draws_alike():
    engine = ClippedSum(GOOD["noise and dropout"](), FlatClip(1.0))
    assert engine(cross_entropy, X, Y)[1].shape == (24,)


def test_state_in_a_queue_is_found():
    class Queue(nn.Linear):
        def __init__(self):
            super().__init__(6, 3)
            self.queue = deque(maxlen=2)

        def forward(self, x):
            self.queue.append(x.detach().mean())
            return super().forward(x)

    with pytest.raises(UnsupportedModel, match="queue"):
        ModelProbe(Queue())(X)


def test_a_probe_gives_no_reference_away():
    """torch's reduction of a generator would: a process that copied one often enough died without a sentence."""

    class Drawing(nn.Linear):
        def __init__(self):
            super().__init__(6, 3)
            self.generator = torch.Generator().manual_seed(1)

        def forward(self, x):
            return super().forward(x) + torch.randn(3, generator=self.generator)

    probe = ModelProbe(Drawing())
    probe(X)
    gc.collect()
    held = sys.getrefcount(None)
    for _ in range(8):
        probe(X)
    gc.collect()
    assert sys.getrefcount(None) > held - 8


def test_the_copy_of_a_generator_draws_alike_and_apart():
    generator = torch.Generator().manual_seed(3)
    torch.rand(5, generator=generator)
    copied = copy.deepcopy(generator)
    drawn = torch.rand(4, generator=copied)
    torch.rand(1, generator=torch.Generator().manual_seed(9))
    assert torch.equal(torch.rand(4, generator=generator), drawn)


def test_what_a_sampled_check_finds_alike_becomes_no_public_state(monkeypatch):
    """Only the types may say that state follows no record; a model that they cannot type is conditional anyway."""
    monkeypatch.setattr("tacit.gradients.model_probe.check_neighbours", lambda *_, **__: {"weight"})
    probe = ModelProbe(nn.Linear(6, 3))
    probe(X, thorough=True)
    assert probe.typed.operations
    assert "weight" not in probe.cleared


def test_a_tensor_at_the_address_of_one_that_is_gone_was_not_there():
    gone = torch.zeros(3)
    was_there, address = tensors_alive(), id(gone)
    assert was_there(gone)
    del gone
    later = [torch.zeros(3) for _ in range(100)]
    assert address in map(id, later)
    assert not any(map(was_there, later))
