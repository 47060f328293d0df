"""A run that stops and goes on is the run that never stopped, and its ledger never says less than what ran."""

import math
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR, OneCycleLR

from tacit.accounting import Ledger, accountant
from tacit.clipping import AdaptiveClip, AutomaticClip, PerLayerClip
from tacit.errors import BudgetExceeded, InvalidInput, TrainingMisuse
from tacit.mechanisms import Gaussian, Laplace
from tacit.noise import SecureStream, SeededStream
from tacit.relation import Relation
from tacit.sampling import GroupedPoissonSampling, TruncatedPoissonSampling
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import BestModel, EarlyStopping, ExponentialNoise, Functions, fit, read_checkpoint
from tacit.training.resume import LOST
from tests.training.cases import blobs, cross_entropy, differ, flat, plain_sgd, small_model

STEP = Gaussian(1.3).poisson(0.1)


class Crash(Exception):
    pass


def dropout_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 2))


def momentum(model):
    return SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True)


def adam(model):
    return Adam(model.parameters(), lr=0.02, amsgrad=True)


def run(path=None, model=None, optimizer=plain_sgd, scheduler=None, at=None, do=None, callbacks=(), **changes):
    """`fit` on the blobs; after step `at`, `do()`."""
    model = model if model is not None else small_model()
    inner = optimizer(model)
    settings = {"clip_norm": 0.8, "noise_multiplier": 1.3, "batch_size": 20, "steps": 23, "loss": cross_entropy}
    settings |= {"checkpoint": path, "scheduler": scheduler(inner) if scheduler else None}

    def on_step(taken, planned):
        if taken == at:
            do()

    settings |= {"callbacks": [Functions(on_step=on_step), *callbacks]}
    result = fit(model, *blobs(), optimizer=inner, **(settings | changes))
    return model, inner, result


def stopped(path, at, **changes):
    """The run up to Ctrl-C in step `at`."""
    with pytest.raises(KeyboardInterrupt):
        run(path, at=at, do=lambda: signal.raise_signal(signal.SIGINT), **changes)


def crash():
    raise Crash


