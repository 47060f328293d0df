"""Loops whose passes are replayed: the same weights as eager passes, and eager where that may differ."""

import random
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger
from tacit.errors import TrainingMisuse
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.training import make_private, replayed_passes
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model
from tests.training.test_engine_choice import Counting, Drawing, Own, Reading, Skipping, hooked, replaced

STEPS = 8


@pytest.fixture
def paid(monkeypatch):
    """Whatever may be recorded is."""
    monkeypatch.setattr(replayed_passes, "recorded_where_faster", lambda model, eager, record, *rest: record())


def parts_of(model, *, replays=True, data=None, **changes):
    """A seeded run, so that two of them see the same batches and noise; replays in spite of the seed."""
    changes = {"clip_norm": 0.3, "noise_multiplier": 0.01, "steps": STEPS, "stream": SeededStream(3)} | changes
    if "sampling" not in changes:  # One size of batch, so that one recording serves all steps.
        changes |= {"sampling": "fixed_size", "ledger": Ledger(relation=Relation.REPLACE_ONE)}
    optimizer = plain_sgd(model)
    private = make_private(model, optimizer, DataLoader(TensorDataset(*(data or blobs())), batch_size=20), **changes)
    private.model._engine._chooses = replays
    return private


def plain_step(private, x, y, taken):
    cross_entropy(private.model(x), y).backward()
    private.optimizer.step()


def trained(model, *, step=plain_step, **changes):
    """Engine of every step; the weights are those of `model` afterwards."""
    torch.manual_seed(1)
    private, engines = parts_of(model, **changes), []
    for _ in private.epochs:
        for x, y in private.loader:
            step(private, x, y, len(engines))
            engines.append(private.model._engine.name)
    return engines


def compared(make, *, step=plain_step, **changes):
    """Engines of a run that replays, whose weights are those of an eager one."""
    one, other = make(), make()
    engines = trained(one, step=step, **changes)
    assert set(trained(other, step=step, replays=False, **changes)) == {"eager"}
    torch.testing.assert_close(flat(one), flat(other), atol=2e-6, rtol=1e-5)
    return engines


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.block = nn.Linear(1, 8), nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.block(self.table(x.unsqueeze(2))).mean(1))


class Named(Own):
    """Outputs in a dictionary, besides what is no tensor."""

    def forward(self, x):
        hidden = self[1](self[0](x))
        return {"logits": self[2](hidden), "hidden": hidden, "name": "small"}


def image_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2))


def seeded(kind):
    torch.manual_seed(0)
    return kind()


def of_dictionary(private, x, y, taken):
    outputs = private.model(x)
    assert outputs["name"] == "small"
    (cross_entropy(outputs["logits"], y) + outputs["hidden"].square().sum(1)).backward()
    private.optimizer.step()


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (small_model, plain_step),
        (image_model, plain_step),
        (lambda: seeded(Attention), plain_step),
        (lambda: Named(*small_model()), of_dictionary),
    ],
    ids=["two layers", "convolution", "attention", "dictionary"],
)
def test_weights_are_those_of_eager_passes(paid, make, step):
    changes = {"sampling": "poisson"} if make is small_model else {}
    engines = compared(make, step=step, **changes)
    assert engines == ["eager"] * 2 + ["recorded"] * (STEPS - 2)


def test_a_loop_whose_passes_are_replayed_stays_proven(paid):
    private = parts_of(small_model(), noise_multiplier=1.3, stream=None)
    for _ in private.epochs:
        for x, y in private.loader:
            plain_step(private, x, y, 0)
    assert private.model._engine.name == "recorded"
    assert private.ledger.standing is Standing.PROVEN


@pytest.mark.parametrize(
    "make",
    [
        lambda: Counting(*small_model()),
        lambda: Skipping(*small_model()),
        lambda: Drawing(*small_model()),
        lambda: Reading(*small_model()),
        hooked,
        replaced,
    ],
    ids=["counter", "Python's draw", "torch's draw", "number read", "hook", "another forward"],
)
def test_eager_where_a_recording_may_not_stand_for_all_steps(paid, make):
    random.seed(0)
    assert set(trained(make())) == {"eager"}


def test_eager_by_a_seed_or_by_choice(paid):
    assert set(trained(small_model(), replays=False)) == {"eager"}
    private = parts_of(small_model(), engine="eager", stream=None, replays=False)
    assert not private.model._engine._chooses


def test_a_hook_on_all_modules_is_called_at_every_step(paid):
    calls = []
    handle = register_module_forward_hook(lambda module, inputs, outputs: calls.append(type(module)))
    try:
        assert set(trained(small_model())) == {"eager"}
    finally:
        handle.remove()
    assert calls.count(nn.Tanh) >= STEPS


def at(number, change):
    """A plain step; before the one of this number, `change(private)`."""

    def step(private, x, y, taken):
        if taken == number:
            change(private)
        plain_step(private, x, y, taken)

    return step


class Scaled(Own):
    """A closure decides a factor, as of a schedule."""

    factor = staticmethod(lambda: 1.0)

    def forward(self, x):
        return self.factor() * super().forward(x)


def scaled():
    model, rate = Scaled(*small_model()), [1.0]
    model.rate, model.factor = rate, lambda: rate[0]
    return model


