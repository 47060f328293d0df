import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Adam

from tacit.accounting import PLACES, PUBLIC_SIZE, Ledger, accountant
from tacit.clipping import FlatClip
from tacit.errors import BudgetExceeded, InvalidInput, PrivacyWarning, TrainingMisuse, UnsupportedModel
from tacit.gradients import FlatGradient
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.sampling import PoissonSampler
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import Functions, Plan, PrivateRun, fit, fit_nonprivate
from tests.training.cases import blobs, cross_entropy, differ, flat, plain_sgd, small_model

SETTINGS = {"loss": cross_entropy, "clip_norm": 0.8, "noise_multiplier": 1.3}


def run(model=None, data=None, optimizer=None, **changes):
    model = model if model is not None else small_model()
    x, y = data if data is not None else blobs()
    arguments = SETTINGS | {"batch_size": 20, "steps": 5} | changes
    return model, fit(model, x, y, optimizer=optimizer or plain_sgd(model), **arguments)


def test_the_ledger_is_what_ran():
    _, result = run(steps=17, stream=SeededStream(0))
    (entry,) = result.ledger.entries
    assert (entry.mechanism, entry.steps) == (Gaussian(1.3).poisson(0.1), 17)
    assert result.ledger.unsafe == ["unsafe_seeded_stream"]
    assert result.ledger.standing is Standing.CLAIMED
    assert run()[1].ledger.unsafe == []


def test_the_ledger_says_once_that_the_number_of_records_is_public():
    ledger = Ledger()
    for _ in range(2):
        run(ledger=ledger)
        assert ledger.assumptions == [PUBLIC_SIZE, PLACES]


@pytest.mark.parametrize(("epochs", "steps"), [(1, 8), (2.5, 19), (0.01, 1)])
def test_steps_are_epochs_over_sample_rate(epochs, steps):
    _, result = run(batch_size=None, sample_rate=0.13, epochs=epochs, steps=None)
    assert result.ledger.steps == result.plan.steps == steps


def test_private_and_nonprivate_training_learn():
    x, y = blobs(1000)

    def evaluate(model):
        assert not model.training
        return {"accuracy": float((model(x).argmax(1) == y).double().mean())}

    for optimizer in (plain_sgd, lambda model: Adam(model.parameters(), lr=0.02)):
        model = small_model()
        _, result = run(
            model,
            (x, y),
            optimizer(model),
            batch_size=100,
            steps=None,
            epochs=8,
            evaluate=evaluate,
            stream=SeededStream(0),
        )
        assert [row["epoch"] for row in result.history] == list(range(1, 9))
        assert result.history[-1]["accuracy"] > 0.9
        assert model.training
    reference = small_model()
    history = fit_nonprivate(
        reference, x, y, loss=cross_entropy, optimizer=plain_sgd(reference), batch_size=100, epochs=8, evaluate=evaluate
    )
    assert history[-1]["accuracy"] > 0.95


def test_arrays_and_tensors_train_alike():
    x, y = blobs()
    first, _ = run(data=(x, y), stream=SeededStream(3))
    second, _ = run(data=(x.double().numpy(), y.numpy()), stream=SeededStream(3))
    assert torch.equal(flat(first), flat(second))


def test_progress_is_reported_without_any_private_number():
    steps, rows = [], []
    run(
        callbacks=[Functions(on_step=lambda taken, planned: steps.append((taken, planned)), on_epoch=rows.append)],
        steps=12,
    )
    assert steps == [(i, 12) for i in range(1, 13)]
    assert rows == [
        {"epoch": 1.0, "steps": 10.0, "learning_rate": 0.5},
        {"epoch": 1.2, "steps": 12.0, "learning_rate": 0.5},
    ]


