"""The private model, optimizer and loader as parts of an ordinary program."""

import copy
import pickle
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from tacit.accounting import How
from tacit.clipping import PerLayerClip
from tacit.errors import InvalidInput, TrainingMisuse, UnsupportedModel
from tacit.gradients import clipped_sum
from tacit.noise import SeededStream
from tacit.training import make_private
from tacit.training.collation import collated
from tests.training.cases import (
    HONEST_COLLATIONS,
    MIXING_COLLATIONS,
    blobs,
    cross_entropy,
    differ,
    flat,
    plain_sgd,
    small_model,
)


def private(model=None, data=None, optimizer=None, loader=None, batch_size=20, **changes):
    model = model or small_model()
    if loader is None:
        loader = DataLoader(TensorDataset(*(data or blobs())), batch_size=batch_size)
    given = {"clip_norm": 0.8, "noise_multiplier": 1.3, "epochs": 2} | changes
    return make_private(model, optimizer or plain_sgd(model), loader, **given)


def without_noise(model, **changes):
    return private(model, noise_multiplier=0.0, unsafe_no_noise=True, optimizer=plain_sgd(model, 1.0), **changes)


def one_epoch(parts, loss=cross_entropy):
    for x, y in parts.loader:
        parts.optimizer.zero_grad()
        loss(parts.model(x), y).backward()
        parts.optimizer.step()


class TestOnePass:
    def test_dropout_draws_once_for_outputs_and_gradients(self):
        """With dropout the gradient of a linear model names the features that the visible outputs were made of."""
        model = nn.Sequential(nn.Dropout(0.5), nn.Linear(40, 1, bias=False))
        data = (torch.ones(1, 40), torch.zeros(1))
        parts = without_noise(model, data=data, batch_size=1, clip_norm=1e6)
        x, _ = next(iter(parts.loader))
        before = model[1].weight.detach().clone()
        outputs = parts.model(x)
        outputs.flatten().backward()
        visible = float(outputs.detach())
        parts.optimizer.step()
        used = (before - model[1].weight).flatten()
        assert float((used * before.flatten()).sum().detach()) == pytest.approx(visible, rel=1e-4)
        assert 5 < (used != 0).sum() < 35

    def test_the_model_runs_once_a_step(self):
        calls = []

        class Counting(nn.Linear):
            def forward(self, x):
                return super().forward(x)

        def note(frame, event, _):
            if event == "call" and frame.f_code is Counting.forward.__code__:
                calls.append(len(frame.f_locals["x"]))

        # Sums of a seeded run are compared at steps 1, 2, 4 and 16.
        model, stream = nn.Sequential(nn.Linear(4, 3), Counting(3, 2)), SeededStream(0)
        parts = private(model, data=blobs(30), batch_size=30, epochs=9, stream=stream)
        for _ in range(4):
            one_epoch(parts)
        sys.setprofile(note)
        one_epoch(parts)
        sys.setprofile(None)
        assert calls == [30]

    @pytest.mark.parametrize("captured", [True, False])
    def test_the_recorded_sum_is_the_clipped_sum(self, captured):
        class Cubic(nn.Module):
            """Uses its parameter in a way that no rule covers."""

            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.linspace(-1, 1, 8).view(2, 4))

            def forward(self, x):
                return torch.einsum("bi,ji,bi->bj", x, self.weight, x) if not captured else x @ self.weight.T

        x, y = blobs(30)
        model = Cubic()
        total, _ = clipped_sum(Cubic(), cross_entropy, x, y, clip_norm=0.8)
        parts = without_noise(model, data=(x, y), batch_size=30)
        before = model.weight.detach().clone()
        one_epoch(parts)
        torch.testing.assert_close((before - model.weight) * 30, total["weight"], rtol=1e-4, atol=1e-6)

    def test_a_record_that_is_not_finite_adds_nothing(self):
        x, y = blobs(30)
        x[3], x[7] = torch.nan, 1e38
        model = small_model()
        total, _ = clipped_sum(small_model(), cross_entropy, x, y, clip_norm=0.8)
        before = flat(model)
        one_epoch(without_noise(model, data=(x, y), batch_size=30))
        expected = torch.cat([gradient.flatten() for gradient in total.values()]) / 30
        assert torch.isfinite(expected).all()
        torch.testing.assert_close(before - flat(model), expected, rtol=1e-4, atol=1e-6)


