import io
import math
import sys

import pytest
import torch
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau, StepLR

from tacit.accounting import Accountant, accountant
from tacit.errors import BudgetExceeded, InvalidInput, Refused, TrainingMisuse
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import BestModel, Callback, EarlyStopping, Functions, ProgressBar, TensorBoard, fit, fit_nonprivate
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model


def run(model=None, optimizer=None, **changes):
    model = model if model is not None else small_model()
    settings = {"loss": cross_entropy, "clip_norm": 0.8, "noise_multiplier": 1.3, "batch_size": 20, "steps": 40}
    return model, fit(model, *blobs(), optimizer=optimizer or plain_sgd(model), **(settings | changes))


def measured(values):
    """An `evaluate` that measures `values` one after another."""
    given = iter(values)
    return lambda model: {"test": next(given)}


class Notes(Callback):
    def __init__(self):
        self.seen = []

    def on_plan(self, plan):
        self.seen.append(("plan", plan.steps))

    def on_step(self, taken, planned):
        self.seen.append(("step", taken, planned))

    def on_epoch(self, row):
        self.seen.append(("epoch", row["steps"]))

    def on_end(self):
        self.seen.append("end")


def test_callbacks_are_called_in_order():
    notes = Notes()
    run(callbacks=[notes], steps=11)
    steps = [("step", i, 11) for i in range(1, 12)]
    assert notes.seen == [("plan", 11), *steps[:10], ("epoch", 10.0), steps[10], ("epoch", 11.0), "end"]


def test_epochs_of_a_broken_number_of_steps_end_at_the_nearest_step():
    _, result = run(steps=None, epochs=4, batch_size=30)
    assert [row["steps"] for row in result.history] == [7, 13, 20, 27]


def test_callbacks_end_even_when_the_run_fails():
    notes = Notes()
    with pytest.raises(ZeroDivisionError):
        run(callbacks=[Functions(on_step=lambda *_: 1 / 0), notes])
    assert notes.seen[-1] == "end"


def test_nonprivate_training_has_the_same_callbacks_and_schedules():
    notes, model = Notes(), small_model()
    optimizer = plain_sgd(model)
    history = fit_nonprivate(
        model,
        *blobs(),
        loss=cross_entropy,
        optimizer=optimizer,
        batch_size=20,
        epochs=9,
        evaluate=measured([1, 2, 3, 3, 3, 3]),
        callbacks=[notes, EarlyStopping("test", patience=2)],
        scheduler=ExponentialLR(optimizer, 0.5),
    )
    assert [row["test"] for row in history] == [1, 2, 3, 3, 3]
    assert [row["learning_rate"] for row in history] == [0.5, 0.25, 0.125, 0.0625, 0.03125]
    assert notes.seen[0] == ("step", 1, 90)
    assert notes.seen[-1] == "end"


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("values", "settings", "epochs"),
    [
        ([0.5, 0.6, 0.6, 0.59], {"patience": 2}, 4),
        ([0.5, 0.4, 0.3, 0.3], {"patience": 1, "better": "lower"}, 4),
        ([0.5, 0.55, 0.58, 0.59], {"patience": 2, "least_gain": 0.1}, 3),
        ([math.nan, math.nan, 1.0, 2.0], {"patience": 2}, 2),
        ([1.0, math.nan, 2.0, math.nan], {"patience": 2}, 4),
    ],
)
def test_early_stopping(values, settings, epochs):
    _, result = run(evaluate=measured(values), callbacks=[EarlyStopping("test", **settings)])
    assert len(result.history) == epochs
    # The guarantee is that of the plan: what was released decided when to stop.
    assert (result.taken, result.ledger.steps, result.plan.steps) == (10 * epochs, 40, 40)
    assert bool(result.stopped) == (values[0] != 1.0)


def test_a_callback_of_ones_own_ends_the_run():
    class Enough(Callback):
        def on_epoch(self, row):
            return "enough" if row["epsilon"] > 0.5 else None

    _, result = run(callbacks=[Enough()], delta=1e-3, accountant="rdp")
    assert result.stopped == "enough"
    assert result.history[-1]["epsilon"] > 0.5
    assert all(row["epsilon"] <= 0.5 for row in result.history[:-1])


def test_the_best_model_is_left():
    weights = []
    model, _ = run(
        evaluate=measured([0.1, 0.9, 0.3, math.nan]),
        callbacks=[
            Functions(on_epoch=lambda row: weights.append(flat(model))),
            best := BestModel(model := small_model(), "test"),
        ],
        model=model,
    )
    assert torch.equal(flat(model), weights[1])
    assert best.state()["best"] == 0.9


@pytest.mark.parametrize("kind", [EarlyStopping, lambda *a, **n: BestModel(small_model(), *a, **n)])
def test_bad_settings_of_callbacks(kind):
    with pytest.raises(InvalidInput, match=r"metric must be one of epoch, steps, learning_rate, test.*'test'"):
        run(evaluate=measured([1.0]), callbacks=[kind("tset")])
    with pytest.raises(InvalidInput, match="better must be one of higher, lower; got 'max'"):
        kind("test", better="max")
    with pytest.raises(InvalidInput, match=r"callbacks must be made of .*Callback objects; got 'function'"):
        run(callbacks=[lambda row: None])


@pytest.mark.parametrize("patience", [0, 1.5, "3", None])
def test_bad_patience_is_refused(patience):
    with pytest.raises(InvalidInput, match="patience must be an integer >= 1"):
        EarlyStopping("test", patience=patience)