@pytest.mark.parametrize("rate", [0.013, 0.15, 0.4])
def test_batches_are_drawn_at_the_rate_of_the_plan(rate):
    """Sizes of 400 batches of 3000 records: the mean within 6 standard errors of what the ledger has."""
    run = PrivateRun(Plan(3000, rate, 1.0, 1.0, steps=400), stream=SeededStream(2))
    sizes = []
    for _ in range(400):
        batch = run.issue()
        run.charge(batch)
        sizes.append(len(batch))
    (entry,) = run.ledger.entries
    assert entry.mechanism == Gaussian(1.0).poisson(rate)
    assert abs(np.mean(sizes) - 3000 * rate) < 6 * math.sqrt(3000 * rate * (1 - rate) / 400)


def test_empty_batches_still_add_noise_and_are_recorded():
    model = small_model()
    before = flat(model)
    _, result = run(model, batch_size=1e-6, steps=3)
    assert result.ledger.steps == 3
    assert differ(flat(model), before)


def test_division_is_by_the_expected_size_whatever_was_drawn():
    """With one huge direction, every clipped gradient is the same vector, so an update tells the drawn size."""
    model = nn.Linear(1, 1, bias=False)
    sizes = []
    stream = SeededStream(5)
    sampler = PoissonSampler(50, 0.2, stream)
    for _ in range(20):
        batch = sampler.issue()
        sampler.redeem(batch)
        sizes.append(len(batch))
    path = [model.weight.item()]
    fit(
        model,
        torch.ones(50, 1),
        torch.ones(50),
        loss=lambda outputs, targets: outputs[:, 0] * targets * 1e3,
        optimizer=plain_sgd(model, 1.0),
        clip_norm=0.3,
        noise_multiplier=0.0,
        unsafe_no_noise=True,
        batch_size=10,
        steps=20,
        stream=SeededStream(5),
        callbacks=[Functions(on_step=lambda *_: path.append(model.weight.item()))],
    )
    np.testing.assert_allclose(-np.diff(path), 0.3 * np.array(sizes) / 10, rtol=1e-4)


def test_a_nan_record_made_by_the_model_never_reaches_the_weights():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, inputs):
            return self.layer(inputs.sqrt())

    x, y = blobs()
    model, result = run(
        Root(), (x.abs() * torch.where(torch.arange(200) == 7, -1.0, 1.0)[:, None], y), sample_rate=1.0, batch_size=None
    )
    assert torch.isfinite(flat(model)).all()
    assert result.ledger.steps == 5


class TestBudget:
    def test_the_step_that_would_cross_it_is_not_taken(self):
        target = Epsilon(1.5, delta=1e-3)
        ledger = Ledger()
        with pytest.raises(BudgetExceeded, match="would cross the privacy budget; it was not taken"):
            run(target=target, accountant="rdp", steps=500, ledger=ledger, delta=1e-3)
        rdp = accountant("rdp")
        assert ledger.steps > 0
        assert target.met(rdp(ledger))
        ledger.add(Gaussian(1.3).poisson(0.1))
        assert not target.met(rdp(ledger))

    def test_a_target_without_noise_is_calibrated_to(self):
        target = Epsilon(2.0, delta=1e-3)
        _, result = run(target=target, accountant="rdp", noise_multiplier=None, steps=30)
        rdp = accountant("rdp")
        assert result.ledger.steps == 30
        assert 1.99 < rdp(result.ledger).epsilon(1e-3) <= 2.0

    def test_earlier_ledger_entries_count_towards_the_budget(self):
        ledger = Ledger.of(Gaussian(1.3).poisson(0.1) * 400)
        with pytest.raises(BudgetExceeded, match="step 1 would cross"):
            run(target=Epsilon(1.5, delta=1e-3), accountant="rdp", ledger=ledger)
        assert ledger.steps == 400

    @pytest.mark.slow
    def test_calibration_leaves_room_for_what_already_ran(self):
        ledger = Ledger.of(Gaussian(2.0).poisson(0.1) * 40)
        _, result = run(
            target=Epsilon(2.0, delta=1e-3), accountant="rdp", noise_multiplier=None, steps=30, ledger=ledger
        )
        assert 1.99 < accountant("rdp")(result.ledger).epsilon(1e-3) <= 2.0