class TestPieces:
    @pytest.mark.slow_cases
    @pytest.mark.parametrize("size", [1, 7, 50])
    @pytest.mark.parametrize("clipping", [None, PerLayerClip(0.8)])
    def test_results_do_not_depend_on_physical_batches(self, size, clipping):
        weights, sizes = [], []
        for most in (None, size):
            model = small_model()
            clip = {"clipping": clipping, "clip_norm": None} if clipping else {}
            parts = private(model, max_physical_batch_size=most, stream=SeededStream(2), batch_size=50, **clip)
            for x, y in parts.loader:
                sizes.append(len(x))
                cross_entropy(parts.model(x), y).backward()
                parts.optimizer.step()
            assert parts.ledger.steps == 4
            weights.append(flat(model))
        torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)
        assert max(sizes[4:]) == min(size, max(sizes))

    @pytest.mark.slow
    def test_one_step_after_the_last_physical_batch_suffices(self):
        weights = []
        for every in (True, False):
            model = small_model()
            parts = private(model, max_physical_batch_size=9, stream=SeededStream(2), batch_size=50)
            done = 0
            for x, y in parts.loader:
                cross_entropy(parts.model(x), y).backward()
                done += len(x)
                if every or parts.optimizer.batch_complete:
                    parts.optimizer.step()
            assert parts.ledger.steps == 4
            weights.append(flat(model))
        assert torch.equal(*weights)

    def test_a_physical_batch_without_backward_is_refused(self):
        # A batch of this seed has more than ten records, three physical batches.
        parts = private(max_physical_batch_size=5, stream=SeededStream(0))
        batches = iter(parts.loader)
        x, y = next(batches)
        cross_entropy(parts.model(x), y).backward()
        next(batches)
        with pytest.raises(TrainingMisuse, match="backward must be called on every physical batch"):
            next(batches)
        parts = private(max_physical_batch_size=5, stream=SeededStream(0))
        batches = iter(parts.loader)
        next(batches)
        with pytest.raises(TrainingMisuse, match="backward must be called on every physical batch"):
            next(batches)

    def test_a_batch_without_a_step(self):
        parts = private()
        batches = iter(parts.loader)
        x, y = next(batches)
        cross_entropy(parts.model(x), y).backward()
        with pytest.raises(TrainingMisuse, match="step must be taken after backward on every batch"):
            next(batches)
        assert parts.ledger.steps == 0

    def test_a_step_without_backward_on_the_last_physical_batch_is_refused(self):
        parts = private(max_physical_batch_size=5, sample_rate=None)
        batches = iter(parts.loader)
        x, y = next(batches)
        cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()
        next(batches)
        with pytest.raises(TrainingMisuse, match="step must follow"):
            parts.optimizer.step()

    @pytest.mark.parametrize("size", [0, -1, 2.5, "4"])
    def test_bad_sizes(self, size):
        with pytest.raises(InvalidInput, match="max_physical_batch_size must be an integer"):
            private(max_physical_batch_size=size)