def thresholded():
    return nn.Sequential(*small_model(), nn.Threshold(-9.0, 0.0))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (thresholded, lambda p: setattr(p.model.module[3], "threshold", 0.0)),
        (scaled, lambda p: p.model.module.rate.__setitem__(0, 0.5)),
        (small_model, lambda p: p.model.module[1].register_forward_hook(lambda layer, given, out: 0.5 * out)),
        (small_model, lambda p: p.model.module[0].requires_grad_(False)),
        (small_model, lambda p: p.optimizer.schedule("max_grad_norm", 0.1)),
    ],
    ids=["attribute", "closure", "hook", "frozen layer", "clip"],
)  # fmt: skip
def test_what_changes_in_mid_run_counts_from_the_next_step_on(paid, make, change):
    engines = compared(make, step=at(5, change))
    assert engines[3:7] == ["recorded", "recorded", "eager", "eager"]


def test_dropout_draws_anew_and_its_gradients_are_those_of_the_outputs(paid):
    """The last layer is the identity: its weight's gradient is the sum of outer products of outputs and cotangents."""
    last = nn.Linear(6, 6, bias=False)
    nn.init.eye_(last.weight)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), last).requires_grad_(False)
    last.requires_grad_(True)
    private = parts_of(model, clip_norm=1e9, noise_multiplier=1e-12)
    masks = []
    for x, _ in private.loader:
        outputs = private.model(x)
        with private.unreleased("a test"):
            given = torch.linalg.solve(last.weight.detach(), outputs.as_subclass(torch.Tensor).detach().T).T
        masks.append((given.abs() > 1e-4).sum().item() / given.numel())
        before = last.weight.detach().clone()
        outputs.sum(1).backward()
        private.optimizer.step()
        expected = before - 0.5 / 20 * given.sum(0).expand(6, 6)
        torch.testing.assert_close(last.weight.detach(), expected, atol=1e-4, rtol=1e-3)
    assert private.model._engine.name == "recorded"
    assert 0.4 < sum(masks) / len(masks) < 0.6
    assert len(set(masks)) > 4


def used_twice(private, x, y, taken):
    outputs, _ = private.model(x), private.model(x)
    (cross_entropy(outputs, y) + outputs.square().sum(1)).backward()
    private.optimizer.step()


def evaluated_between(private, x, y, taken):
    outputs = private.model(x)
    private.model.eval()
    with torch.no_grad():
        private.model(torch.randn(50, 4))
    private.model.train()
    cross_entropy(outputs, y).backward()
    private.optimizer.step()
    with torch.no_grad():
        private.model(torch.randn(50, 4))


TEACHER = small_model(5).requires_grad_(False)


def with_a_teacher(private, x, y, taken):
    outputs = private.model(x)
    (cross_entropy(outputs, y) + (outputs - TEACHER(x)).square().sum(1)).backward()
    private.optimizer.step()


def in_a_thread(private, x, y, taken):
    thread = threading.Thread(target=plain_step, args=(private, x, y, taken))
    thread.start()
    thread.join()


def failing_first(private, x, y, taken):
    with pytest.raises(ZeroDivisionError):
        cross_entropy(private.model(x), y).backward(1 / 0)
    plain_step(private, x, y, taken)


@pytest.mark.parametrize("step", [used_twice, evaluated_between, with_a_teacher, in_a_thread, failing_first])
def test_what_a_loop_does_between_the_passes_counts_as_in_an_eager_one(paid, step):
    assert compared(small_model, step=step)[2:] == ["recorded"] * (STEPS - 2)


def test_batches_of_no_record_and_of_many(paid):
    changes = {"sample_rate": 0.004, "expected_batch_size": 0.8, "steps": 20}
    engines = compared(small_model, sampling="poisson", **changes)
    assert "recorded" in engines
    assert len(engines) == 20


def test_physical_batches(paid):
    assert "recorded" in compared(small_model, max_physical_batch_size=8, steps=5)


def test_a_record_out_of_range_contributes_nothing(paid):
    x, y = blobs()
    x[50:53], x[60:63] = float("inf"), 1e30
    assert "recorded" in compared(small_model, data=(x, y))


def test_autocast_is_eager_for_as_long_as_it_lasts(paid):
    def step(private, x, y, taken):
        with torch.autocast("cpu", enabled=taken % 2 == 0):
            outputs = private.model(x)
        assert outputs.dtype == (torch.bfloat16 if taken % 2 == 0 else torch.float32)
        F.cross_entropy(outputs.float(), y, reduction="none").backward()
        private.optimizer.step()

    trained(small_model(), step=step)


@pytest.mark.parametrize("what", ["inputs", "outputs", "weights"])
def test_what_the_backward_pass_reads_must_stay(paid, what):
    def step(private, x, y, taken):
        outputs = private.model(x)
        values = {"inputs": x, "outputs": outputs.as_subclass(torch.Tensor), "weights": private.model.module[2].weight}
        if taken == 6:
            with torch.no_grad():
                values[what].mul_(2.0)
        cross_entropy(outputs, y).backward()
        private.optimizer.step()

    with pytest.raises(TrainingMisuse, match=r"stay as they are|another change"):
        trained(small_model(), step=step)