def test_a_delta_of_one_over_n_or_more_is_warned_about():
    for arguments in ({"delta": 0.005}, {"target": Epsilon(50.0, delta=0.01), "accountant": "rdp"}):
        with pytest.warns(PrivacyWarning, match="1/n for n=200"):
            run(**arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(delta=0.0049)


class TestRun:
    def plan(self, clip_norm=0.8, **changes):
        settings = {"records": 100, "sample_rate": 0.2, "noise_multiplier": 1.3, "steps": 4} | changes
        return Plan(clip=FlatClip(clip_norm), **settings)

    def test_the_ledger_is_written_before_anything_is_released(self):
        run = PrivateRun(self.plan())

        broken = FlatGradient(torch.zeros(3, dtype=torch.int64), {})
        with pytest.raises(InvalidInput, match="values must be float32"):
            run.release(run.issue(), broken, torch.zeros(0))
        assert run.ledger.steps == 1

    def test_a_foreign_batch_is_refused_and_nothing_is_recorded(self):
        run, other = PrivateRun(self.plan()), PrivateRun(self.plan())
        with pytest.raises(TrainingMisuse, match="batch must be one"):
            run.release(other.issue(), FlatGradient(torch.zeros(3), {}), torch.zeros(0))
        assert run.ledger.steps == 0

    def test_steps_of_one_plan_are_one_mechanism(self):
        assert self.plan().mechanism == Gaussian(1.3).poisson(0.2)
        assert self.plan().expected_batch_size == 20
        assert self.plan().clip_norm == 0.8

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("noise_multiplier", v) for v in (0, -1.0, math.nan, math.inf, "1")),
            *(("clip_norm", v) for v in (0, -1.0, math.nan, math.inf, "1")),
            *(("sample_rate", v) for v in (0, -0.1, 1.5, math.nan, "1")),
            *(("steps", v) for v in (0, -5, 1.5, "1")),
            *(("records", v) for v in (0, -5, 1.5, "1")),
        ],
    )
    def test_bad_plans_are_refused(self, name, value):
        with pytest.raises(InvalidInput, match=f"^{name} must be "):
            self.plan(**{name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be in .*unsafe_no_noise=True"),
        ({"noise_multiplier": None}, "noise_multiplier must be given unless a target is"),
        ({"batch_size": 201}, r"batch_size must be in \(0, 200\]"),
        ({"batch_size": None}, "sample_rate must be given exactly when batch_size is not; got neither"),
        ({"sample_rate": 0.1}, "got both"),
        ({"steps": None}, "steps must be given exactly when epochs is not; got neither"),
        ({"epochs": 2}, "got both"),
        ({"epochs": -2, "steps": None}, "epochs must be in"),
        ({"clip_norm": math.nan}, "clip_norm must be in"),
        ({"delta": 2.0}, r"delta must be in \[0, 1\]"),
        ({"loss": nn.CrossEntropyLoss()}, r'one value per example.*reduction="none"'),
        ({"target": Epsilon(1.0, 1e-4), "accountant": "rdpp"}, "rdpp.*Did you mean 'rdp'"),
    ],
)
def test_bad_arguments_are_refused_before_the_first_step(changes, message):
    model = small_model()
    before = flat(model)
    with pytest.raises(InvalidInput, match=message):
        run(model, **changes)
    assert torch.equal(before, flat(model))


NUMBERS = {
    "clip_norm": (0, -1.0, math.nan, math.inf, "1", True),
    "noise_multiplier": (0, -1.0, math.nan, math.inf, "1", True),
    "batch_size": (0, -1, 201, math.nan, "20", True),
    "steps": (0, -5, 1.5, math.nan, "5", True),
    "checkpoint_every": (0, -5, 1.5, math.nan, "5", True),
    "max_physical_batch_size": (0, -5, 1.5, math.nan, "5", True),
    "delta": (2.0, -1e-5, math.nan, "1e-5", True),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NUMBERS.items() for value in values])
