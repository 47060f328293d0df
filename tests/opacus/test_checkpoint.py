"""`save_checkpoint` and `load_checkpoint`: what is kept, that the accounting goes on, and what is refused."""

import inspect
import io
from itertools import islice

import pytest
import torch
from safetensors.torch import save
from torch import nn
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset

from tacit.errors import BudgetExceeded, InvalidInput, TrainingMisuse
from tacit.mechanisms import Gaussian
from tacit.opacus import ExponentialGradClip, ExponentialNoise, PrivacyEngine, StepNoise
from tests.training.cases import blobs, flat, small_model


def made(seed=0, poisson_sampling=True, **target):
    engine, model = PrivacyEngine(), small_model(seed)
    arguments = {
        "module": model,
        "optimizer": Adam(model.parameters(), lr=0.1),
        "data_loader": DataLoader(TensorDataset(*blobs()), batch_size=20),
        "max_grad_norm": 1.0,
        "poisson_sampling": poisson_sampling,
    }
    if target:
        parts = engine.make_private_with_epsilon(**arguments, target_delta=1e-3, epochs=2, **target)
    else:
        parts = engine.make_private(**arguments, noise_multiplier=1.3)
    return engine, *parts


def one_epoch(model, optimizer, loader, batches=None):
    for x, y in islice(loader, batches):
        nn.CrossEntropyLoss()(model(x), y).backward()
        optimizer.step()


COMPLETE = "Every step that any process took before a checkpoint was loaded is recorded in that checkpoint."


@pytest.mark.parametrize("method", ["save_checkpoint", "load_checkpoint"])
def test_signatures_are_those_of_opacus(method):
    opacus = pytest.importorskip("opacus")
    theirs = inspect.signature(getattr(opacus.PrivacyEngine, method)).parameters
    ours = inspect.signature(getattr(PrivacyEngine, method)).parameters
    assert list(ours) == list(theirs)
    assert all((ours[key].kind, ours[key].default) == (theirs[key].kind, theirs[key].default) for key in theirs)


def test_everything_goes_on(tmp_path):
    path = tmp_path / "run.safetensors"
    engine, model, optimizer, loader = made()
    noise, clip = ExponentialNoise(optimizer, gamma=0.9), ExponentialGradClip(optimizer, gamma=0.5)
    one_epoch(model, optimizer, loader)
    noise.step()
    clip.step()
    schedulers = {"noise_scheduler": noise, "grad_clip_scheduler": clip}
    engine.save_checkpoint(
        path=path, module=model, optimizer=optimizer, checkpoint_dict={"epoch": 1, "best": torch.ones(2)}, **schedulers
    )
    again, reference, other, batches = made(seed=1)
    schedulers = {
        "noise_scheduler": ExponentialNoise(other, gamma=0.9),
        "grad_clip_scheduler": ExponentialGradClip(other, gamma=0.5),
    }
    assumed = list(again.ledger.assumptions)
    rest = again.load_checkpoint(path=path, module=reference, optimizer=other, **schedulers)
    assert rest["epoch"] == 1
    assert torch.equal(rest["best"], torch.ones(2))
    assert torch.equal(flat(reference), flat(model))
    assert again.ledger.entries == engine.ledger.entries
    assert again.ledger.assumptions == [*assumed, COMPLETE]
    assert set(engine.ledger.assumptions) <= set(assumed)
    assert any("Other runs" in each for each in assumed)
    assert (other.noise_multiplier, other.max_grad_norm) == (pytest.approx(1.17), 0.5)
    assert other.state_dict()["state"][0]["step"] == 10
    one_epoch(reference, other, batches)
    one_epoch(model, optimizer, loader)
    assert again.get_epsilon(1e-3) == engine.get_epsilon(1e-3)
    assert not torch.equal(flat(reference), flat(model)), "the noise comes from a new key"


def test_open_files_and_settings_of_schedulers():
    """A binary file holds what a path does; a scheduler goes on with its own settings, as in Opacus."""
    (engine, model, optimizer, _), file = made(), io.BytesIO()
    noise = StepNoise(optimizer, step_size=2, gamma=0.5)
    noise.step()
    engine.save_checkpoint(path=file, module=model, optimizer=optimizer, noise_scheduler=noise)
    again, reference, other, _ = made(seed=1)
    scheduler = StepNoise(other, step_size=7, gamma=0.9)
    file.seek(0)
    again.load_checkpoint(path=file, module=reference, optimizer=other, noise_scheduler=scheduler)
    assert torch.equal(flat(reference), flat(model))
    assert scheduler.state_dict() == noise.state_dict()
    scheduler.step()
    assert other.noise_multiplier == pytest.approx(0.65)
    with pytest.raises(InvalidInput, match="gamma must be"):
        scheduler.load_state_dict(noise.state_dict() | {"gamma": -1.0})


