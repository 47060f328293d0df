"""A run may end by what it released: it then costs its plan, whatever ended it."""

import signal

import pytest
import torch
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Filter, How, Ledger, accountant
from tacit.budget import Registry
from tacit.mechanisms import Gaussian
from tacit.opacus import PrivacyEngine
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import Functions, fit, make_private
from tests.training.cases import blobs, cross_entropy, small_model

STEP = Gaussian(1.3).poisson(0.1)
DELTA = 1e-5


def private(steps=30, ledger=None, **changes):
    model = small_model()
    loader = DataLoader(TensorDataset(*blobs(seed=7)), batch_size=20)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.3, "steps": steps, "ledger": ledger} | changes
    return make_private(model, SGD(model.parameters(), lr=0.1), loader, **settings)


def go(parts, steps):
    """A loop that ends after `steps`, as one would that has seen enough."""
    while steps:
        for x, y in parts.loader:
            cross_entropy(parts.model(x), y).backward()
            parts.optimizer.step()
            steps -= 1
            if not steps:
                break
    return parts


def epsilon(ledger, steps=None):
    return accountant("rdp")(ledger if steps is None else STEP * steps).epsilon(DELTA)


def interrupted(ledger, checkpoint=None, resume=False, at=7):
    def on_step(taken, planned):
        if taken == at:
            signal.raise_signal(signal.SIGINT)

    x, y = blobs(seed=7)
    model = small_model()
    return fit(
        model, x, y, loss=cross_entropy, optimizer=SGD(model.parameters(), lr=0.1), clip_norm=1.0,
        noise_multiplier=1.3, batch_size=20, steps=30, ledger=ledger, checkpoint=checkpoint, resume=resume,
        callbacks=[Functions(on_step=on_step)],
    )  # fmt: skip


def test_a_loop_that_ends_early_states_its_plan_and_stays_proven():
    parts = go(private(), 7)
    for stated in (parts.ledger, parts.ledger.copy(), Ledger.from_spec(parts.ledger.spec())):
        assert stated.standing is Standing.PROVEN
        assert epsilon(stated) == epsilon(stated, 30)
    assert parts.ledger.steps == 7
    assert [entry.steps for entry in parts.ledger.not_taken] == [23]
    absorbing = Ledger()
    absorbing.absorb(parts.ledger)
    assert epsilon(absorbing) == epsilon(absorbing, 30)
    go(parts, 23)
    assert not parts.ledger.not_taken
    assert [entry.steps for entry in parts.ledger.entries] == [30]
    assert epsilon(parts.ledger) == epsilon(parts.ledger, 30)


def test_a_run_that_took_no_step_costs_nothing():
    assert not private().ledger.mechanism.steps


@pytest.mark.parametrize("cover", ["declared", "fixed", "filter"])
def test_where_the_end_is_declared_or_paid_for_only_what_ran_counts(cover):
    ledger = Ledger(scope="fixed" if cover == "fixed" else None)
    if cover == "filter":
        ledger.reserve(Filter("renyi", Epsilon(9.0, DELTA), plan=STEP * 60))
    parts = private(ledger=ledger)
    if cover == "declared":
        parts.facts.declare("steps", "a limit of 7 steps, fixed beforehand")
    go(parts, 7)
    assert not ledger.not_taken
    assert ledger.standing is Standing.PROVEN
    if cover == "declared":
        assert epsilon(ledger) == epsilon(ledger, 7)
        assert ledger.facts["steps"].how is How.DECLARED


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_fit_that_a_person_interrupts_states_its_plan(checkpoint, tmp_path):
    ledger, path = Ledger(), tmp_path / "run.safetensors" if checkpoint else None
    with pytest.raises(KeyboardInterrupt):
        interrupted(ledger, path)
    assert epsilon(ledger) == epsilon(ledger, 30)
    if checkpoint:  # It goes on: nothing counts twice but the steps that may have been lost.
        interrupted(ledger, path, resume=True, at=0)
        assert not ledger.not_taken
        assert epsilon(ledger, 30) <= epsilon(ledger) <= epsilon(ledger, 40)


def test_more_steps_than_planned_are_conditional_unless_declared():
    parts = go(private(steps=5), 5)
    assert parts.ledger.standing is Standing.PROVEN
    go(parts, 1)
    assert [fact.id for fact in parts.facts.assumed] == ["steps"]
    assert parts.ledger.standing is Standing.CONDITIONAL
    assert "epochs" in parts.facts["steps"].says
    parts.facts.declare("steps", "six steps, fixed beforehand")
    assert parts.ledger.standing is Standing.PROVEN
    assert epsilon(parts.ledger) == epsilon(parts.ledger, 6)