def state_of(optimizer):
    return [value for slots in optimizer.state_dict()["state"].values() for value in slots.values()]


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("optimizer", "scheduler", "per"),
    [
        (plain_sgd, None, "epoch"),
        (momentum, lambda inner: MultiStepLR(inner, [4, 9, 15]), "step"),
        (adam, lambda inner: CosineAnnealingLR(inner, 3), "epoch"),
        (lambda model: Adagrad(model.parameters(), lr=0.1), None, "epoch"),
        (lambda model: RMSprop(model.parameters(), lr=0.01), lambda i: OneCycleLR(i, 0.1, total_steps=23), "step"),
    ],
)
@pytest.mark.parametrize("at", [1, 10, 13])
def test_a_stopped_seeded_run_goes_on_to_the_same_weights_and_ledger(tmp_path, optimizer, scheduler, per, at):
    changes = {"optimizer": optimizer, "scheduler": scheduler, "scheduler_per": per, "delta": 1e-3}
    changes |= {"accountant": "rdp", "evaluate": lambda model: {"test": float(model(blobs()[0]).mean())}}
    torch.manual_seed(3)
    model = dropout_model()
    whole, inner, expected = run(model=model, stream=SeededStream(5), **changes)
    path = tmp_path / "run.safetensors"
    stopped(path, at, model=dropout_model(), stream=SeededStream(5), **changes)
    torch.rand(100)
    model, resumed, result = run(path, dropout_model(), stream=SeededStream(5), resume=True, **changes)
    assert torch.equal(flat(model), flat(whole))
    assert all(torch.equal(a, b) for a, b in zip(state_of(resumed), state_of(inner), strict=True))
    assert resumed.param_groups[0]["lr"] == inner.param_groups[0]["lr"]
    assert result.ledger.hash == expected.ledger.hash
    assert result.history == expected.history
    assert [row["epsilon"].standing for row in result.history] == [Standing.CLAIMED] * 3
    assert read_checkpoint(path).ledger.hash == read_checkpoint(path).spent.hash == expected.ledger.hash


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": "shuffled"},
        {"sampling": "random_allocation"},
        {"sampling": "balanced_iteration"},
        {"sampling": "fixed_size", "ledger": lambda: Ledger(relation="replace_one")},
        {"sampling": GroupedPoissonSampling([i // 4 for i in range(200)]), "batch_size": 5},
        {"sampling": TruncatedPoissonSampling(cap=22)},
        {"clip_norm": None, "clipping": AdaptiveClip(0.5, learning_rate=0.5)},
        {"clip_norm": None, "clipping": PerLayerClip(0.5)},
        {"clip_norm": None, "clipping": AutomaticClip()},
        {"noise_multiplier": ExponentialNoise(2.0, 1.0)},
        {"precision": "bfloat16"},
        {"max_physical_batch_size": 7},
    ],
    ids=lambda changes: next(reversed(changes)),
)
def test_every_kind_of_run_goes_on(tmp_path, changes):
    def fresh():
        return {name: value() if name == "ledger" else value for name, value in changes.items()}

    whole, _, expected = run(stream=SeededStream(5), optimizer=adam, **fresh())
    path = tmp_path / "run.safetensors"
    stopped(path, 13, stream=SeededStream(5), optimizer=adam, **fresh())
    model, _, result = run(path, stream=SeededStream(5), optimizer=adam, resume=True, **fresh())
    assert torch.equal(flat(model), flat(whole))
    assert result.ledger.hash == expected.ledger.hash


@pytest.mark.parametrize("kind", [lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.5, batch_first=True), lambda: Jitter()])
def test_a_model_with_randomness_of_its_own_goes_on(tmp_path, kind):
    def model():
        torch.manual_seed(0)
        return Last(kind())

    torch.manual_seed(3)
    whole, _, _ = run(model=model(), stream=SeededStream(5), steps=9)
    path = tmp_path / "run.safetensors"
    stopped(path, 4, model=model(), stream=SeededStream(5), steps=9)
    resumed, _, _ = run(path, model=model(), stream=SeededStream(5), steps=9, resume=True)
    assert torch.equal(flat(resumed), flat(whole))