@pytest.mark.parametrize("content", [b"", b"1234567", b"x" * 200, b"\x80\x02}q\x00."])
def test_open_files_with_other_content_are_refused(content):
    engine, model, _, _ = made()
    with pytest.raises(InvalidInput, match=r"path must be a complete safetensors file; got \d+ bytes"):
        engine.load_checkpoint(path=io.BytesIO(content), module=model)
    other = io.BytesIO(save({"weight": torch.ones(2)}))
    with pytest.raises(InvalidInput, match="path must be a checkpoint that save_checkpoint wrote"):
        engine.load_checkpoint(path=other, module=model)


def test_a_target_counts_what_the_checkpoint_holds(tmp_path):
    path = tmp_path / "run.safetensors"
    engine, model, optimizer, loader = made(target_epsilon=2.0)
    one_epoch(model, optimizer, loader)
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    again, reference, other, batches = made(target_epsilon=2.0)
    again.load_checkpoint(path=path, module=reference, optimizer=other)
    one_epoch(reference, other, batches)
    assert 1.99 < again.get_epsilon(1e-3) <= 2.0
    with pytest.raises(BudgetExceeded):
        one_epoch(reference, other, batches)


def test_a_ledger_is_not_replaced_by_a_smaller_one(tmp_path):
    path = tmp_path / "run.safetensors"
    engine, model, optimizer, loader = made()
    engine.save_checkpoint(path=path, module=model)
    one_epoch(model, optimizer, loader)
    with pytest.raises(InvalidInput, match="ledger must hold no steps since a checkpoint was last saved or loaded"):
        engine.load_checkpoint(path=path, module=model)
    assert engine.ledger.steps == 10
    engine.save_checkpoint(path=tmp_path / "later", module=model)
    with pytest.raises(InvalidInput, match="ledger must be one that the later ledger"):
        engine.load_checkpoint(path=path, module=model)


def test_steps_before_loading_do_not_pass_for_the_first_of_the_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    engine, model, optimizer, loader = made()
    one_epoch(model, optimizer, loader)
    engine.save_checkpoint(path=path, module=model)
    again, reference, other, batches = made()
    one_epoch(reference, other, batches, 3)
    with pytest.raises(InvalidInput, match="since a checkpoint was last saved or loaded; got 3"):
        again.load_checkpoint(path=path, module=reference)


@pytest.mark.filterwarnings("ignore:poisson_sampling=False")
def test_a_pass_that_a_checkpoint_broke_counts_as_whole(tmp_path):
    """Half a pass before it and half of a new one after it may both hold a record."""
    path = tmp_path / "run.safetensors"
    engine, model, optimizer, loader = made(poisson_sampling=False)
    one_epoch(model, optimizer, loader, 5)
    engine.save_checkpoint(path=path, module=model)
    again, reference, other, batches = made(poisson_sampling=False)
    again.load_checkpoint(path=path, module=reference)
    one_epoch(reference, other, batches, 5)
    assert again.ledger.mechanism.accountable() == Gaussian(1.3) * 2
    engine.load_checkpoint(path=path, module=model)
    one_epoch(model, optimizer, loader, 5)
    assert engine.ledger.mechanism.accountable() == Gaussian(1.3) * 1, "the sampler of this process kept its place"


def test_not_between_backward_and_step(tmp_path):
    engine, model, optimizer, loader = made()
    x, y = next(iter(loader))
    nn.CrossEntropyLoss()(model(x), y).backward()
    with pytest.raises(TrainingMisuse, match="a checkpoint must be taken between batches"):
        engine.save_checkpoint(path=tmp_path / "run", module=model, optimizer=optimizer)
    assert not (tmp_path / "run").exists()


def test_unreadable_checkpoints_are_refused(tmp_path):
    engine, model, optimizer, _ = made()
    path = tmp_path / "run.safetensors"
    with pytest.raises(InvalidInput, match="torch_save_kwargs must be None"):
        engine.save_checkpoint(path=path, module=model, torch_save_kwargs={"pickle_protocol": 4})
    with pytest.raises(InvalidInput, match="path must be a checkpoint that exists"):
        engine.load_checkpoint(path=path, module=model)
    engine.save_checkpoint(path=path, module=model)
    with pytest.raises(InvalidInput, match="torch_load_kwargs must be None"):
        engine.load_checkpoint(path=path, module=model, torch_load_kwargs={"map_location": "cpu"})
    with pytest.raises(InvalidInput, match="path must be a checkpoint with optimizer_state_dict"):
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidInput, match="path must be a complete safetensors file"):
        engine.load_checkpoint(path=path, module=model)
    torch.save({"module_state_dict": {}}, path)
    with pytest.raises(InvalidInput, match="path must be a complete safetensors file"):
        engine.load_checkpoint(path=path, module=model)


def test_an_edited_ledger_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    engine, model, optimizer, loader = made()
    one_epoch(model, optimizer, loader)
    engine.save_checkpoint(path=path, module=model)
    data = path.read_bytes()
    assert data.count(b'[\\"noise_multiplier\\", 1.3]') == 1
    path.write_bytes(data.replace(b'[\\"noise_multiplier\\", 1.3]', b'[\\"noise_multiplier\\", 9.3]'))
    fresh, reference, _, _ = made()
    with pytest.raises(InvalidInput, match="The ledger was edited"):
        fresh.load_checkpoint(path=path, module=reference)
