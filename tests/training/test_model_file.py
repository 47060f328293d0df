import pytest
import torch
from torch import nn

from tacit.errors import InvalidInput
from tacit.training import load_model, save_model
from tests.training.cases import flat, small_model


def test_a_saved_model_comes_back(tmp_path):
    model, other = small_model(0), small_model(1)
    save_model(model, tmp_path / "runs" / "model.safetensors")
    load_model(other, tmp_path / "runs" / "model.safetensors")
    assert torch.equal(flat(model), flat(other))


def test_shared_and_strided_weights_are_saved(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].bias = nn.Parameter(torch.randn(6)[::2])
    save_model(model, tmp_path / "model.safetensors")
    reference = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    load_model(reference, tmp_path / "model.safetensors")
    assert torch.equal(reference[1].weight, model[0].weight)
    assert torch.equal(reference[0].bias, model[0].bias)


def test_an_interrupted_write_leaves_the_last_model(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_model(small_model(0), path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
    with pytest.raises(OSError, match="No space"):
        save_model(small_model(1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_unreadable_model_files_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(InvalidInput, match="a model file that exists"):
        load_model(small_model(), path)
    save_model(nn.Linear(2, 2), path)
    with pytest.raises(InvalidInput, match="path must hold the parameters of this model"):
        load_model(small_model(), path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InvalidInput, match="complete safetensors file"):
        load_model(nn.Linear(2, 2), path)
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(InvalidInput, match="complete safetensors file"):
        load_model(nn.Linear(2, 2), path)