def test_numbers_that_break_their_rule_are_refused_before_the_first_step(name, value, tmp_path):
    model = small_model()
    before = flat(model)
    with pytest.raises(InvalidInput, match=rf"^{name} must be .*got {value!r}"):
        run(model, checkpoint=tmp_path / "run.safetensors", **{name: value})
    assert torch.equal(before, flat(model))
    assert list(tmp_path.iterdir()) == []


def _with(value, *rows):
    x, y = blobs()
    for row, column in rows:
        x[row, column] = value
    return x, y


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_with(math.nan, (7, 1), (9, 3)), "inputs must be finite; got NaN or infinity at rows 7, 9, columns 1, 3"),
        (_with(math.inf, *((i, 0) for i in range(10, 20))), "rows 10, 11, 12, 13, 14 and 5 more, columns 0"),
        ((torch.zeros(0, 4), torch.zeros(0).long()), "inputs must be at least one record; got 0"),
        ((torch.zeros(9, 4), torch.zeros(8).long()), r"of equal length; got \[9, 8\]"),
        ((torch.zeros(9, 5), torch.zeros(9).long()), r"shape that the model takes; got \[\(5,\)\]"),
        ((torch.zeros(9, 4), torch.tensor([0, 1, 0, 1, 5, 0, 0, 0, 0])), r"labels in 0\.\.1.*got values .* at row 4"),
        ((torch.zeros(9, 4), torch.tensor([0, 1, 0, 1, -1, 0, 0, 0, 0])), r"got values of the data, .* at row 4"),
        (([["a", "b", "c", "d"]], [0]), "inputs must be an array of numbers"),
        ((torch.zeros(9, 4), ["yes"] * 9), "targets must be an array of numbers"),
    ],
)
def test_bad_data_are_refused_before_the_first_step(data, message):
    with pytest.raises(InvalidInput, match=message):
        run(data=data)


def test_misuse_is_an_error():
    with pytest.raises(TrainingMisuse, match="optimizer must hold the parameters of this model"):
        run(optimizer=plain_sgd(small_model()))
    with pytest.raises(InvalidInput, match=r"optimizer must be a torch\.optim optimizer"):
        run(optimizer=3)
    with pytest.raises(TrainingMisuse, match="got eval mode"):
        run(small_model().eval())
    with pytest.raises(InvalidInput, match="targets must be what the loss takes"):
        run(loss=lambda outputs, targets: 1 / 0)
    with pytest.raises(UnsupportedModel, match=r"layer '1' \(BatchNorm1d\)"):
        run(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)))


def test_training_without_noise_is_unsafe_in_the_ledger():
    _, result = run(noise_multiplier=0.0, unsafe_no_noise=True)
    assert result.ledger.unsafe == ["unsafe_no_noise"]
    assert accountant("rdp")(result.ledger).epsilon(1e-5) == math.inf


@pytest.mark.parametrize("batch_size", [20, 1e-9])
def test_a_rate_that_a_callback_changes_is_named_on_the_ledger(batch_size):
    """Batches that are all empty, too."""
    x, y = torch.randn(60, 3), torch.randn(60)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def lower(done, total):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - done / total)

    for callbacks, said in ([], False), ([Functions(on_step=lower)], True):
        result = fit(
            model, x, y, loss=lambda out, t: (out[:, 0] - t).square(), optimizer=optimizer, clip_norm=1.0,
            noise_multiplier=1.0, batch_size=batch_size, steps=6, callbacks=callbacks,
        )  # fmt: skip
        assert batch_size < 1 or result.ledger.standing is Standing.PROVEN
        assert (
            "Taken as public: the learning rate, which changes from step to step." in result.ledger.assumptions
        ) is said