class TestOptimizer:
    @pytest.mark.slow_cases
    @pytest.mark.parametrize(
        "schedule",
        [
            lambda o: lr_scheduler.StepLR(o, 1, 0.5),
            lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
            lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
            lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.5**step),
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], [1]
            ),
        ],
    )
    def test_learning_rate_schedulers(self, schedule):
        model = small_model()
        parts = private(model, optimizer=SGD(model.parameters(), lr=0.5, momentum=0.9))
        scheduler = schedule(parts.optimizer)
        rates = []
        for x, y in parts.loader:
            cross_entropy(parts.model(x), y).backward()
            parts.optimizer.step()
            scheduler.step()
            rates.append(parts.optimizer.original.param_groups[0]["lr"])
        assert len(set(rates)) > 1

    def test_plateau(self):
        parts = private()
        scheduler = lr_scheduler.ReduceLROnPlateau(parts.optimizer, patience=0)
        for loss in (1.0, 2.0, 3.0):
            scheduler.step(loss)
        assert parts.optimizer.param_groups[0]["lr"] < 0.5

    def test_state_dictionaries_are_those_of_the_original(self):
        model = small_model()
        parts = private(model, optimizer=Adam(model.parameters(), lr=0.1))
        one_epoch(parts)
        kept, weights = parts.optimizer.state_dict(), parts.model.state_dict()
        assert weights.keys() == model.state_dict().keys()
        again = small_model(1)
        other = private(again, optimizer=Adam(again.parameters(), lr=0.3))
        other.optimizer.load_state_dict(kept)
        with pytest.raises(TrainingMisuse, match=r"private\.resume\(state, ledger\)"):
            other.model.load_state_dict(weights)
        other.resume(weights, parts.ledger)
        assert other.ledger.steps == parts.ledger.steps
        assert torch.equal(flat(again), flat(model))
        assert other.optimizer.param_groups[0]["lr"] == 0.1
        assert other.optimizer.state_dict()["state"][0]["step"] == 10

    def test_hooks_see_noisy_gradients(self):
        parts = private()
        seen = []
        parts.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["params"]))
        one_epoch(parts)
        assert len(seen) == 10
        assert all(parameter.grad is None for parameter in seen[0])

    def test_new_groups_are_refused(self):
        parts = private()
        with pytest.raises(TrainingMisuse, match="must hold its parameters before make_private"):
            parts.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})

    def test_a_closure_runs_once_before_the_release(self):
        parts, losses = private(), []
        for x, y in parts.loader:

            def closure(x=x, y=y):
                losses.append(cross_entropy(parts.model(x), y))
                losses[-1].backward()
                return float(losses[-1].detach().mean())

            assert parts.optimizer.step(closure) == pytest.approx(float(losses[-1].detach().mean()))
        assert len(losses) == parts.ledger.steps == len(parts.loader)
        with pytest.raises(TrainingMisuse, match="step must follow"):
            parts.optimizer.step(lambda: None)

    def test_a_closure_that_returns_a_value_for_each_record_is_refused(self):
        parts = private()
        x, y = next(iter(parts.loader))

        def closure():
            losses = cross_entropy(parts.model(x), y)
            losses.backward()
            return losses

        with pytest.raises(TrainingMisuse, match="closure must return one number or nothing"):
            parts.optimizer.step(closure)
        assert not parts.ledger.steps

    def test_parameter_groups_keep_their_settings(self):
        model = small_model()
        groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters(), "lr": 1.0}]
        before = [p.detach().clone() for p in model.parameters()]
        one_epoch(private(model, optimizer=SGD(groups)))
        same = [torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
        assert same == [True, True, False, False]


class TestModel:
    def test_copies_are_plain_models(self):
        parts = private()
        one_epoch(parts)
        reference = copy.deepcopy(parts.model)
        assert type(reference) is nn.Sequential
        assert torch.equal(flat(reference), flat(parts.model))
        average = AveragedModel(parts.model)
        one_epoch(parts)
        average.update_parameters(parts.model.module)
        x, y = next(iter(parts.loader))
        with pytest.raises(TrainingMisuse, match="did not pass the private model"):
            cross_entropy(reference(x), y).sum().backward()
        with pytest.raises(TrainingMisuse, match="step must follow"):
            parts.optimizer.step()

    def test_private_parts_are_not_pickled(self):
        parts = private()
        for part in (parts.model, parts.optimizer):
            with pytest.raises(TypeError, match="save its state_dict"):
                pickle.dumps(part)
        with pytest.raises(TypeError, match="save its state_dict"):
            copy.deepcopy(parts.optimizer)

    def test_attributes_are_those_of_the_model(self):
        class Named(nn.Linear):
            purpose = "test"

        parts = private(Named(4, 2))
        assert parts.model.purpose == "test"
        assert parts.model.out_features == 2
        with pytest.raises(AttributeError):
            _ = parts.model.nothing

    def test_arguments_by_name(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.left, self.right = nn.Linear(4, 2), nn.Linear(4, 2)

            def forward(self, first, second=None, third=None):
                return self.left(first) + (0 if second is None else self.right(second))

        model = Two()
        parts = private(model)
        before = flat(model)
        one_epoch(parts, lambda o, y: cross_entropy(o, y))
        for x, y in parts.loader:
            cross_entropy(parts.model(x, second=x, third=None), y).backward()
            parts.optimizer.step()
        assert differ(flat(model), before)
        x, _ = next(iter(parts.loader))
        with pytest.raises(InvalidInput, match="argument 'second' of the model must be a tensor"):
            parts.model(x, second=object())
        with pytest.raises(InvalidInput, match="argument 1 of the model must be a tensor"):
            parts.model(x, object())
        with pytest.raises(TrainingMisuse, match="model must be given the batch"):
            parts.model(x, second=x[1:])

    def test_private_parts_are_not_made_private_again(self):
        parts = private()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
        with pytest.raises(TrainingMisuse, match="must be the original ones"):
            make_private(parts.model, parts.optimizer, loader, clip_norm=1.0, noise_multiplier=1.0, steps=1)


class PerExample(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return {"x": blobs()[0][index].numpy(), "y": int(index % 2)}


class TestLoaders:
    def test_map_style_data_sets(self):
        parts = private(loader=DataLoader(PerExample(), batch_size=20))
        for batch in parts.loader:
            cross_entropy(parts.model(batch["x"]), batch["y"]).backward()
            parts.optimizer.step()
        assert len(parts.loader.dataset) == 200

    def test_collate_functions_are_used_on_tensors_too(self):
        def collate(rows):
            return torch.stack([x for x, _ in rows]) * 0, torch.stack([y for _, y in rows])

        parts = private(loader=DataLoader(TensorDataset(*blobs()), batch_size=20, collate_fn=collate))
        x, _ = next(iter(parts.loader))
        assert len(x)
        assert not x.any()

    @pytest.mark.parametrize("collation", MIXING_COLLATIONS)
    @pytest.mark.parametrize("pieces", [None, 7])
    def test_collations_that_mix_records_are_refused(self, collation, pieces):
        loader = DataLoader(TensorDataset(*blobs()), batch_size=40, collate_fn=MIXING_COLLATIONS[collation])
        parts = private(loader=loader, max_physical_batch_size=pieces, stream=SeededStream(0))
        with pytest.raises(InvalidInput, match="Pad every record to a fixed, public length"):
            next(iter(parts.loader))

    @pytest.mark.slow_cases
    @pytest.mark.parametrize("collation", HONEST_COLLATIONS)
    def test_collations_record_by_record_are_not(self, collation):
        """The batches are those of a seed: one record alone has no axis left once it is squeezed."""
        loader = DataLoader(TensorDataset(*blobs()), batch_size=10, collate_fn=HONEST_COLLATIONS[collation])
        parts = private(loader=loader, stream=SeededStream(0))
        for _ in range(2):
            one_epoch(parts)
        assert parts.ledger.facts["rows"].how is How.ENFORCED

    def test_every_record_of_a_batch_is_collated_alone(self):
        """One long record among many short ones, wherever it stands."""
        rows = [(torch.ones(5), 0)] * 40 + [(torch.ones(200), 1)]
        collate = MIXING_COLLATIONS["padding"]
        for place in range(41):
            moved = rows[place:] + rows[:place]
            lengths = [(x, len(x) - 1) for x, _ in moved]
            with pytest.raises(InvalidInput, match=r"shape \(41, 200\) in the batch and \(2, 5\)"):
                collated(collate, lengths)
            assert collated(collate, [row for row in lengths if row[1] < 5])[0].shape == (40, 5)

    def test_ragged_lists_and_mappings_are_told_from_padding(self):
        def collate(rows):
            return {"boxes": [x[: 1 + int(y)] for x, y in rows], "size": len(rows)}, torch.ones(4, 4)

        rows = list(zip(*blobs(9), strict=True))
        for count in range(1, 10):
            found, _ = collated(collate, rows[:count])
            assert [len(boxes) for boxes in found["boxes"]] == [1 + int(y) for _, y in rows[:count]]

    def test_a_collation_leaves_records_alone_and_draws_for_each(self):
        def collate(rows):
            return torch.stack([row.pop("x") for row in rows]) + torch.randn(4)

        rows = [{"x": x} for x in blobs(6)[0]]
        first, second = collated(collate, rows), collated(collate, rows)
        noise = first - torch.stack([row["x"] for row in rows])
        assert len(noise.unique(dim=0)) == len(rows)
        assert not torch.equal(first, second)

    def test_a_row_is_made_of_its_own_record_whatever_the_collation_does(self):
        """A mixing of two records that stand far behind, which no look at the first ones shows."""

        def collate(rows):
            x = torch.stack([x for x, _ in rows])
            x[-1] = x[-1] + (x[-2] if len(rows) > 20 else 0)
            return x, torch.tensor([y for _, y in rows])

        rows = list(zip(*blobs(30), strict=True))
        assert torch.equal(collated(collate, rows)[0], torch.stack([x for x, _ in rows]))

    def test_subsets(self):
        parts = private(loader=DataLoader(Subset(TensorDataset(*blobs()), range(50)), batch_size=10))
        one_epoch(parts)
        assert parts.ledger.entries[0].mechanism.sample_rate == pytest.approx(0.2)

    @pytest.mark.parametrize(
        "sampler",
        [
            SubsetRandomSampler(range(50)),
            WeightedRandomSampler(np.ones(200).tolist(), 200),
            RandomSampler(range(200), replacement=True),
            RandomSampler(range(200), num_samples=100),
        ],
    )
    def test_samplers_of_their_own_are_refused(self, sampler):
        with pytest.raises(InvalidInput, match=f"sampler of its own.*{type(sampler).__name__}"):
            private(loader=DataLoader(TensorDataset(*blobs()), batch_size=20, sampler=sampler))

    def test_streams_of_data_are_refused(self):
        class Endless(IterableDataset):
            def __iter__(self):
                yield from zip(*blobs(), strict=True)

        with pytest.raises(InvalidInput, match="a data set with a length"):
            private(loader=DataLoader(Endless(), batch_size=20))

    def test_workers_are_warned_about(self):
        with pytest.warns(UserWarning, match="num_workers=2 is not used"):
            private(loader=DataLoader(TensorDataset(*blobs()), batch_size=20, num_workers=2))


class TestPrecision:
    """Sums stay in float32 and within the bound, whatever the model computes in."""

    @pytest.mark.parametrize("clip_norm", [0.05, 1.0])
    def test_autocast(self, clip_norm):
        weights = []
        for enabled in (False, True):
            model = small_model()
            parts = without_noise(model, data=blobs(60), batch_size=60, clip_norm=clip_norm)
            before = flat(model)
            for x, y in parts.loader:
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                    outputs = parts.model(x)
                    losses = cross_entropy(outputs, y)
                assert outputs.dtype == (torch.bfloat16 if enabled else torch.float32)
                losses.backward()
                parts.optimizer.step()
            weights.append(before - flat(model))
        exact, rounded = weights
        assert (exact - rounded).norm() < 0.05 * exact.norm()
        assert not torch.equal(exact, rounded)
        assert rounded.dtype == torch.float32

    @pytest.mark.slow
    @pytest.mark.parametrize("way", ["autocast", "parameters"])
    def test_the_bound_holds_for_every_record(self, way):
        for seed in range(20):
            x, y = blobs(1, seed)
            model = small_model()
            if way == "parameters":
                model, x = model.bfloat16(), x.bfloat16()
            parts = without_noise(model, data=(x, y), batch_size=1, clip_norm=0.05)
            sums = []
            parts.model.session.run.release = lambda batch, total, norms, sums=sums: sums.append(total)
            for a, b in parts.loader:
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
                    losses = cross_entropy(parts.model(a), b)
                losses.backward()
                parts.optimizer.session.release()
            (total,) = sums
            assert total.flat.dtype == torch.float32
            assert 0.04 < total.flat.double().norm() <= 0.05 * (1 + 1e-6)

    def test_parameters_in_half_precision_train(self):
        model = small_model().bfloat16()
        x, y = blobs(400)
        parts = private(model, data=(x.bfloat16(), y), batch_size=100, noise_multiplier=0.5, clip_norm=1.0)
        for _ in range(10):
            one_epoch(parts, lambda o, t: F.cross_entropy(o, t, reduction="none"))
        assert next(model.parameters()).dtype == torch.bfloat16
        assert (model(x.bfloat16()).argmax(1) == y).float().mean() > 0.8


def test_a_model_with_a_scalar_output_for_each_record():
    class Score(nn.Linear):
        def forward(self, x):
            return super().forward(x).squeeze(1)

    model = Score(4, 1)
    parts = private(model)
    before = flat(model)
    one_epoch(parts, lambda o, y: (o - y.float()).square())
    assert differ(flat(model), before)


def test_a_model_without_rows():
    class Whole(nn.Linear):
        def forward(self, x):
            return super().forward(x).sum()

    parts = private(Whole(4, 2))
    with pytest.raises(UnsupportedModel, match="must return one row for each"):
        parts.model(next(iter(parts.loader))[0])
