"""`private.check(step)`: wrong steps are refused, correct ones pass, and nothing of the run changes."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from tacit.errors import InvalidInput, TacitError, TrainingMisuse
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.training import make_private
from tests.training.cases import flat


def private(**settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3))
    data = TensorDataset(torch.randn(200, 6), torch.arange(200) % 3)
    loader = DataLoader(data, batch_size=20)
    settings = {"clip_norm": 1.0, "noise_multiplier": 2.0, "epochs": 2} | settings
    return make_private(model, SGD(model.parameters(), lr=0.1), loader, **settings)


def losses_of(p, x, y):
    return F.cross_entropy(p.model(x), y, reduction="none")


def stepping(losses):
    """A step whose losses are `losses(p, x, y)`."""

    def of(p):
        def step(batch):
            p.optimizer.zero_grad()
            losses(p, *batch).backward()
            p.optimizer.step()

        return step

    return of


def rate_by_loss(p):
    def step(batch):
        losses = losses_of(p, *batch)
        losses.backward()
        p.optimizer.param_groups[0]["lr"] = 0.1 * float(losses.mean()) if len(losses) else 0.1
        p.optimizer.step()

    return step


def noise_by_loss(p):
    def step(batch):
        losses = losses_of(p, *batch)
        losses.backward()
        p.optimizer.noise_multiplier = 1.0 + float(losses.sum())
        p.optimizer.step()

    return step


def skips_high_loss(p):
    def step(batch):
        losses = losses_of(p, *batch)
        if len(losses) and losses.mean() > 1.1:
            return
        losses.backward()
        p.optimizer.step()

    return step


def skips_empty(p):
    def step(batch):
        if len(batch[0]):
            losses_of(p, *batch).backward()
            p.optimizer.step()

    return step


def steps_twice(p):
    def step(batch):
        losses_of(p, *batch).backward()
        p.optimizer.step()
        p.optimizer.step()

    return step


def asks_the_loader(p):
    return lambda batch: next(iter(p.loader))


def keeps_rows(p):
    kept = []

    def step(batch):
        x, y = batch
        kept.append(x.mean() if len(x) else 0.0)
        losses_of(p, x + sum(kept), y).backward()
        p.optimizer.step()

    return step


def mixup(p, x, y):
    return losses_of(p, 0.7 * x + 0.3 * x.roll(1, 0), y)


def nearest(p, x, y):
    """Targets from the nearest other record."""
    if len(x) < 2:
        return losses_of(p, x, y)
    return losses_of(p, x, y[(torch.cdist(x, x) + torch.eye(len(x)) * 1e9).argmin(1)])


def above_median(p, x, y):
    losses = losses_of(p, x, y)
    return losses * (losses > losses.detach().median()).float() if len(x) else losses


WRONG = {
    "rate by loss": (rate_by_loss, TrainingMisuse, "settings of the optimizer"),
    "noise by loss": (noise_by_loss, TrainingMisuse, "settings of the optimizer"),
    "skips high loss": (skips_high_loss, TrainingMisuse, "once on every batch"),
    "skips empty": (skips_empty, TrainingMisuse, "once on every batch"),
    "steps twice": (steps_twice, TrainingMisuse, "once on every batch"),
    "asks the loader": (asks_the_loader, TrainingMisuse, "must use the batch"),
    "another batch": (
        stepping(lambda p, x, y: losses_of(p, x[:-1], y[:-1])),
        TrainingMisuse,
        "batch that it was called",
    ),
    "keeps rows": (keeps_rows, InvalidInput, "must repeat itself"),
    "mixup": (stepping(mixup), InvalidInput, "follow from that record"),
    "standardised": (stepping(lambda p, x, y: losses_of(p, x - x.mean(0), y)), InvalidInput, "follow from that record"),
    "above median": (stepping(above_median), InvalidInput, "follow from that record"),
    "nearest": (stepping(nearest), InvalidInput, "follow from that record"),
    "mean": (stepping(lambda p, x, y: losses_of(p, x, y).mean()), InvalidInput, "size of the batch"),
    "divided by the size": (stepping(lambda p, x, y: losses_of(p, x, y) / max(1, len(x))), InvalidInput, "the size of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_refused_before_training(name):
    make, error, sentence = WRONG[name]
    p = private()
    with pytest.raises(error, match=sentence):
        p.check(make(p))
    assert p.ledger.steps == 0
    assert p.model.session.dry_run is None


def noisy(p, x, y):
    noise = torch.from_numpy(np.random.standard_normal(x.shape).astype(np.float32))  # noqa: NPY002
    return losses_of(p, x + 0.1 * noise + random.random(), y)


def focal(p, x, y):
    losses = losses_of(p, x, y)
    return (1 - (-losses).exp()) ** 2 * losses


def clipped_with_schedule(p):
    scheduler = StepLR(p.optimizer, 1, 0.5)

    def step(batch):
        x, y = batch
        with p.unreleased("loss on the screen"):
            losses = losses_of(p, x * torch.randint(0, 2, (len(x), 1)), y)
        losses.backward()
        p.optimizer.step()
        scheduler.step()

    return step


CORRECT = {
    "plain": stepping(losses_of),
    "noise of its own": stepping(noisy),
    "schedule": clipped_with_schedule,
    "second view as a target": stepping(lambda p, x, y: (p.model(x) - p.model(-x).detach()).square().sum(1)),
    "focal": stepping(focal),
    "physical batches": stepping(losses_of),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_step_passes_and_trains_on_as_proven(name):
    p = private(max_physical_batch_size=8 if name == "physical batches" else None)
    step = CORRECT[name](p)
    for _ in range(10):
        assert p.check(step, batches=2) is p.ledger.facts
    assert p.ledger.steps == 0
    for batch in p.loader:
        step(batch)
    assert p.ledger.standing is Standing.PROVEN


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRECT)
def test_a_check_changes_nothing_of_the_run(name):
    ends = []
    for checked in (False, True):
        p = private(stream=SeededStream(3), max_physical_batch_size=8 if name == "physical batches" else None)
        step = CORRECT[name](p)
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
        for place, batch in enumerate(p.loader):
            step(batch)
            if checked and place == 4 and name != "physical batches":
                p.check(step, batches=2)
        ends.append((flat(p.model.module), p.optimizer.param_groups[0]["lr"], str(p.ledger.mechanism)))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]


def test_a_check_within_a_batch_is_refused():
    p = private()
    x, y = next(iter(p.loader))
    losses_of(p, x, y).backward()
    with pytest.raises(TrainingMisuse, match="between batches"):
        p.check(CORRECT["plain"](p))


def test_a_step_that_raises_leaves_the_run_as_it_was():
    p = private()

    def step(batch):
        losses_of(p, *batch).backward()
        raise ZeroDivisionError

    before = flat(p.model.module)
    with pytest.raises(ZeroDivisionError):
        p.check(step)
    assert torch.equal(flat(p.model.module), before)
    CORRECT["plain"](p)(next(iter(p.loader)))
    assert p.ledger.steps == 1


@pytest.mark.parametrize("batches", [0, 1.5, "8"])
def test_the_number_of_batches_is_checked(batches):
    p = private()
    with pytest.raises(TacitError, match="batches"):
        p.check(CORRECT["plain"](p), batches=batches)


def reads_the_loss(p):
    def step(batch):
        losses = losses_of(p, *batch)
        losses.backward()
        p.optimizer.step()
        return float(losses.sum())

    return step


def reads_the_rows(p):
    def step(batch):
        losses_of(p, *batch).backward()
        p.optimizer.step()
        return (batch[0] * 2).flatten().tolist()

    return step


@pytest.mark.parametrize("make", [reads_the_loss, reads_the_rows])
def test_numbers_that_a_checked_step_reads_are_counted(make):
    p = private()
    with p.unreleased("loss on the screen"):
        p.check(make(p), batches=1)
    assert not p.model.session.checks.reads.lines
    p.check(make(p), batches=1)
    (line,) = p.model.session.checks.reads.lines
    assert line.startswith("test_step_check.py:")
    assert p.ledger.standing is Standing.CONDITIONAL


def test_a_setting_that_follows_the_length_of_a_batch_is_refused_before_training():
    p = private()

    def step(batch):
        p.optimizer.param_groups[0]["lr"] = 0.01 * len(batch[0])
        losses_of(p, *batch).backward()
        p.optimizer.step()

    with pytest.raises(TrainingMisuse, match="settings of the optimizer must not follow"):
        p.check(step)
