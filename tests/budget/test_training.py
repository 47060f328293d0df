"""Training charges a registry before its first batch, however it ends."""

import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit import BudgetExceeded, Epsilon, InvalidInput, PrivacyEngine, fit, make_private
from tacit.accounting import Ledger, accountant
from tacit.budget import Registry
from tacit.errors import PrivacyWarning
from tacit.mechanisms import Gaussian
from tacit.standing import Standing

X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
STEP = Gaussian(2.0).poisson(0.1)


@pytest.fixture
def dataset(tmp_path):
    return Registry.create(tmp_path / "budget.sqlite").declare("patients")


def parts():
    model = torch.nn.Linear(3, 2)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=20)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader


def by_fit(ledger):
    model, optimizer, _ = parts()
    fit(
        model, X, Y, loss=lambda out, y: cross_entropy(out, y, reduction="none"), optimizer=optimizer, clip_norm=1.0,
        noise_multiplier=2.0, batch_size=20, steps=30, ledger=ledger,
    )  # fmt: skip


def by_loop(ledger, steps=30):
    private = make_private(*parts(), clip_norm=1.0, noise_multiplier=2.0, steps=30, ledger=ledger)
    for _ in range(3):
        for x, y in private.loader:
            cross_entropy(private.model(x), y, reduction="none").backward()
            private.optimizer.step()
            steps -= 1
            if not steps:
                return


def by_engine(ledger):
    model, optimizer, loader = parts()
    model, optimizer, loader = PrivacyEngine(ledger=ledger).make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=2.0, max_grad_norm=1.0
    )
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("run", [by_fit, by_loop])
def test_a_run_reserves_its_whole_plan_and_records_it(dataset, run):
    ledger = dataset.ledger("run")
    run(ledger)
    assert ledger.steps == dataset.total().steps == 30
    assert [row.kind for row in dataset.history()].count("reserve") == 2  # the empty one, and the plan
    expected = accountant("pld")(STEP * 30).epsilon(1e-5)
    assert float(dataset.spent().epsilon(1e-5)) == float(expected)


def test_a_run_that_ends_early_stays_reserved(dataset):
    ledger = dataset.ledger("run")
    by_loop(ledger, steps=7)
    assert ledger.steps == 7
    assert dataset.total().steps == 30


def test_a_run_over_the_cap_is_refused_before_its_first_batch(dataset):
    dataset.cap(Epsilon(0.5, 1e-5))
    for run in (by_fit, by_loop):
        with pytest.raises(BudgetExceeded, match="'patients' must stay within"):
            run(dataset.ledger("run"))
    assert not dataset.total().entries


def test_an_engine_for_opacus_scripts_pays_into_a_registry(dataset):
    ledger = dataset.ledger("script")
    by_engine(ledger)
    assert ledger.steps == dataset.total().steps >= 10


def test_two_runs_add_up_and_keep_what_each_said(dataset):
    first, second = dataset.ledger("one"), dataset.ledger("two", scope="fixed")
    by_fit(first)
    by_fit(second)
    for ledger in (first, second):
        ledger.settle()
    assert dataset.total().steps == 60
    assert dataset.spent().standing is first.standing
    second.mark_unsafe("unsafe_test", Standing.CLAIMED)
    second.settle()
    assert dataset.spent().standing is Standing.CLAIMED


def test_the_unit_of_a_shared_ledger_is_that_of_its_data_set(tmp_path):
    users = Registry.create(tmp_path / "users.sqlite").declare("users", unit="user")
    with pytest.raises(InvalidInput, match="unit of ledger"):
        by_fit(users.ledger("run"))


def private(loader, ledger=None):
    model, optimizer, _ = parts()
    return make_private(model, optimizer, loader, clip_norm=1.0, noise_multiplier=2.0, steps=3, ledger=ledger)


def test_two_loops_on_the_same_records_say_so_unless_they_share_a_ledger():
    data = torch.utils.data.TensorDataset(X + 5.0, Y)
    halves = [torch.utils.data.Subset(data, range(start, start + 100)) for start in (0, 100)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        for half in halves:
            private(torch.utils.data.DataLoader(half, batch_size=20))
    fold = torch.utils.data.Subset(data, range(50, 150))
    again = torch.utils.data.TensorDataset((X + 5.0).clone(), Y.clone())
    for records in (fold, again):
        with pytest.warns(PrivacyWarning, match="the best of them"):
            ledger = private(torch.utils.data.DataLoader(records, batch_size=20)).ledger
        assert any("the best of them" in sentence for sentence in ledger.assumptions)
    shared = Ledger()
    other = torch.utils.data.TensorDataset(X + 6.0, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        for _ in range(2):
            private(torch.utils.data.DataLoader(other, batch_size=20), shared)


class _Equal(torch.utils.data.Dataset):
    """Compares by value, as data classes do, and so has no hash."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]

    def __eq__(self, other):
        return isinstance(other, _Equal) and self.records == other.records

    __hash__ = None


@pytest.mark.parametrize("kind", [list, _Equal])
def test_data_sets_without_weak_references_or_hashes_are_taken(kind):
    """A list cannot be referred to weakly; a data set may compare by value."""
    records = kind([(torch.ones(2), torch.ones(1))] * 8)
    model = torch.nn.Linear(2, 1)
    loader = torch.utils.data.DataLoader(records, batch_size=4)
    make_private(model, torch.optim.SGD(model.parameters(), 0.1), loader, noise_multiplier=1.0, clip_norm=1.0, epochs=1)
