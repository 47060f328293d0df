"""Facts of a run of `fit`: what it enforces, what it checks, and what makes a fact assumed."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy as torch_cross_entropy
from torch.utils.data import Dataset, TensorDataset

from tacit.accounting import FACTS, How, Ledger, accountant
from tacit.accounting.facts import PUBLIC
from tacit.errors import InvalidInput, MixesRecords, UnsupportedModel
from tacit.gradients.model_probe import ModelProbe
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.training import Callback, EarlyStopping, Functions, fit
from tacit.training.captured import Memory
from tests.training.cases import blobs, cross_entropy, plain_sgd, small_model

WEIGHTS = torch.tensor([1.0, 2.0])


def run(inputs=None, targets=None, model=None, **changes):
    model = model if model is not None else small_model()
    data = blobs() if inputs is None else (inputs, targets)
    settings = {"loss": cross_entropy, "clip_norm": 0.8, "noise_multiplier": 1.3, "batch_size": 20, "steps": 6}
    return fit(model, *data, optimizer=plain_sgd(model), **(settings | changes))


def assumed(result):
    return [fact.id for fact in result.ledger.facts.assumed]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.bool])
def test_memory_is_compared_whatever_the_type(dtype):
    """NumPy has no name for some types, so that their bytes are compared."""
    value = torch.ones(20, 3).to(dtype)
    own = Memory(value[:10])
    assert [own.overlaps(each) for each in (value, value[9:, 1], value[10:], value.clone())] == [
        True,
        True,
        False,
        False,
    ]
    assert [own.is_all_of(each) for each in (value[:10], value)] == [True, False]
    assert not Memory(value[:, :1]).overlaps(value[:, 1:])


def test_every_fact_is_stated_and_none_is_assumed():
    result = run()
    assert [fact.id for fact in result.ledger.facts] == list(FACTS)
    assert assumed(result) == []
    assert result.ledger.standing is Standing.PROVEN
    assert result.ledger.facts["model_rows"].how is How.ENFORCED


@pytest.mark.parametrize(
    "factor",
    [
        lambda out: 2 if len(out) > 39 else 1,  # The largest batch has 39, and could have had one record more.
        lambda out: torch.rand(len(out)).sum(),
        lambda out: torch.randint(0, len(out), (1,)).sum(),
    ],
)
@pytest.mark.parametrize("place", ["loss", "model"])
def test_what_follows_the_number_of_records_drawn_is_no_construction(factor, place):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = small_model()

        def forward(self, x):
            return self.inner(x) * (factor(x) if place == "model" else 1)

    def loss(outputs, targets):
        return cross_entropy(outputs, targets) * (factor(outputs) if place == "loss" else 1)

    found = run(model=Scaled(), loss=loss, batch_size=30, steps=40, stream=SeededStream(2), engine="eager")
    fact = found.ledger.facts["numbers_read"]
    assert fact.how is How.ASSUMED
    assert "follows the number of records drawn" in fact.says
    assert "test_fit_facts.py:" in fact.says


@pytest.mark.parametrize(("rate", "how"), [("size", How.ASSUMED), ("step", How.ENFORCED)])
def test_a_callback_that_sets_a_rate_by_the_size_of_the_last_batch_is_noticed(rate, how):
    model, last = small_model(), {}
    optimizer = plain_sgd(model)

    class SetsRate(Callback):
        def on_step(self, done, total):
            optimizer.param_groups[0]["lr"] = 0.01 * (last["size"] if rate == "size" else 1 - done / total)

    def loss(outputs, targets):
        last["size"] = len(outputs)
        return cross_entropy(outputs, targets)

    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "batch_size": 20, "steps": 100}
    found = fit(model, *blobs(), loss=loss, optimizer=optimizer, callbacks=[SetsRate()], **settings)
    assert found.ledger.facts["numbers_read"].how is how


def test_draws_of_each_record_and_sizes_leave_the_word():
    def loss(outputs, targets):
        return cross_entropy(outputs.view(len(outputs), -1), targets) * torch.rand(outputs.shape[0])

    assert run(loss=loss, steps=20).ledger.standing is Standing.PROVEN


def test_a_seeded_run_is_claimed():
    result = run(stream=SeededStream(1))
    assert "randomness" in assumed(result)
    assert result.ledger.standing is Standing.CLAIMED


def test_weights_are_compared_before_every_step():
    fact = run().ledger.facts["weights"]
    assert (fact.how, fact.times, fact.last_step) == (How.CHECKED, 6, 6)


class ChangesWeights(Callback):
    """Writes into a weight, in place or past the version counter."""

    def __init__(self, model, write):
        self.weight, self.write = next(model.parameters()), write

    def on_step(self, done, total):
        if done == 3:
            self.write(self.weight)


@pytest.mark.parametrize(
    "write",
    [lambda weight: weight.data.add_(1e-6), lambda weight: weight.detach().clamp_(-1e-3, 1e-3)],
    ids=["data", "in place"],
)
def test_a_callback_that_changes_weights_makes_the_run_conditional(write):
    model = small_model()
    result = run(model=model, callbacks=[ChangesWeights(model, write)])
    assert assumed(result) == ["weights"]
    assert result.ledger.standing is Standing.CONDITIONAL


def test_a_callback_that_gives_weights_back_stays_proven():
    model = small_model()

    class Swap(Callback):
        def on_step(self, done, total):
            kept = {name: value.clone() for name, value in model.state_dict().items()}
            with torch.no_grad():
                for value in model.parameters():
                    value.zero_()
            model.load_state_dict(kept)

    assert run(model=model, callbacks=[Swap()]).ledger.standing is Standing.PROVEN


class WeightedLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(2))

    def forward(self, outputs, targets):
        return torch_cross_entropy(outputs, targets, weight=self.scale, reduction="none")


def with_global(outputs, targets):
    return torch_cross_entropy(outputs, targets, weight=WEIGHTS, reduction="none")


def with_default(outputs, targets, weight=WEIGHTS):
    return torch_cross_entropy(outputs, targets, weight=weight, reduction="none")


def with_helper(outputs, targets):
    return with_global(outputs, targets)


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (with_global, "WEIGHTS"),
        (with_helper, "WEIGHTS"),
        (with_default, "weight"),
        (WeightedLoss(), "scale"),
        (nn.CrossEntropyLoss(weight=WEIGHTS, reduction="none"), "weight"),
        (functools.partial(torch_cross_entropy, weight=WEIGHTS, reduction="none"), "weight"),
    ],
    ids=["global", "helper", "default", "module", "torch module", "partial"],
)
def test_an_undeclared_tensor_in_the_loss_is_named_and_may_be_declared(loss, name):
    result = run(loss=loss)
    fact = result.ledger.facts["loss_rows"]
    assert fact.how is How.ASSUMED
    assert f"loss reads {name}, of unknown origin" in fact.says
    value = loss.scale if isinstance(loss, WeightedLoss) else WEIGHTS
    declared = run(loss=loss, public={"class weights": value}).ledger.facts["loss_rows"]
    assert (declared.how, declared.says) == (How.DECLARED, "loss reads public class weights")


def test_a_loss_that_mixes_rows_is_refused_before_a_release():
    def centred(outputs, targets):
        losses = cross_entropy(outputs, targets)
        return losses - losses.mean().detach() * outputs[:, 0]

    with pytest.raises((UnsupportedModel, InvalidInput)):
        run(loss=centred)


class Switched(nn.Module):
    """A layer that a buffer switches to another program where `read` says so."""

    switch: torch.Tensor

    def __init__(self, read):
        super().__init__()
        self.layer, self.read, self.passes = small_model(), read, 0
        self.register_buffer("switch", torch.zeros(1))

    def forward(self, x):
        out = self.layer(x)
        return out - out.mean(0) if self.read(self.switch) else out * (1 + self.switch)


def switching(model, step):
    return Functions(on_step=lambda taken, _: model.switch.fill_(float(taken >= step)))


@pytest.mark.parametrize(
    "read",
    [
        lambda switch: switch > 0,
        lambda switch: switch.numpy()[0] > 0,
        lambda switch: torch.allclose(switch, torch.ones(1)),
        lambda switch: len(torch.where(switch > 0)[0]),
        lambda switch: len(switch[switch > 0]),
    ],
)
def test_a_program_that_a_callback_switches_by_a_buffer_is_refused_when_it_runs(read):
    model, ledger = Switched(read), Ledger()
    with pytest.raises(MixesRecords, match=r"aten\.mean"):
        run(model=model, ledger=ledger, callbacks=[switching(model, 4)])
    assert ledger.standing is Standing.CLAIMED


def test_values_of_a_buffer_that_no_pass_reads_as_numbers_are_no_new_program(monkeypatch):
    model, probes, asked = Switched(lambda _: False), [], ModelProbe.__call__

    def counted(probe, *given, **named):
        probes.append(1)
        return asked(probe, *given, **named)

    monkeypatch.setattr(ModelProbe, "__call__", counted)
    result = run(model=model, callbacks=[switching(model, 1)], steps=20)
    assert assumed(result) == []
    assert len(probes) <= 4


def test_training_data_in_evaluate_is_noticed():
    x, y = blobs()

    def on_training_data(model):
        return {"loss": float(cross_entropy(model(x), y).mean())}

    result = run(x, y, evaluate=on_training_data)
    assert assumed(result) == ["numbers_read", "released"]
    assert "evaluate reads x, which is trained on" in result.ledger.facts["numbers_read"].says
    part = {"rows": x[:10].view(10, -1)}
    held = run(x, y, evaluate=lambda model: {"out": float(model(part["rows"]).sum())})
    assert "evaluate calls the model on training data" in held.ledger.facts["released"].says


def test_held_out_rows_of_the_same_tensor_are_no_training_data():
    x, y = blobs()
    result = run(x[:80], y[:80], evaluate=lambda model: {"out": float(model(x[80:]).sum())})
    assert assumed(result) == []


def test_a_callback_that_holds_the_training_data_is_noticed():
    x, y = blobs()

    class Holds(Callback):
        def __init__(self):
            self.data = {"inputs": x}

    assert assumed(run(x, y, callbacks=[Holds()])) == ["numbers_read", "released"]


class Measures(Callback):
    """Measures the model after every epoch, and ends the run."""

    def __init__(self, rows):
        self.rows = rows

    def on_epoch(self, row):
        self.out = float(self.model(self.rows).detach().sum())
        return "enough"


@pytest.mark.parametrize(
    ("rows", "doubts"),
    [(lambda x: x[:5].clone(), []), (lambda x: x[:5], ["numbers_read", "released"])],
    ids=["copies", "training records"],
)
def test_records_that_a_callback_measures_on_are_noticed(rows, doubts):
    x, y = blobs()
    measures = Measures(rows(x))
    measures.model = small_model()
    result = run(x, y, model=measures.model, callbacks=[measures])
    assert assumed(result) == doubts
    public = [sentence for sentence in result.ledger.assumptions if sentence.startswith(PUBLIC)]
    assert public == [
        "Taken as public: the records that a callback measures on between steps.",
        'Taken as public: why the run ended: "enough".',
    ]


def test_records_of_evaluate_are_named_and_a_test_set_held_apart_by_tacit_is_not():
    def evaluate(model):
        return {"out": float(model(blobs()[0]).sum())}

    said = "Taken as public: the records that evaluate measures on between steps."
    assert said in run(evaluate=evaluate).ledger.assumptions
    evaluate.__module__ = "tacit.runs.builders"
    assert said not in run(evaluate=evaluate).ledger.assumptions


class Hidden(Dataset):
    """Records that no attribute of one entry per record holds."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return blobs()[0][index], blobs()[1][index]