def test_a_second_run_neither_pays_for_the_first_nor_forgets_its_plan():
    ledger = Ledger()
    first = go(private(ledger=ledger), 7)
    go(private(steps=10, ledger=ledger), 10)
    assert epsilon(ledger) == epsilon(ledger, 40)
    go(first, 3)  # The first goes on: its plan is in the ledger already.
    assert epsilon(ledger) == epsilon(ledger, 40)
    go(first, 21)
    assert epsilon(ledger) == epsilon(ledger, 41)
    assert "steps" in {fact.id for fact in ledger.facts.assumed}


@pytest.mark.slow
def test_a_later_run_is_calibrated_beside_the_plan_of_the_first():
    ledger = Ledger()
    go(private(ledger=ledger), 7)
    target = Epsilon(2 * float(epsilon(ledger)), DELTA)
    later = private(steps=10, ledger=ledger, noise_multiplier=None, target=target, accountant="rdp")
    go(later, 10)
    assert 0.99 * target.epsilon <= epsilon(ledger) <= target.epsilon


def test_interleaved_runs_each_count_their_plan():
    ledger = Ledger()
    with ledger.planned():
        first, second = private(ledger=ledger), private(steps=10, ledger=ledger)
    go(first, 7), go(second, 10)
    assert epsilon(ledger) == epsilon(ledger, 40)


@pytest.mark.slow_cases("file")
@pytest.mark.parametrize("form", ["live", "file"])
def test_a_run_that_goes_on_takes_over_the_plan(form, tmp_path):
    first = go(private(), 7)
    earlier = first.ledger
    if form == "file":
        earlier.save(tmp_path / "ledger.json")
        earlier = Ledger.load(tmp_path / "ledger.json")
    later = private()
    later.resume(first.model.state_dict(), earlier)
    assert epsilon(later.ledger) == epsilon(earlier, 30)
    go(later, 23)
    assert later.ledger.standing is Standing.PROVEN
    assert epsilon(later.ledger) == epsilon(earlier, 30)
    go(later, 1)
    assert later.ledger.standing is not Standing.PROVEN


def test_a_longer_plan_after_outputs_is_conditional():
    first = go(private(), 7)
    later = private(steps=60)
    later.resume(first.model.state_dict(), first.ledger)
    assert later.ledger.standing is Standing.CONDITIONAL


def test_an_opacus_checkpoint_keeps_what_was_planned(tmp_path):
    def made():
        engine, model = PrivacyEngine(), small_model()
        loader = DataLoader(TensorDataset(*blobs(seed=7)), batch_size=20)
        optimizer = SGD(model.parameters(), lr=0.1)
        settings = {"noise_multiplier": 1.3, "max_grad_norm": 1.0, "epochs": 3}
        return engine, engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **settings)

    def take(parts, steps):
        model, optimizer, loader = parts
        for _, (x, y) in zip(range(steps), loader, strict=False):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    engine, parts = made()
    take(parts, 7)
    assert epsilon(engine.ledger) == epsilon(engine.ledger, 30)
    engine.save_checkpoint(path=tmp_path / "run", module=parts[0])
    again, others = made()
    again.load_checkpoint(path=tmp_path / "run", module=others[0])
    assert epsilon(again.ledger) == epsilon(again.ledger, 30)
    for _ in range(2):
        take(others, 10)
    take(others, 3)
    assert epsilon(again.ledger) == epsilon(again.ledger, 30)
    assert again.ledger.steps == 30


@pytest.mark.parametrize("own", [False, True], ids=["ledger of the registry", "ledger of its own"])
def test_a_registry_holds_the_plan_of_a_loop_that_ends_early(tmp_path, own):
    dataset = Registry.create(tmp_path / "budget.sqlite").declare("survey", unit="record")
    if own:
        ledger = go(private(), 7).ledger
        dataset.reserve(label="loop").settle(ledger)
    else:
        ledger = dataset.ledger("loop")
        go(private(ledger=ledger), 7)
        ledger.settle()
    total = dataset.total()
    assert total.standing is Standing.PROVEN
    assert epsilon(total) == epsilon(total, 30) == epsilon(ledger)


@pytest.mark.slow
def test_a_loop_of_opacus_without_a_plan_counts_what_it_takes():
    engine, model = PrivacyEngine(), small_model()
    loader = DataLoader(TensorDataset(*blobs(seed=7)), batch_size=20)
    optimizer = SGD(model.parameters(), lr=0.1)
    settings = {"noise_multiplier": 1.3, "max_grad_norm": 1.0}
    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **settings)
    for passes in (1, 2, 3):
        for x, y in loader:
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        assert engine.ledger.standing is Standing.PROVEN
        assert epsilon(engine.ledger) == epsilon(engine.ledger, 10 * passes)
    assert "no output decides" in engine.ledger.facts["steps"].says
