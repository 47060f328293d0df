"""What `fit` accepts as data, where it must lie, and in which precision it is computed."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tacit.accounting import PLACES, PUBLIC_SIZE, How
from tacit.clipping import FlatClip
from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients import ClippedSum
from tacit.noise import SeededStream
from tacit.sampling import Batch
from tacit.training import data as stacked
from tacit.training import fit, fit_nonprivate
from tacit.training.private_step import computed_in
from tests.training.cases import (
    HONEST_COLLATIONS,
    MIXING_COLLATIONS,
    blobs,
    cross_entropy,
    flat,
    plain_sgd,
    small_model,
)


def run(inputs, targets=None, model=None, **changes):
    model = model if model is not None else small_model()
    settings = {"loss": cross_entropy, "clip_norm": 0.8, "noise_multiplier": 1.3, "steps": 4}
    settings |= {"stream": SeededStream(1)} | ({} if isinstance(inputs, DataLoader) else {"batch_size": 20})
    return model, fit(model, inputs, targets, optimizer=plain_sgd(model), **(settings | changes))


class Pairs(Dataset):
    """A map-style data set of (features, label)."""

    def __init__(self, x, y, form=lambda x, y: (x, int(y))):
        self.x, self.y, self.form = x, y, form

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.form(self.x[i], self.y[i])


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), 0


X, Y = blobs()


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (X.numpy(), Y.tolist()),
        (pd.DataFrame(X.numpy()), pd.Series(Y.numpy())),
        (X.tolist(), Y.numpy()),
        ((X,), Y),
        ({"input": X}, Y),
        (TensorDataset(X, Y), None),
        (Pairs(X, Y), None),
        (Pairs(X.numpy(), Y.numpy()), None),
        (Pairs(X, Y, lambda x, y: [x, y]), None),
        (DataLoader(Pairs(X, Y), batch_size=20, shuffle=True), None),
        (DataLoader(TensorDataset(X, Y), batch_size=20), None),
    ],
)
def test_every_form_of_the_data_trains_alike(inputs, targets):
    expected, _ = run(X, Y)
    model, result = run(inputs, targets)
    assert torch.equal(flat(model), flat(expected))
    assert result.plan.sample_rate == 0.1


def test_a_loader_gives_its_collation_and_a_rate_goes_before_its_batch_size():
    loader = DataLoader(Pairs(X, Y), batch_size=50, collate_fn=lambda rows: _collated(rows))
    model, result = run(loader, sample_rate=0.1)
    assert result.plan.sample_rate == 0.1
    assert torch.equal(flat(model), flat(run(2 * X, Y)[0]))
    history = fit_nonprivate(model, loader, loss=cross_entropy, optimizer=plain_sgd(model), epochs=1)
    assert history == [{"epoch": 1.0, "steps": 4.0, "learning_rate": 0.5}]


def _collated(rows):
    return 2 * torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])


@pytest.mark.parametrize("collation", MIXING_COLLATIONS)
def test_collations_that_mix_records_are_refused(collation):
    for data in (Pairs(X, Y), TensorDataset(X, Y)):
        with pytest.raises(InvalidInput, match="Pad every record to a fixed, public length"):
            run(DataLoader(data, batch_size=20, collate_fn=MIXING_COLLATIONS[collation]))


@pytest.mark.slow_cases
@pytest.mark.parametrize("collation", HONEST_COLLATIONS)
def test_collations_record_by_record_need_no_assumption(collation):
    _, result = run(DataLoader(Pairs(X, Y), batch_size=20, collate_fn=HONEST_COLLATIONS[collation]))
    assert result.ledger.assumptions == [PUBLIC_SIZE, PLACES]
    assert result.ledger.facts["rows"].how is How.ENFORCED
    _, result = run(DataLoader(Pairs(X, Y), batch_size=20))
    assert result.ledger.assumptions == [PUBLIC_SIZE, PLACES]


def test_models_with_several_inputs_take_wider_records():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, left, right):
            return self.layer(left * right)

    torch.manual_seed(0)
    model = Two()
    run(TensorDataset(X, X, Y), model=model)
    torch.manual_seed(0)
    assert torch.equal(flat(model), flat(run((X, X), Y, model=Two())[0]))


@pytest.mark.parametrize(
    ("inputs", "targets", "sentence"),
    [
        (Stream(), None, "inputs must be a data set with a length; got 'Stream'"),
        (DataLoader(Stream(), batch_size=2), None, "inputs must be a data set with a length; got 'Stream'"),
        (Pairs(X, Y), Y, "targets must be left out with a data set"),
        (X, None, "targets must be given unless inputs is a .* data set"),
        (Pairs(X[:0], Y), None, "inputs must be at least one record; got 0"),
        (Pairs(X, Y, lambda x, y: x), None, r"records of inputs must be pairs \(input, target\); got 'Tensor'"),
        (TensorDataset(X), None, r"records of inputs must be pairs \(input, target\); got '1 values'"),
        (Pairs(X / 0, Y), None, "inputs must be finite; got NaN or infinity at rows 0, 1"),
        (DataLoader(TensorDataset(X, Y), batch_size=None), None, "sample_rate must be given exactly when batch_size"),
    ],
)
def test_data_sets_that_cannot_be_trained_on(inputs, targets, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        run(inputs, targets, batch_size=None)


def test_a_data_set_larger_than_memory_is_refused_before_it_is_read(monkeypatch):
    read = []

    class Large(Pairs):
        def __len__(self):
            return 10**9

        def __getitem__(self, i):
            read.append(i)
            return super().__getitem__(0)

    monkeypatch.setattr(stacked, "_free_memory", lambda: 8 * 2**30)
    with pytest.raises(InvalidInput, match=r"memory twice; got one of about 22\.4 GiB for 8\.0 GiB free.*make_p"):
        run(Large(X, Y))
    assert read == [0]


class TestDevice:
    def test_data_elsewhere_are_not_moved_behind_the_users_back(self):
        sentence = 'on the device of the model, cpu; got meta. Give device="cpu" to have every batch moved'
        with pytest.raises(InvalidInput, match=sentence):
            run(X, Y.to("meta"))
        with pytest.raises(InvalidInput, match="on the device of the model, meta; got cpu"):
            run(X, Y, model=small_model().to("meta"))

    def test_the_device_asked_for_must_be_the_models(self):
        model, _ = run(X, Y, device="cpu")
        assert torch.equal(flat(model), flat(run(X, Y)[0]))
        with pytest.raises(InvalidInput, match=r"device must be that of the model, cpu; got 'meta'. Move the model"):
            run(X, Y, device="meta")
        with pytest.raises(InvalidInput, match='device must be a torch device such as "cpu" or "cuda"; got \'gpu\''):
            run(X, Y, device="gpu")

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    def test_one_code_path_for_cuda(self):
        model, _ = run(X, Y, model=small_model().cuda(), device="cuda")
        there, _ = run(X.cuda(), Y.cuda(), model=small_model().cuda())
        assert torch.equal(flat(model), flat(there))
        torch.testing.assert_close(flat(model).cpu(), flat(run(X, Y)[0]), rtol=1e-4, atol=1e-5)


class TestPrecision:
    def test_bfloat16_learns_and_differs(self):
        x, y = blobs(1000)
        weights = {}
        for precision in ("float32", "bfloat16"):
            model, _ = run(x, y, precision=precision, batch_size=100, steps=80)
            assert float((model(x).argmax(1) == y).double().mean()) > 0.9
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
            weights[precision] = flat(model)
        assert not torch.equal(*weights.values())
        torch.testing.assert_close(*weights.values(), rtol=0.2, atol=0.2)

    @pytest.mark.parametrize(
        ("model", "inputs"),
        [
            (nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)), torch.randn(32, 10)),
            (
                nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)),
                torch.randn(32, 1, 8, 8),
            ),
            (
                nn.Sequential(nn.Embedding(50, 8), nn.LayerNorm(8), nn.Flatten(), nn.Linear(48, 3)),
                torch.arange(192).view(32, 6) % 50,
            ),
        ],
    )
    @pytest.mark.parametrize("clip_norm", [1e-3, 0.1, 10.0])
    def test_no_record_contributes_more_than_the_bound(self, model, inputs, clip_norm):
        clipped = ClippedSum(model, FlatClip(clip_norm))
        targets = torch.arange(32) % 3
        for i in range(32):
            with computed_in(model, "bfloat16"):
                total, norms = clipped(cross_entropy, inputs[i : i + 1], targets[i : i + 1])
            norm = float(total.flat.double().square().sum().sqrt())
            assert norm <= clip_norm * (1 + 1e-6)
            assert norm == pytest.approx(min(clip_norm, float(norms)), rel=1e-4)
            # Sums over positions are made in double precision; what is released of them is not.
            assert total.as_released().flat.dtype == norms.dtype == torch.float32

    def test_nonprivate_training_has_it_too(self):
        weights = []
        for precision in ("float32", "bfloat16"):
            model = small_model()
            fit_nonprivate(
                model,
                X,
                Y,
                loss=cross_entropy,
                optimizer=plain_sgd(model),
                sample_rate=1.0,
                steps=3,
                precision=precision,
            )
            weights.append(flat(model))
        assert not torch.equal(*weights)
        torch.testing.assert_close(*weights, rtol=0.02, atol=0.02)

    def test_unfit_precision_and_layers_are_refused(self):
        with pytest.raises(InvalidInput, match="precision must be one of float32, bfloat16; got 'bf16'"):
            run(X, Y, precision="bf16")
        with pytest.raises(UnsupportedModel, match=r"layer '1' \(BatchNorm1d\)"):
            run(X, Y, model=nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)), precision="bfloat16")


def test_a_batch_takes_the_memory_of_the_last_one_unless_that_is_held():
    x = torch.arange(40.0).reshape(20, 2)
    records = stacked.CheckedRecords((x, x + 100), torch.arange(20), torch.device("cpu"))
    held = records.batch(Batch(np.array([1, 4, 5])))
    (first, second), targets = records.batch(Batch(np.array([0, 7])))
    assert torch.equal(held[0][0], x[[1, 4, 5]])
    assert torch.equal(held[0][1], x[[1, 4, 5]] + 100)
    assert torch.equal(first, x[[0, 7]])
    assert torch.equal(second, x[[0, 7]] + 100)
    assert targets.tolist() == [0, 7]
    place = first.data_ptr()
    del first
    assert records.batch(Batch(np.array([9])))[0][0].data_ptr() == place


def test_records_that_require_a_gradient_are_trained_on_as_they_are():
    x, y = blobs()
    found = []
    for inputs in (x, x.clone().requires_grad_()):
        model = small_model()
        run(inputs, y, model, stream=SeededStream(1))
        found.append(flat(model))
    torch.testing.assert_close(*found)