class TestEpsilonSoFar:
    def test_epsilon_of_a_row_is_that_of_its_ledger(self):
        rdp = accountant("rdp")
        seen = []

        class Ask(Callback):
            def on_epoch(self, row):
                seen.append(row["epsilon"])

        _, result = run(callbacks=[Ask()], delta=1e-3, accountant="rdp")
        for row in result.history:
            assert row["epsilon"] == rdp(result.plan.mechanism * int(row["steps"])).epsilon(1e-3)
            assert row["epsilon"].standing is Standing.PROVEN
        assert seen == [row["epsilon"] for row in result.history]

    @pytest.mark.slow
    def test_a_row_never_has_a_stronger_standing_than_the_run(self):
        _, seeded = run(delta=1e-3, accountant="rdp", stream=SeededStream(0))
        assert seeded.history[-1]["epsilon"].standing is Standing.CLAIMED
        _, silent = run(delta=1e-3, accountant="rdp", noise_multiplier=0.0, unsafe_no_noise=True)
        assert silent.history[-1]["epsilon"] == math.inf

    def test_without_a_delta_or_an_answer_there_is_none(self):
        class Silent(Accountant):
            name, standing = "silent", Standing.PROVEN

            def curve(self, mechanism, relation):
                raise Refused("no answer")

        assert "epsilon" not in run()[1].history[0]
        assert "epsilon" not in run(delta=1e-3, accountant=Silent())[1].history[0]


class TestBudget:
    def run(self, epsilon=1.5, **changes):
        return run(target=Epsilon(epsilon, 1e-3), accountant="rdp", steps=500, **changes)

    def test_the_run_may_end_in_order(self):
        _, result = self.run(stop_at_budget=True, evaluate=lambda model: {"test": 1.0})
        assert "would cross the privacy budget; it was not taken" in result.stopped
        assert result.history[-1]["steps"] == result.ledger.steps
        assert result.history[-1]["epsilon"] <= 1.5
        with pytest.raises(BudgetExceeded):
            self.run()

    def test_no_step_at_all_may_be_affordable(self):
        before = flat(small_model())
        model, result = self.run(0.01, stop_at_budget=True)
        assert (result.ledger.steps, result.history) == (0, [])
        assert torch.equal(flat(model), before)


class TestSchedules:
    def test_schedulers_step_after_epochs_or_steps(self):
        for per, halvings in (("epoch", (0, 1, 2, 3)), ("step", (9, 19, 29, 39))):
            model = small_model()
            optimizer = plain_sgd(model)
            _, result = run(model, optimizer, scheduler=StepLR(optimizer, 1, 0.5), scheduler_per=per)
            assert [row["learning_rate"] for row in result.history] == [0.5 ** (1 + k) for k in halvings]

    def test_the_private_update_follows_them(self):
        model = small_model()
        optimizer = plain_sgd(model)
        weights = []
        scheduler = StepLR(optimizer, 10, 0.0)
        run(
            model,
            optimizer,
            scheduler=scheduler,
            scheduler_per="step",
            callbacks=[Functions(on_step=lambda *_: weights.append(flat(model)))],
        )
        assert not torch.equal(weights[8], weights[9])
        assert all(torch.equal(weights[9], later) for later in weights[10:])

    def test_unfit_schedulers_are_refused(self):
        model = small_model()
        optimizer = plain_sgd(model)
        with pytest.raises(InvalidInput, match="scheduler_per must be one of epoch, step; got 'batch'"):
            run(model, optimizer, scheduler=StepLR(optimizer, 1), scheduler_per="batch")
        with pytest.raises(InvalidInput, match=r"scheduler must be a .* schedule of the step counter; got 'ReduceLR"):
            run(model, optimizer, scheduler=ReduceLROnPlateau(optimizer))
        with pytest.raises(InvalidInput, match=r"scheduler must be a .* schedule of the step counter; got 'int'"):
            run(model, optimizer, scheduler=3)
        with pytest.raises(TrainingMisuse, match="scheduler must be one of this optimizer"):
            run(model, optimizer, scheduler=StepLR(plain_sgd(model), 1))


class TestDisplay:
    def test_a_bar_shows_steps_and_the_newest_row(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
        run(callbacks=[ProgressBar()], evaluate=lambda model: {"test": 0.875}, delta=1e-3, accountant="rdp")
        assert "40/40" in shown.getvalue()
        assert "test 0.875" in shown.getvalue()
        assert "epsilon (proven) 2.2" in shown.getvalue()

    def test_a_bar_can_be_given_and_used_again(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
        bar = ProgressBar()
        run(callbacks=[bar], steps=3)
        run(callbacks=[bar], steps=5)
        assert "3/3" in shown.getvalue()
        assert "5/5" in shown.getvalue()

    def test_tensorboard_gets_the_history_and_nothing_else(self, tmp_path):
        pytest.importorskip("tensorboard", reason="extra tensorboard is not installed")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        _, result = run(
            callbacks=[TensorBoard(tmp_path)], evaluate=measured([0.1, 0.2, 0.3, 0.4]), delta=1e-3, accountant="rdp"
        )
        events = EventAccumulator(str(tmp_path)).Reload()
        assert set(events.Tags()["scalars"]) == {"epoch", "learning_rate", "epsilon (proven)", "test"}
        assert [(each.step, each.value) for each in events.Scalars("test")] == [
            (10 * (i + 1), pytest.approx(value, rel=1e-6)) for i, value in enumerate([0.1, 0.2, 0.3, 0.4])
        ]
        assert events.Scalars("epsilon (proven)")[-1].value == pytest.approx(result.history[-1]["epsilon"], rel=1e-6)
        assert all(not kept for name, kept in events.Tags().items() if name != "scalars")

    def test_without_the_extra_the_message_says_how_to_get_it(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(InvalidInput, match=r"pip install 'tacit\[tensorboard\]'"):
            TensorBoard(tmp_path)
