"""`fit` and `make_private` type a model: what mixes is refused by its line, what nobody knows is said."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from tacit.errors import MixesRecords, TacitError
from tacit.standing import Standing
from tacit.training import Functions, fit, make_private
from tacit.verification.records import repeated_records
from tests.training.cases import cross_entropy as ce

SETTINGS = {"clip_norm": 1.0, "noise_multiplier": 1.0}


def records():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(60, 6, generator=generator), torch.arange(60) % 3


BANK = torch.randn(6, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """A network whose forward pass is changed by what the tests need."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.mix = nn.Linear(6, 8), nn.Linear(8, 3), False

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h - h.mean(0) if self.mix else h)


class Bank(Net):
    def forward(self, x):
        return super().forward(x - BANK)


class BufferedBank(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("bank", BANK.clone())

    def forward(self, x):
        return super().forward(x - self.bank)


class Counts(Net):
    def forward(self, x):
        return super().forward(x) * (1.0 + 0.0 * len(x[x[:, 0] > 0]))


class Unruled(Net):
    def forward(self, x):
        return (
            super().forward(x)
            + 0
            * torch.special.bessel_j0(x[:, :1]).detach()
            * torch.block_diag(torch.ones(1)).sum()
            * torch.ops.aten.channel_shuffle(x.detach()[:, :4, None, None], 2).sum((1, 2, 3))[:, None]
        )


class MixesInTraining(Net):
    def __init__(self):
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x):
        return super().forward(x - x.mean(0) if self.part.training else x)


def by_fit(model, *, loss=ce, **settings):
    x, y = records()
    options = {"batch_size": 20, "steps": 6} | SETTINGS | settings
    return fit(model, x, y, loss=loss, optimizer=SGD(model.parameters(), lr=0.1), **options).ledger


def by_loop(model, after_step=lambda private, step: None, epochs=2):
    x, y = records()
    loader = DataLoader(TensorDataset(x, y), batch_size=20)
    private = make_private(model, SGD(model.parameters(), lr=0.1), loader, steps=3 * epochs, **SETTINGS)
    for _ in range(epochs):
        for step, (a, b) in enumerate(private.loader):
            ce(private.model(a), b).backward()
            private.optimizer.step()
            after_step(private, step)
    return private.ledger


@pytest.mark.parametrize("door", [by_fit, by_loop])
def test_a_plain_model_is_proven(door):
    assert door(Net()).standing is Standing.PROVEN


@pytest.mark.parametrize("door", [by_fit, by_loop])
def test_a_bank_outside_of_the_model_is_conditional_with_its_line(door):
    ledger = door(Bank())
    assert ledger.standing is Standing.CONDITIONAL
    assert any("test_record_doors.py:" in fact.says and "unknown origin" in fact.says for fact in ledger.facts.assumed)


@pytest.mark.parametrize("door", [by_fit, by_loop])
def test_a_buffer_is_known(door):
    assert door(BufferedBank()).standing is Standing.PROVEN


def test_what_fit_is_told_to_be_public_is_known():
    weights = torch.tensor([1.0, 2.0, 3.0])
    loss = lambda outputs, y: ce(outputs, y) * weights[y]  # noqa: E731
    assert by_fit(Net(), loss=loss, public={"weights": weights}).standing is Standing.PROVEN


@pytest.mark.parametrize("door", [by_fit, by_loop])
def test_a_number_of_the_batch_is_told_by_its_line(door):
    ledger = door(Counts())
    assert ledger.standing is Standing.CONDITIONAL
    assert "test_record_doors.py:" in ledger.facts["numbers_read"].says


def test_a_loss_that_mixes_records_is_refused_at_its_operation():
    with pytest.raises(MixesRecords) as caught:
        by_fit(Net(), loss=lambda outputs, y: ce(outputs, y) / ce(outputs, y).detach().max())
    assert caught.value.operation == "aten.max"
    assert caught.value.line.startswith("test_record_doors.py:")


def test_an_attribute_that_a_callback_switches_is_followed():
    model = Net()

    def switch(taken, planned):
        model.mix = taken >= 3

    with pytest.raises(TacitError, match=r"aten\.mean"):
        by_fit(model, callbacks=[Functions(on_step=switch)])


@pytest.mark.parametrize("change", ["attribute", "mode", "class", "hook"])
def test_a_program_that_changes_between_steps_is_typed_anew(change):
    model = MixesInTraining() if change == "mode" else Net()
    if change == "mode":
        model.part.eval()
    forward = Net.forward

    def after(private, step):
        if change == "attribute":
            model.mix = True
        elif change == "mode":
            model.part.train()
        elif change == "class":
            Net.forward = lambda self, x: forward(self, x - x.mean(0))
        else:
            model.a.register_forward_hook(lambda module, given, out: out - out.mean(0))

    try:
        with pytest.raises(TacitError, match=r"aten\.mean"):
            by_loop(model, after)
    finally:
        Net.forward = forward


class MixesHalfOfTheTime(Net):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        if self.draw() < 0.3:
            x = 0.5 * x + 0.5 * x.flip(0)
        return super().forward(x)