@pytest.mark.parametrize(
    ("data", "how"), [(lambda: TensorDataset(*blobs()), How.ENFORCED), (Hidden, How.ASSUMED)], ids=["tensors", "hidden"]
)
def test_rows_of_a_data_set_are_watched_or_assumed(data, how):
    assert run(data()).ledger.facts["rows"].how is how


def test_a_callback_that_stops_costs_the_whole_plan():
    values = iter([0.5, 0.4, 0.3, 0.2])
    result = run(steps=40, evaluate=lambda model: {"test": next(values)}, callbacks=[EarlyStopping("test", patience=1)])
    planned = accountant("pld")(Gaussian(1.3).poisson(0.1) * 40).epsilon(1e-3)
    assert result.taken < 40
    assert float(accountant("pld")(result.ledger).epsilon(1e-3)) == pytest.approx(float(planned))


def test_a_callback_that_raises_costs_the_whole_plan():
    class Stop(Exception):
        pass

    class Raises(Callback):
        def on_step(self, taken, planned):
            if taken == 2:
                raise Stop

    ledger = Ledger()
    with pytest.raises(Stop):
        run(ledger=ledger, callbacks=[Raises()])
    assert ledger.steps == 6


def test_the_facts_hold_for_two_runs_on_one_ledger():
    first = run(loss=with_global, ledger=Ledger(scope="fixed"))
    second = run(ledger=first.ledger)
    assert assumed(second) == ["loss_rows"]
    assert assumed(run(ledger=run().ledger)) == ["settings"]


class WarmUp:
    def __init__(self):
        self.calls = 0

    def __call__(self, outputs, targets):
        self.calls += 1
        return min(1.0, 0.1 * self.calls) * cross_entropy(outputs, targets)


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_a_loss_that_counts_its_calls_is_not_taken_for_one_that_mixes(engine):
    model = small_model()
    given = {"loss": WarmUp(), "optimizer": plain_sgd(model), "clip_norm": 1.0, "noise_multiplier": 1.0}
    found = fit(model, *blobs(), **given, steps=4, batch_size=20, engine=engine)
    assert found.ledger.standing is Standing.PROVEN


def test_a_schedule_that_reads_training_data_is_noticed():
    x, y = torch.randn(60, 3), torch.randint(0, 2, (60,))
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def rate(step):
        return float(nn.functional.cross_entropy(model(x), y))

    found = fit(
        model, x, y, loss=nn.CrossEntropyLoss(reduction="none"), optimizer=optimizer, clip_norm=1.0,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, rate), noise_multiplier=1.0, batch_size=20, steps=4,
    )  # fmt: skip
    assert found.ledger.standing is Standing.CONDITIONAL
