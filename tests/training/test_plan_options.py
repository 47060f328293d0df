"""One object of options means the same at every door, and what a door has no use for is refused."""

import inspect
import sys
from dataclasses import FrozenInstanceError, fields

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit.clipping import PerLayerClip
from tacit.errors import InvalidInput
from tacit.integrations.accelerate import prepare
from tacit.losses import sequence_classification
from tacit.noise import SeededStream
from tacit.opacus import PrivacyEngine
from tacit.tradeoff import Epsilon
from tacit.training import PlanOptions, fit, make_private, private_step, replayed_passes
from tacit.training.plan_options import PlanFields
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

X, Y = blobs(40)
DOORS = [fit, make_private, private_step, PrivacyEngine.make_private, PrivacyEngine.make_private_with_epsilon]


def by_fit(model, **given):
    fit(model, X, Y, loss=cross_entropy, optimizer=plain_sgd(model), stream=SeededStream(0), **given)


def by_step(model, **given):
    step = private_step(model, plain_sgd(model), cross_entropy, stream=SeededStream(0), **given)
    step(X[:10], Y[:10])


def loop(private):
    for inputs, targets in private.loader:
        cross_entropy(private.model(inputs), targets).backward()
        private.optimizer.step()


def by_loop(model, **given):
    loader = DataLoader(TensorDataset(X, Y), batch_size=10)
    loop(make_private(model, plain_sgd(model), loader, stream=SeededStream(0), **given))


def by_accelerate(model, **given):
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(X, Y), batch_size=10)
    loop(prepare(accelerator, model, plain_sgd(model), loader, stream=SeededStream(0), **given))


def by_engine(model, **given):
    module, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=plain_sgd(model),
        data_loader=DataLoader(TensorDataset(X, Y), batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        noise_generator=torch.Generator().manual_seed(0),
        **given,
    )
    for inputs, targets in loader:
        cross_entropy(module(inputs), targets).backward()
        optimizer.step()


COMMON = {"clip_norm": 0.5, "noise_multiplier": 1.0}
CALLS = [
    (by_fit, COMMON | {"batch_size": 10, "steps": 3, "sampling": "shuffled", "max_physical_batch_size": 4}),
    (by_step, COMMON | {"expected_batch_size": 10, "max_physical_batch_size": 4}),
    (by_loop, COMMON | {"epochs": 1, "sampling": "shuffled", "max_physical_batch_size": 4}),
    (by_accelerate, COMMON | {"epochs": 1, "sampling": "shuffled"}),
    (by_engine, {"epochs": 1, "sampling": "shuffled", "max_physical_batch_size": 4}),
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__qualname__)
def test_no_door_has_more_than_twenty_parameters_of_its_own(door):
    own = [each for each in inspect.signature(door).parameters.values() if each.kind is not each.VAR_KEYWORD]
    assert len([each for each in own if each.name != "self"]) <= 20


def test_keywords_are_the_fields_of_the_options():
    assert PlanFields.__annotations__.keys() == {each.name for each in fields(PlanOptions)}
    assert PlanFields.__annotations__ == {each.name: each.type for each in fields(PlanOptions)}


@pytest.mark.parametrize(("door", "given"), CALLS, ids=[door.__name__ for door, _ in CALLS])
def test_options_and_keywords_give_the_same_weights(door, given):
    whole, single, mixed = small_model(), small_model(), small_model()
    door(whole, options=PlanOptions(**given))
    door(single, **given)
    name, value = next(iter(given.items()))
    door(mixed, options=PlanOptions(**{**given, name: 7}), **{name: value})
    assert torch.equal(flat(whole), flat(single))
    assert torch.equal(flat(mixed), flat(single))
    assert not torch.equal(flat(whole), flat(small_model()))


@pytest.mark.parametrize(("door", "given"), CALLS, ids=[door.__name__ for door, _ in CALLS])
def test_an_unknown_keyword_is_refused_with_the_nearest_name(door, given):
    with pytest.raises(InvalidInput, match="max_physical_batch_size"):
        door(small_model(), **given, max_physical_batch=4)
    with pytest.raises(InvalidInput, match=r"options must be a PlanOptions; got \{"):
        door(small_model(), options=given)