class Jitter(nn.Module):
    """Noise on the activations, drawn from torch's generator by something other than dropout."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x + 0.1 * torch.randn_like(x)), None


class Last(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x[:, None])[0][:, -1])


def test_a_shuffled_run_deals_out_the_rest_of_its_pass(tmp_path):
    """Of 10 batches a pass, 4 before the interruption and 6 after it hold every record once."""
    path = tmp_path / "run.safetensors"
    stopped(path, 4, sampling="shuffled", steps=20)
    left = read_checkpoint(path).state["run"]["sampler"]["left"]
    assert len(set(left.tolist())) == 120
    _, _, result = run(path, sampling="shuffled", steps=20, resume=True)
    assert read_checkpoint(path).state["run"]["sampler"]["left"].tolist() == []
    (entry,) = result.ledger.entries
    assert entry.steps == 20
    assert result.ledger.mechanism.accountable().mu(Relation.ADD_REMOVE) == pytest.approx(math.sqrt(2) / 1.3)


def test_an_interrupted_epoch_of_random_allocation_is_not_written_down_but_counts_whole(tmp_path):
    """Of 10 batches an epoch, 4 and then 16 in two more epochs: three in all, of which the first is unfinished."""
    path = tmp_path / "run.safetensors"
    stopped(path, 4, sampling="random_allocation", steps=20)
    assert read_checkpoint(path).state["run"]["sampler"] == {"unfinished": True}
    _, _, result = run(path, sampling="random_allocation", steps=20, resume=True)
    epochs = [(entry.mechanism.series, entry.steps) for entry in result.ledger.entries]
    assert epochs == [(0, 4), (1, 16)]
    assert [times for _, times in result.ledger.mechanism.accountable().steps] == [1 + 2]


def test_an_interrupted_epoch_ends_a_noise_schedule(tmp_path):
    path, noise = tmp_path / "run.safetensors", [1.0] * 10 + [2.0] * 10
    stopped(path, 4, sampling="random_allocation", steps=20, noise_multiplier=noise)
    with pytest.raises(InvalidInput, match="checkpoint must be at the end of a pass"):
        run(path, sampling="random_allocation", steps=20, noise_multiplier=noise, resume=True)


def test_passes_that_were_broken_by_a_crash_count_as_whole(tmp_path):
    """Lost steps 9 and 10 end the first pass, 11 to 16 begin the second: a record may have been in one of each."""
    path = tmp_path / "run.safetensors"
    changes = {"sampling": "shuffled", "steps": 20, "checkpoint_every": 8}
    with pytest.raises(Crash):
        run(path, at=12, do=crash, **changes)
    saved = read_checkpoint(path)
    assert saved.step == 8
    _, _, result = run(path, resume=True, **changes)
    assert [entry.steps for entry in result.ledger.entries] == [8, 20, 12]
    assert saved.spent.steps == 28
    assert result.ledger.mechanism.accountable().mu(Relation.ADD_REMOVE) == pytest.approx(math.sqrt(2 + 2) / 1.3)


def test_a_resumed_run_goes_on_with_its_own_series(tmp_path):
    """Also on a ledger where another run has been built; the series of the run before it stays whole by itself."""
    path, ledger = tmp_path / "run.safetensors", Ledger()
    changes = {"sampling": "shuffled", "checkpoint_every": 8}
    run(steps=3, sampling="shuffled", ledger=ledger)
    with pytest.raises(Crash):
        run(path, at=12, do=crash, steps=20, ledger=ledger, **changes)
    _, _, result = run(path, resume=True, steps=20, **changes)
    found = [(entry.mechanism.series, entry.steps, entry.note) for entry in result.ledger.entries]
    assert found == [(0, 3, "training"), (1, 8, "training"), (1, 20, LOST), (1, 12, "training")]
    assert result.ledger.mechanism.accountable() == Gaussian(1.3) * (1 + 4)


@pytest.mark.slow
def test_a_budget_over_a_noise_schedule_goes_on_with_the_steps_that_are_left(tmp_path):
    path = tmp_path / "run.safetensors"
    noise = [3.0] * 20 + [0.8] * 20
    changes = {"noise_multiplier": noise, "steps": 40, "target": Epsilon(2.5, 1e-3), "accountant": "rdp"}
    changes |= {"stop_at_budget": True}
    _, _, whole = run(**changes)
    assert 20 < whole.ledger.steps < 40
    stopped(path, 15, **changes)
    _, _, result = run(path, resume=True, **changes)
    assert result.ledger.entries == whole.ledger.entries


def test_a_seeded_run_that_crashed_takes_the_lost_steps_again(tmp_path):
    whole, _, expected = run(stream=SeededStream(5))
    path = tmp_path / "run.safetensors"
    with pytest.raises(Crash):
        run(path, stream=SeededStream(5), checkpoint_every=4, at=10, do=crash)
    assert (read_checkpoint(path).step, read_checkpoint(path).spent.steps) == (8, 12)
    model, _, result = run(path, stream=SeededStream(5), resume=True)
    assert torch.equal(flat(model), flat(whole))
    assert result.ledger.hash == expected.ledger.hash


def test_steps_lost_in_a_crash_count_as_spent(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(Crash):
        run(path, checkpoint_every=4, at=10, do=crash)
    _, _, result = run(path, checkpoint_every=4, resume=True)
    entries = [(entry.mechanism, entry.steps, entry.note) for entry in result.ledger.entries]
    assert entries == [(STEP, 8, "training"), (STEP, 4, "lost in an interruption"), (STEP, 15, "training")]
    assert read_checkpoint(path).spent.hash == result.ledger.hash


def test_the_checkpoint_on_disk_covers_every_step_that_was_taken(tmp_path):
    path = tmp_path / "run.safetensors"
    seen = []
    model = small_model()

    def look(taken, planned):
        saved = read_checkpoint(path)
        seen.append((taken, saved.step, saved.spent.steps))

    fit(
        model,
        *blobs(),
        loss=cross_entropy,
        optimizer=plain_sgd(model),
        clip_norm=1.0,
        noise_multiplier=1.0,
        batch_size=20,
        steps=11,
        checkpoint=path,
        checkpoint_every=4,
        callbacks=[Functions(on_step=look)],
    )
    assert all(spent >= taken >= step for taken, step, spent in seen)
    assert [step for _, step, _ in seen] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert read_checkpoint(path).spent.steps == 11
    assert read_checkpoint(path).finished


def test_a_crash_before_the_run_goes_far_is_counted_each_time(tmp_path):
    path = tmp_path / "run.safetensors"
    for _ in range(3):
        with pytest.raises(Crash):
            run(path, checkpoint_every=5, at=2, do=crash, resume=True)
    _, _, result = run(path, checkpoint_every=5, resume=True)
    assert result.ledger.steps == 3 * 5 + 23


def test_a_resumed_secure_run_never_repeats_noise(tmp_path):
    path, copy = tmp_path / "run.safetensors", tmp_path / "copy.safetensors"
    stopped(path, 10)
    shutil.copy(path, copy)
    first, _, result = run(path, resume=True)
    second, _, _ = run(copy, resume=True)
    assert differ(flat(first), flat(second))
    assert result.ledger.unsafe == []
    assert result.ledger.steps == 23
    assert read_checkpoint(path).state["run"] == {"taken": 23, "series": 0, "sampler": {}, "stream": None}


def test_nothing_of_a_stream_but_a_seeded_position_is_written(tmp_path):
    path = tmp_path / "run.safetensors"
    stream = SeededStream(8675309)
    stopped(path, 10, stream=stream)
    kept = read_checkpoint(path).state["run"]["stream"]
    assert kept.keys() == {"drawn", "fingerprint"}
    assert b"8675309" not in path.read_bytes()
    assert stream._key not in path.read_bytes()


@pytest.mark.parametrize("stream", [lambda: None, SecureStream])
def test_a_seeded_run_that_goes_on_securely_counts_what_was_lost(tmp_path, stream):
    path = tmp_path / "run.safetensors"
    with pytest.raises(Crash):
        run(path, stream=SeededStream(5), checkpoint_every=4, at=10, do=crash)
    _, _, result = run(path, stream=stream(), resume=True)
    assert result.ledger.steps == 27
    assert result.ledger.unsafe == ["unsafe_seeded_stream"]


def test_a_stopped_run_is_continued_in_the_ledger_it_was_given(tmp_path):
    path = tmp_path / "run.safetensors"
    ledger = Ledger.of(Laplace(2.0))
    stopped(path, 10, ledger=ledger)
    assert ledger.steps == 11
    _, _, result = run(path, ledger=ledger, resume=True)
    assert result.ledger is ledger
    assert [entry.steps for entry in ledger.entries] == [1, 23]
    other = Ledger.of(Laplace(3.0))
    with pytest.raises(InvalidInput, match=r"ledger must be one that the later ledger of 24 steps begins with; got 1"):
        run(path, ledger=other, resume=True)


@pytest.mark.slow
def test_a_calibrated_run_keeps_its_noise(tmp_path):
    path = tmp_path / "run.safetensors"
    changes = {"noise_multiplier": None, "target": Epsilon(3.0, 1e-3), "accountant": "rdp"}
    _, _, expected = run(**changes)
    ledger = Ledger()
    stopped(path, 10, ledger=ledger, **changes)
    _, _, result = run(path, ledger=ledger, resume=True, **changes)
    assert result.plan == expected.plan
    assert 2.99 < accountant("rdp")(result.ledger).epsilon(1e-3) <= 3.0


@pytest.mark.slow
def test_a_budget_holds_over_interruptions(tmp_path):
    path = tmp_path / "run.safetensors"
    target = Epsilon(1.5, 1e-3)
    changes = {"target": target, "accountant": "rdp", "steps": 500, "checkpoint_every": 7}
    _, _, whole = run(stop_at_budget=True, **changes)
    with pytest.raises(Crash):
        run(path, at=10, do=crash, **changes)
    ledger = Ledger()
    with pytest.raises(BudgetExceeded, match="would cross"):
        run(path, resume=True, ledger=ledger, **changes)
    assert ledger.steps == whole.ledger.steps
    assert target.met(accountant("rdp")(ledger))
    saved = read_checkpoint(path)
    assert not saved.finished
    assert saved.step == whole.ledger.steps - 7
    assert saved.spent.hash == saved.ledger.hash == ledger.hash
    _, _, result = run(path, resume=True, stop_at_budget=True, **changes)
    assert "would cross the privacy budget" in result.stopped
    assert result.ledger.hash == ledger.hash


def test_a_finished_run_takes_no_further_step(tmp_path):
    path = tmp_path / "run.safetensors"
    model, _, first = run(path)
    before = path.read_bytes()
    again, _, second = run(path, small_model(3), resume=True)
    assert torch.equal(flat(model), flat(again))
    assert (second.ledger.hash, second.history) == (first.ledger.hash, first.history)
    assert path.read_bytes() == before


def test_callbacks_go_on_where_they_were(tmp_path):
    path = tmp_path / "run.safetensors"
    values = [0.3, 0.8, 0.5, 0.6, 0.7, 0.9]

    def arguments(model, given):
        callbacks = [EarlyStopping("test", patience=3), BestModel(model, "test")]
        return {"model": model, "callbacks": callbacks, "evaluate": lambda _: {"test": given.pop(0)}, "steps": 60}

    given = list(values)
    stopped(path, 35, **arguments(small_model(), given))
    best = read_checkpoint(path).state["callbacks"][1]["weights"]
    model, _, result = run(path, resume=True, **arguments(small_model(1), given))
    assert (result.taken, result.ledger.steps) == (50, 60)
    assert result.stopped == "test has not become better than 0.8 for 3 epochs"
    assert torch.equal(flat(model), torch.cat([value.flatten() for value in best.values()]))
    assert read_checkpoint(path).finished
    assert run(path, resume=True, **arguments(small_model(), []))[2].stopped == result.stopped


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps": 24}, "steps must be 23, with which the run of the checkpoint began; got 24"),
        ({"noise_multiplier": 1.2}, "noise_multiplier must be 1.3, with"),
        ({"clip_norm": 0.9}, r"clip must be .*0\.8\}, with .*; got .*0\.9"),
        ({"batch_size": 21}, "sample_rate must be 0.1, with"),
        ({"optimizer": adam}, "optimizer must be SGD, with .*; got Adam"),
        ({"scheduler": lambda inner: MultiStepLR(inner, [3])}, "scheduler must be none, with .*; got MultiStepLR"),
        ({"callbacks": [EarlyStopping("test")]}, "callbacks must be none, with .*; got EarlyStopping"),
        ({"model": nn.Linear(4, 2)}, r"model weight must be nothing, with .*; got torch.float32 \(2, 4\)"),
        ({"model": nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))}, r"\(6, 4\), with .*\(5, 4\)"),
        ({"stream": SeededStream(6)}, "stream must be the seeded stream that the run began with"),
        ({"resume": False}, "checkpoint must be a new file unless resume is given"),
        ({"checkpoint": None}, "checkpoint must be given to resume from it"),
        ({"checkpoint_every": 0}, "checkpoint_every must be an integer >= 1"),
    ],
)
def test_another_run_is_refused_and_leaves_the_checkpoint(tmp_path, changes, sentence):
    path = tmp_path / "run.safetensors"
    stopped(path, 10, stream=SeededStream(5))
    before = path.read_bytes()
    model = changes.get("model", small_model(1))
    weights = flat(model)
    with pytest.raises(InvalidInput, match=sentence):
        run(path, **({"model": model, "resume": True, "stream": SeededStream(5)} | changes))
    assert torch.equal(flat(model), weights)
    assert path.read_bytes() == before


def test_other_data_are_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    stopped(path, 10)
    model = small_model()
    x, y = blobs(300)
    with pytest.raises(InvalidInput, match="records must be 200, with which the run of the checkpoint began; got 300"):
        fit(
            model,
            x,
            y,
            loss=cross_entropy,
            optimizer=plain_sgd(model),
            clip_norm=0.8,
            noise_multiplier=1.3,
            sample_rate=0.1,
            steps=23,
            checkpoint=path,
            resume=True,
        )


def test_a_full_disk_leaves_the_last_checkpoint_and_no_step_goes_past_it(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    taken = []

    def fill():
        taken.append(read_checkpoint(path))
        monkeypatch.setattr("os.fsync", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))

    with pytest.raises(OSError, match="No space left"):
        run(path, checkpoint_every=4, at=6, do=fill)
    monkeypatch.undo()
    saved = read_checkpoint(path)
    assert (saved.step, saved.spent.steps) == (4, 8)
    assert list(tmp_path.iterdir()) == [path]
    assert run(path, checkpoint_every=4, resume=True)[2].ledger.steps == 23 + 4


def test_two_processes_never_write_one_checkpoint(tmp_path):
    """The second counts what the first may have taken; the first may not take more."""
    path = tmp_path / "run.safetensors"
    taken = []
    with pytest.raises(TrainingMisuse, match=r"checkpoint must be written by one run at a time; got .* from another"):
        run(path, checkpoint_every=4, at=6, do=lambda: taken.append(run(path, checkpoint_every=4, resume=True)))
    (_, _, second), *_ = taken
    assert [entry.steps for entry in second.ledger.entries] == [4, 4, 19]
    assert read_checkpoint(path).spent.hash == second.ledger.hash
    other = tmp_path / "new.safetensors"
    with pytest.raises(TrainingMisuse, match="one run at a time"):
        run(other, callbacks=[Functions(on_plan=lambda plan: shutil.copy(path, other))])


def test_a_second_interrupt_is_not_waited_for(tmp_path):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second interrupt was held back")

    # A shell's background jobs ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run.safetensors", checkpoint_every=4, at=6, do=twice)
    assert read_checkpoint(tmp_path / "run.safetensors").step == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SCRIPT = """