class MixesAfterSteps(Net):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x - x.mean(0) if self.calls > 12 else x)


class DropsLayers(Net):
    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h if torch.rand(()) < 0.5 else h.square())


def several(door, make, times):
    for _ in range(times):
        door(make())


DRAWS = {"torch": lambda: torch.rand(()), "python": random.random, "numpy": lambda: np.random.rand()}  # noqa: NPY002


@pytest.mark.parametrize("door", [by_fit, by_loop])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_model_that_mixes_now_and_then_is_refused_when_it_does(draw, door):
    for seed in range(3):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        with pytest.raises(TacitError):
            several(door, lambda: MixesHalfOfTheTime(DRAWS[draw]), 4)


@pytest.mark.parametrize("door", [by_fit, by_loop])
def test_a_model_that_mixes_from_a_later_call_on_is_refused(door):
    with pytest.raises(TacitError):
        door(MixesAfterSteps(), **({"steps": 20} if door is by_fit else {"epochs": 8}))


@pytest.mark.parametrize("door", [by_fit, by_loop])
def test_a_model_that_drops_layers_by_its_own_draws_stays_proven(door):
    assert door(DropsLayers()).standing is Standing.PROVEN


def test_a_declaration_is_printed_and_stays():
    x, y = records()
    loader = DataLoader(TensorDataset(x, y), batch_size=20)
    model = Bank()
    private = make_private(model, SGD(model.parameters(), lr=0.1), loader, steps=3, **SETTINGS)
    private.declare("model_rows", "the bank was drawn at random")
    for a, b in private.loader:
        ce(private.model(a), b).backward()
        private.optimizer.step()
    assert private.ledger.standing is Standing.PROVEN
    assert private.facts["model_rows"].says == "the bank was drawn at random"


def test_only_facts_are_declared():
    x, y = records()
    model = Net()
    loader = DataLoader(TensorDataset(x, y), batch_size=20)
    private = make_private(model, SGD(model.parameters(), lr=0.1), loader, steps=3, **SETTINGS)
    with pytest.raises(TacitError, match="fact must be one of"):
        private.declare("luck", "it holds")


class AddsARawGradient(SGD):
    def step(self, closure=None):
        super().step(closure)


UPDATES = {
    "subclass": lambda model: AddsARawGradient(model.parameters(), lr=0.1),
    "pre-hook": lambda model: hooked(model, "register_step_pre_hook"),
    "post-hook": lambda model: hooked(model, "register_step_post_hook"),
}


def hooked(model, register):
    optimizer = SGD(model.parameters(), lr=0.1)
    getattr(optimizer, register)(lambda *given: None)
    return optimizer


@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_by_other_code_is_conditional(kind):
    x, y = records()
    model = Net()
    options = {"batch_size": 20, "steps": 3} | SETTINGS
    ledger = fit(model, x, y, loss=ce, optimizer=UPDATES[kind](model), **options).ledger
    assert ledger.standing is Standing.CONDITIONAL
    assert "facts.declare" in ledger.facts["weights"].says


def loader_of(*values):
    return DataLoader(TensorDataset(*values), batch_size=20)


@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_by_other_code_is_conditional_in_a_loop(kind):
    model = Net()
    private = make_private(model, UPDATES[kind](model), loader_of(*records()), steps=3, **SETTINGS)
    for a, b in private.loader:
        ce(private.model(a), b).backward()
        private.optimizer.step()
    assert private.ledger.standing is Standing.CONDITIONAL
    assert private.facts["weights"].how == "assumed"


REPEATED = {
    "indices": lambda data: Subset(data, [0, 1, 2, 2, *range(3, 40)]),
    "joined": lambda data: ConcatDataset([data, data]),
    "subset beside its whole": lambda data: ConcatDataset([data, Subset(data, [3])]),
    "subset of a subset": lambda data: Subset(Subset(data, list(range(30))), [4, 4, *range(20)]),
    "windows": lambda data: TensorDataset(torch.randn(65).unfold(0, 6, 1), torch.arange(60) % 3),
    "one row": lambda data: TensorDataset(torch.randn(1, 6).expand(60, 6), torch.arange(60) % 3),
}


@pytest.mark.parametrize("kind", REPEATED)
def test_a_record_at_several_places_is_not_one_unit(kind):
    data = REPEATED[kind](TensorDataset(*records()))
    model = Net()
    loader = DataLoader(data, batch_size=20)
    private = make_private(model, SGD(model.parameters(), lr=0.1), loader, steps=3, **SETTINGS)
    assert private.ledger.standing is Standing.CONDITIONAL
    assert "unit" in {fact.id for fact in private.facts.assumed}


def test_records_in_any_order_of_memory_are_units():
    x, y = records()
    for data in (TensorDataset(x.T.contiguous().T, y), Subset(TensorDataset(x, y), list(range(59, -1, -1)))):
        assert not repeated_records(data)
    halves = [Subset(TensorDataset(x, y), range(30)), Subset(TensorDataset(x, y), range(30, 60))]
    assert not repeated_records(ConcatDataset(halves))
    assert not repeated_records({"x": x.numpy()[::-1], "y": y})