def test_options_do_not_change_after_they_are_made():
    with pytest.raises(FrozenInstanceError):
        PlanOptions().steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "field",
    [
        {"sampling": "shuffled"},
        {"noise": "tree"},
        {"target": Epsilon(1.0, 1e-5)},
        {"accountant": "rdp"},
        {"epochs": 1.0},
        {"delta": 1e-5},
        {"precision": "bfloat16"},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_step_refuses_what_only_a_run_has(field):
    (name,) = field
    with pytest.raises(InvalidInput, match=f"{name} must be left out of private_step"):
        by_step(small_model(), **CALLS[1][1], **field)


@pytest.mark.parametrize(
    "divisor",
    [{"batch_size": 10}, {"expected_batch_size": 10}, {"sample_rate": 0.25, "public_size": 40}],
    ids=["batch_size", "expected_batch_size", "public_size"],
)
def test_a_step_takes_the_divisor_by_each_of_its_names(divisor):
    model, other = small_model(), small_model()
    by_step(model, **COMMON, **divisor)
    by_step(other, **COMMON, batch_size=10.0)
    assert torch.equal(flat(model), flat(other))


@pytest.mark.parametrize("divisor", [{}, {"sample_rate": 0.5}, {"batch_size": 10, "expected_batch_size": 10}])
def test_a_step_without_one_public_divisor_is_refused(divisor):
    with pytest.raises(InvalidInput, match=r"expected_batch_size|public_size"):
        by_step(small_model(), **COMMON, **divisor)


@pytest.mark.parametrize("multiplier", [None, [1.0, 2.0]])
def test_a_step_has_one_noise_multiplier(multiplier):
    with pytest.raises(InvalidInput, match="noise_multiplier must be one number"):
        by_step(small_model(), clip_norm=1.0, batch_size=10, noise_multiplier=multiplier)


@pytest.mark.parametrize("field", [{"engine": "recorded"}, {"precision": "bfloat16"}], ids=["engine", "precision"])
def test_a_loop_refuses_what_the_loop_decides_itself(field):
    with pytest.raises(InvalidInput, match="for a loop of your own"):
        by_loop(small_model(), **CALLS[2][1], **field)


@pytest.mark.parametrize(
    "field",
    [{"target": Epsilon(1.0, 1e-5)}, {"clip_norm": 1.0}, {"steps": 3}, {"batch_size": 5}, {"engine": "eager"}],
    ids=lambda field: next(iter(field)),
)
def test_the_engine_refuses_what_the_arguments_of_opacus_say(field):
    (name,) = field
    with pytest.raises(InvalidInput, match=f"{name} must be left out of PrivacyEngine"):
        by_engine(small_model(), options=PlanOptions(**field))


def test_the_batch_size_replaces_that_of_the_loader():
    loader = DataLoader(TensorDataset(X, Y), batch_size=10)
    model = small_model()
    private = make_private(model, plain_sgd(model), loader, **COMMON, epochs=1, batch_size=20)
    assert private.optimizer.expected_batch_size == 20


def test_another_clip_is_an_option_too():
    model, other = small_model(), small_model()
    given = {"noise_multiplier": 1.0, "batch_size": 10, "steps": 2}
    by_fit(model, options=PlanOptions(clipping=PerLayerClip(0.5), **given))
    by_fit(other, clipping=PerLayerClip(0.5), **given)
    assert torch.equal(flat(model), flat(other))


@pytest.mark.parametrize("steps", [8, None], ids=["told", "counted"])
def test_auto_records_steps_where_that_pays(monkeypatch, steps):
    seconds = iter([9.0, 0.1, 0.1, 0.1, 0.1, 9.0, 9.0])
    measured = []
    monkeypatch.setattr(replayed_passes, "_seconds", lambda run: measured.append(run) or next(seconds))
    monkeypatch.setattr(sys.modules["tacit.training.private_step"], "_MEASURED_AFTER", 2)
    model = small_model()
    step = private_step(model, plain_sgd(model), sequence_classification, **COMMON, batch_size=10, steps=steps)
    taken = []
    for _ in range(3):
        step(X[:10], Y[:10])
        taken.append(len(measured))
    assert taken == ([7, 7, 7] if steps else [0, 0, 7])
    assert torch.isfinite(flat(model)).all()