import sys
from tests.training.cases import blobs, cross_entropy, plain_sgd, small_model
from tacit.training import Functions, fit
model = small_model()
fit(model, *blobs(), loss=cross_entropy, optimizer=plain_sgd(model), clip_norm=0.8, noise_multiplier=1.3,
    batch_size=20, steps=100_000, checkpoint=sys.argv[1], checkpoint_every=3,
    callbacks=[Functions(on_step=lambda taken, planned: print(taken, flush=True))])
"""


@pytest.mark.slow
def test_a_killed_process_leaves_a_readable_checkpoint_that_covers_its_steps(tmp_path):
    path = tmp_path / "run.safetensors"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    for _ in range(50):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    shown = [line for line in process.communicate(timeout=30)[0].splitlines() if line.isdigit()]
    taken = int(shown[-1]) if shown else 50
    saved = read_checkpoint(path)
    assert saved.step >= 48
    assert saved.step <= taken + 1
    assert saved.spent.steps >= taken
    assert not saved.finished
    ledger = Ledger()
    with pytest.raises(KeyboardInterrupt):
        run(
            path,
            resume=True,
            steps=100_000,
            checkpoint_every=3,
            ledger=ledger,
            at=saved.step + 10,
            do=lambda: signal.raise_signal(signal.SIGINT),
        )
    assert [entry.steps for entry in ledger.entries] == [saved.step, 3, 10]
