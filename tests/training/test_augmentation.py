"""Gradients of K augmented copies of a record are averaged before the clip, and the record counts once."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy as mean_loss
from torch.utils.data import DataLoader, TensorDataset

from tacit.clipping import PerLayerClip
from tacit.errors import InvalidInput, UnsupportedModel
from tacit.noise import SeededStream
from tacit.training import fit, make_private
from tacit.training.private_step import private_step
from tests.training.cases import cross_entropy

RECORDS = 24


def images():
    draw = torch.Generator().manual_seed(0)
    return torch.randn(RECORDS, 1, 6, 6, generator=draw), torch.randint(0, 3, (RECORDS,), generator=draw)


X, Y = images()


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))


class Shifts:
    """Copies that are known in advance: the k-th call moves the image by k."""

    def __init__(self, count):
        self.count, self.calls = count, 0

    def __call__(self, rows):
        place = self.calls % self.count
        self.calls += 1
        return rows.roll(place, 3) * (1 + place)


def mirrored(rows):
    flipped = torch.rand(len(rows), 1, 1, 1) < 0.5
    return torch.where(flipped, rows.flip(3), rows) + 0.1 * torch.randn_like(rows)


def trained(**given):
    model = network()
    settings = {"loss": cross_entropy, "clip_norm": 0.5, "noise_multiplier": 1.0, "batch_size": 8, "steps": 3}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return model, fit(model, X, Y, optimizer=optimizer, **settings | given)


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_is_the_loop_that_averages_over_copies_and_then_clips(count):
    model, clip = network(), 1.5
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in model.named_parameters()}
    exact, clipped = network().double(), 0
    for row, target in zip(X.double(), Y, strict=True):
        copies = [row[None].roll(place, 3) * (1 + place) for place in range(count)]
        gradients = [
            torch.autograd.grad(mean_loss(exact(copy), target[None]), list(exact.parameters())) for copy in copies
        ]
        mean = [torch.stack(each).mean(0) for each in zip(*gradients, strict=True)]
        norm = torch.sqrt(sum(each.square().sum() for each in mean))
        clipped += int(norm > clip)
        for name, each in zip(total, mean, strict=True):
            total[name] += each * min(1.0, clip / float(norm))
    assert clipped > 0
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    settings = {"clip_norm": clip, "noise_multiplier": 0.0, "unsafe_no_noise": True}
    copies = {"augment": Shifts(count), "augmentations": count}
    private_step(model, optimizer, cross_entropy, expected_batch_size=RECORDS, **settings, **copies)(X, Y)
    assert not model._forward_hooks
    for name, value in model.named_parameters():
        found = (before[name] - value.detach()).double() * RECORDS
        assert torch.allclose(found, total[name], atol=2e-5), name


def test_the_run_stays_proven_and_costs_what_it_costs_without_copies():
    _, with_copies = trained(augmentations=4, augment=mirrored)
    _, without = trained()
    assert with_copies.ledger.standing.value == "proven"
    assert with_copies.ledger.entries == without.ledger.entries
    assert with_copies.ledger.facts["model_rows"].how is without.ledger.facts["model_rows"].how


def test_the_model_is_left_as_it_was():
    model, _ = trained(augmentations=2, augment=mirrored, clip_norm=None, clipping=PerLayerClip(0.5))
    assert list(dict(model.named_parameters())) == list(dict(network().named_parameters()))
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert model(X).shape == (RECORDS, 3)


def test_evaluation_sees_the_records_themselves():
    shapes = []
    trained(augmentations=2, augment=mirrored, evaluate=lambda model: shapes.append(model(X[:5] + 1).shape) or {})
    assert set(shapes) == {(5, 3)}


def test_one_copy_that_changes_nothing_is_the_training_without():
    plain, _ = trained(stream=SeededStream(0))
    same, _ = trained(stream=SeededStream(0), augment=lambda rows: rows, augmentations=1)
    today, _ = trained(stream=SeededStream(0), augmentations=1)
    for left, middle, right in zip(plain.parameters(), same.parameters(), today.parameters(), strict=True):
        assert torch.equal(left, right)
        assert torch.allclose(left, middle, atol=1e-6)


class Remembers:
    def __init__(self):
        self.last = None

    def __call__(self, rows):
        before, self.last = self.last, rows[:1]
        return rows if before is None else rows + 0.1 * before


class Late:
    """Mixes the records once it was called often."""

    def __init__(self):
        self.calls = 0

    def __call__(self, rows):
        self.calls += 1
        return rows + 0.1 * rows.flip(0) if self.calls > 40 else rows


@pytest.mark.parametrize(
    "augment",
    [
        pytest.param(lambda rows: 0.5 * rows + 0.5 * rows.flip(0), id="mixes with another"),
        pytest.param(lambda rows: rows[torch.randperm(len(rows))], id="another's place"),
        pytest.param(lambda rows: rows - rows.mean(0), id="mean of the batch"),
        pytest.param(lambda rows: rows / rows.abs().max(), id="largest of the batch"),
        pytest.param(lambda rows: rows + 0.1 * X[torch.randint(0, RECORDS, (len(rows),))], id="another of the data"),
        pytest.param(lambda rows: torch.from_numpy(rows.numpy()[::-1].copy()), id="mixes outside of torch"),
        pytest.param(Remembers(), id="keeps the last batch"),
        pytest.param(Late(), id="mixes after some steps"),
    ],
)
def test_a_copy_that_reads_another_record_is_refused_or_not_proven(augment):
    try:
        _, result = trained(augmentations=2, augment=augment, steps=30)
    except UnsupportedModel:
        return
    assert result.ledger.standing.value in ("conditional", "claimed")


def test_what_the_loss_reads_is_still_told():
    weight = torch.rand(3)
    weighted = partial(nn.functional.cross_entropy, weight=weight, reduction="none")
    _, result = trained(augmentations=2, augment=mirrored, loss=weighted)
    assert result.ledger.standing.value == "conditional"
    _, result = trained(augmentations=2, augment=mirrored, loss=weighted, public={"weight": weight})
    assert result.ledger.standing.value == "proven"


def test_a_module_makes_copies():
    _, result = trained(augmentations=2, augment=nn.Dropout(0.2))
    assert result.ledger.standing.value == "proven"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"augmentations": 2}, "augment must be given with augmentations"),
        ({"augmentations": 0, "augment": mirrored}, "augmentations must be"),
        ({"augmentations": 2, "augment": lambda rows: rows[:1]}, "a row for each row"),
        ({"augmentations": 2, "augment": mirrored, "engine": "recorded"}, "engine must be eager with augment"),
    ],
)
def test_faults_are_sentences(given, said):
    with pytest.raises(InvalidInput, match=said):
        trained(**given)


def test_a_resumed_run_has_as_many_copies(tmp_path):
    kept = {"checkpoint": tmp_path / "run.safetensors", "augment": mirrored}
    trained(augmentations=2, **kept)
    with pytest.raises(InvalidInput, match="augmentations"):
        trained(augmentations=3, resume=True, **kept)


def test_a_loop_makes_no_copies():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = DataLoader(TensorDataset(X, Y), batch_size=8)
    given = {"clip_norm": 1.0, "noise_multiplier": 1.0, "augmentations": 2, "augment": mirrored}
    with pytest.raises(InvalidInput, match=r"left out of all but fit and private_step.*transform="):
        make_private(model, optimizer, loader, epochs=1, **given)
