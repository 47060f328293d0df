"""What a loop may do between the outputs of a private model and `backward()`, and what is refused."""

from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import How
from tacit.errors import InvalidInput, MixesRecords, TrainingMisuse, UnsupportedModel
from tacit.gradients import clipped_sum
from tacit.noise import SeededStream
from tacit.opacus import PrivacyEngine
from tacit.training import make_private
from tests.refusals import sentence, stored
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model


def opacus_shaped(model=None, data=None, reduction="mean", batch_size=20):
    model = model or small_model()
    loader = DataLoader(TensorDataset(*(data or blobs())), batch_size=batch_size)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=plain_sgd(model, 1.0),
        data_loader=loader,
        noise_multiplier=0.0,
        max_grad_norm=0.3,
        loss_reduction=reduction,
        unsafe_no_noise=True,
    )


def several_steps(parts, loss):
    model, optimizer, loader = parts
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()


MEANS = {
    "criterion": lambda o, y: nn.CrossEntropyLoss()(o, y),
    "mean of losses": lambda o, y: F.cross_entropy(o, y, reduction="none").mean(),
    "sum over length": lambda o, y: F.cross_entropy(o, y, reduction="none").sum() / len(y),
    "times a constant": lambda o, y: 0.5 * F.cross_entropy(o, y) + 0.5 * F.cross_entropy(o, y),
    "one loss per example": lambda o, y: F.cross_entropy(o, y, reduction="none"),
    "log softmax": lambda o, y: F.nll_loss(F.log_softmax(o, dim=1), y),
    "gather": lambda o, y: -o.log_softmax(1).gather(1, y.unsqueeze(1)).mean(),
    "one hot": lambda o, y: -(F.one_hot(y, 2) * o.log_softmax(1)).sum() / o.shape[0],
    "float": lambda o, y: F.cross_entropy(o.float(), y),
    "indexed": lambda o, y: -o.log_softmax(1)[torch.arange(len(y)), y].mean(),
}
NO_MEANS = {
    "sum": lambda o, y: F.cross_entropy(o, y, reduction="sum"),
    "class weights": lambda o, y: F.cross_entropy(o, y, weight=torch.tensor([1.0, 4.0])),
    "ignored targets": lambda o, y: F.cross_entropy(o, y, ignore_index=1),
    "divided by what the batch holds": lambda o, y: F.cross_entropy(o, y, reduction="none").sum() / (1 + y.sum()),
    "statistics of the batch": lambda o, y: F.cross_entropy(o - o.mean(0), y),
    "detached statistics": lambda o, y: (
        F.cross_entropy(o, y, reduction="none") / F.cross_entropy(o, y).detach().sqrt()
    ).mean(),
    "statistics without gradients": lambda o, y: F.cross_entropy(o, y) / _norm(o),
    "hardest example": lambda o, y: F.cross_entropy(o, y, reduction="none").max(),
    "contrast": lambda o, y: F.cross_entropy(o @ o.T, torch.arange(len(o))),
    "neighbours": lambda o, y: F.cross_entropy(o.flip(0), y),
}


class Warming:
    """A factor that is 0 in the first three batches and then 1."""

    step = 0

    @classmethod
    def factor(cls):
        cls.step += 1
        return float(cls.step > 3)


@torch.no_grad()
def _norm(outputs):
    return outputs.square().mean().sqrt() + 1


@torch.no_grad()
def seen(model, inputs):
    """Another pass of the private model over a batch."""
    return model(inputs)


def _in_eval_mode(model, x):
    model.eval()
    outputs = seen(model, x)
    model.train()
    return outputs


def _sampled(model, x, y):
    with torch.no_grad():
        actions = torch.multinomial(model(x).softmax(1), 1)[:, 0]
    return cross_entropy(model(x), actions) * (actions == y)


def _confident(model, x, y):
    certainty, labels = seen(model, x).softmax(1).max(1)
    return cross_entropy(model(x + 0.1), labels) * (certainty > 0.5)


def _shifted(model, x, y):
    goal = seen(model, x).clone()
    goal[:, 0] += 1.0
    return (model(x) - goal.mul_(2.0)).square().sum(1)


OWN_SECOND_PASSES = {
    "labels": lambda model, x, y: cross_entropy(model(x), seen(model, x).argmax(1)),
    "confident labels": _confident,
    "sampled labels": _sampled,
    "one hot": lambda model, x, y: -(F.one_hot(seen(model, x).argmax(1), 2) * model(x).log_softmax(1)).sum(1),
    "consistency": lambda model, x, y: (seen(model, x + 0.1 * torch.randn_like(x)) - model(x)).square().sum(1),
    "weights": lambda model, x, y: cross_entropy(model(x), y) * (-cross_entropy(seen(model, x), y)).exp(),
    "gathered": lambda model, x, y: (
        cross_entropy(model(x), y) * _in_eval_mode(model, x).gather(1, y.unsqueeze(1))[:, 0]
    ),
    "written into": _shifted,
    "inputs": lambda model, x, y: cross_entropy(model(x + seen(model, x).repeat(1, 2)), y),
}
MIXING_SECOND_PASSES = {
    "pull to the mean": lambda model, x, y: (model(x) - seen(model, x).mean(0)).square().sum(1),
    "in eval mode": lambda model, x, y: (model(x) - _in_eval_mode(model, x).mean(0)).square().sum(1),
    "with gradients": lambda model, x, y: (model(x) - model(x).detach().mean(0)).square().sum(1),
    "contrast": lambda model, x, y: cross_entropy(model(x) @ seen(model, x).T, torch.arange(len(x))),
    "share of the loss": lambda model, x, y: cross_entropy(model(x), y) * cross_entropy(seen(model, x), y).softmax(0),
}


class TestSecondPasses:
    """Outputs of the private model beside those that the gradient flows through."""

    @staticmethod
    def run(loss, batch_size=20):
        model = small_model()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=batch_size)
        stream = SeededStream(0)
        parts = make_private(
            model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=1, stream=stream
        )
        for x, y in parts.loader:
            loss(parts.model, x, y).backward()
            parts.optimizer.step()

    @pytest.mark.slow_cases
    @pytest.mark.parametrize("loss", OWN_SECOND_PASSES)
    @pytest.mark.parametrize("batch_size", [8, 20])
    def test_rows_of_their_own_are_accepted(self, loss, batch_size):
        self.run(OWN_SECOND_PASSES[loss], batch_size)

    @pytest.mark.parametrize("loss", MIXING_SECOND_PASSES)
    def test_rows_of_others_are_refused(self, loss):
        with pytest.raises(MixesRecords) as caught:
            self.run(MIXING_SECOND_PASSES[loss])
        assert sentence(caught.value) == stored("second passes", loss)

    def test_outputs_of_an_earlier_batch_are_refused(self):
        earlier = []

        def loss(model, x, y):
            outputs = model(x)
            losses = (outputs - sum(earlier, start=torch.zeros(2))).square().sum(1)
            earlier[:] = [outputs.detach().mean(0)]
            return losses

        with pytest.raises(InvalidInput, match="got a value of an earlier batch"):
            self.run(loss)

    def test_totals_and_metrics_over_batches(self):
        total = torch.zeros(())

        def loss(model, x, y):
            nonlocal total
            losses = cross_entropy(model(x), y)
            total = total + losses.detach().sum()
            correct = (seen(model, x).argmax(1) == y).float().mean()
            assert 0.0 <= correct.item() <= 1.0
            with torch.inference_mode():
                assert model(x).numpy().shape == (len(x), 2)
            return losses

        self.run(loss)
        assert total > 0


class TestConfidentModels:
    """Gradients p - y of confident outputs, of which single precision keeps few digits."""

    @pytest.mark.parametrize("margin", [9.0, 14.0])
    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_rounding_is_no_mixing(self, reduction, margin):
        generator = torch.Generator().manual_seed(int(margin))
        y = torch.randint(3, (256,), generator=generator)
        x = F.one_hot(y, 8) + 0.03 * torch.randn(256, 8, generator=generator)
        model = nn.Linear(8, 3, bias=False)
        with torch.no_grad():
            model.weight.copy_(margin * torch.eye(3, 8))
        if reduction == "none":
            parts = make_private(
                model,
                plain_sgd(model),
                DataLoader(TensorDataset(x, y), 64),
                clip_norm=1.0,
                noise_multiplier=1.0,
                epochs=1,
            )
            parts = parts.model, parts.optimizer, parts.loader
        else:
            parts = opacus_shaped(model, (x, y), reduction, batch_size=64)
        for form in (
            F.cross_entropy,
            lambda o, y, reduction: F.nll_loss((o.softmax(1) + 1e-9).log(), y, reduction=reduction),
        ):
            several_steps(parts, lambda o, y, form=form: form(o, y, reduction=reduction))


class TestMeans:
    @pytest.mark.slow_cases
    @pytest.mark.parametrize("form", MEANS)
    def test_every_form_of_the_mean_gives_the_same_step(self, form):
        weights = []
        for loss in (MEANS["criterion"], MEANS[form]):
            model = small_model()
            parts = opacus_shaped(model, batch_size=200)
            several_steps(parts, loss)
            weights.append(flat(model))
        torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-6)

    @pytest.mark.slow_cases
    @pytest.mark.parametrize("form", MEANS)
    def test_every_form_of_the_mean_is_accepted_on_batches_of_all_sizes(self, form):
        several_steps(opacus_shaped(batch_size=4), MEANS[form])

    def test_targets_that_happen_to_count_up_are_still_targets(self):
        x, _ = blobs()
        several_steps(opacus_shaped(data=(x[:2], torch.tensor([0, 1])), batch_size=2), MEANS["indexed"])

    @pytest.mark.parametrize("form", NO_MEANS)
    def test_losses_other_than_a_mean_over_examples_are_refused(self, form):
        with pytest.raises((InvalidInput, MixesRecords)) as caught:
            several_steps(opacus_shaped(), NO_MEANS[form])
        assert sentence(caught.value) == stored("means", form)

    def test_sums(self):
        several_steps(opacus_shaped(reduction="sum"), lambda o, y: F.cross_entropy(o, y, reduction="sum"))
        several_steps(opacus_shaped(reduction="sum"), lambda o, y: F.cross_entropy(o, y, reduction="none").sum())
        with pytest.raises(MixesRecords, match="it divides by a number of the whole batch"):
            several_steps(opacus_shaped(reduction="sum"), lambda o, y: F.cross_entropy(o, y))

    def test_positions_flattened_into_the_batch(self):
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(12, 6), nn.Linear(6, 3)

            def forward(self, words):
                return self.head(self.table(words))

        words = torch.randint(12, (60, 5), generator=torch.Generator().manual_seed(0))
        parts = opacus_shaped(Tagger(), (words, words % 3))
        several_steps(parts, lambda o, y: F.cross_entropy(o.view(-1, 3), y.view(-1)))
        several_steps(parts, lambda o, y: F.cross_entropy(o.reshape(o.shape[0] * o.shape[1], 3), y.flatten()))
        with pytest.raises(MixesRecords, match="ignored targets make a mean divide by a private number"):
            several_steps(parts, lambda o, y: F.cross_entropy(o.view(-1, 3), y.view(-1), ignore_index=0))

    def test_class_weights_as_many_as_examples(self):
        """A vector of the batch's length that is none of its rows."""
        model = nn.Linear(4, 20)
        x, _ = blobs()
        weight = torch.linspace(1.0, 2.0, 20)
        parts = opacus_shaped(model, (x, torch.arange(200) % 20), batch_size=20)
        several_steps(parts, lambda o, y: F.cross_entropy(o, y, weight=weight, reduction="none"))

    def test_writing_into_what_came_of_the_outputs(self):
        def loss(outputs, targets):
            scores = outputs * 1.0
            scores[:, 0] += 1.0
            scores.mul_(2.0)
            return F.cross_entropy(scores, targets)

        several_steps(opacus_shaped(), loss)

    def test_metrics_beside_the_loss(self):
        def loss(outputs, targets):
            correct = (outputs.argmax(1) == targets).float().mean().item()
            values, indices = outputs.detach().max(1)
            assert 0.0 <= correct <= 1.0
            assert values.numpy().shape == indices.numpy().shape
            return F.cross_entropy(outputs, targets)

        several_steps(opacus_shaped(), loss)


class TestPerExample:
    def test_statistics_that_are_detached_are_refused(self):
        model = small_model()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
        parts = make_private(model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=1)
        x, y = next(iter(parts.loader))
        losses = cross_entropy(parts.model(x), y)
        with pytest.raises(MixesRecords, match=r"aten.mean at test_losses.py"):
            (losses / losses.detach().mean()).backward()

    def test_a_division_by_what_the_batch_holds_is_refused(self):
        model = small_model()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
        parts = make_private(model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=1)
        x, y = next(iter(parts.loader))
        with pytest.raises(MixesRecords, match="its result is of the whole batch"):
            (cross_entropy(parts.model(x), y) / (y == y).float().sum().detach()).backward()

    @pytest.mark.parametrize(
        ("factor", "standing"),
        [
            (lambda x: 1 / len(x), "conditional"),
            (lambda x: 1 / torch.ones(len(x)).sum(), "conditional"),
            (lambda x: 1 / x.new_ones(len(x)).sum(), "conditional"),
            (lambda x: torch.randperm(len(x)).max(), "conditional"),
            (lambda x: 2 if len(x) > 20 else 1, "conditional"),
            (lambda x: 1 / (2 if len(x) > 20 else 1), "conditional"),
            (lambda x: 1 + len(x) % 2, "conditional"),
            (lambda x: torch.rand(len(x)).sum(), "conditional"),
            (lambda x: torch.randint(0, 1 + len(x), (1,)).sum(), "conditional"),
            (lambda x: torch.tensor(1.0).add(len(x)), "conditional"),
            (lambda x: torch.tensor([1.0]).repeat(len(x)).sum(), "conditional"),
            (lambda x: torch.rand(len(x)), "proven"),
            (lambda x: x[:, torch.randperm(2)].square().sum(1), "proven"),
            (lambda x: 2, "proven"),
        ],
    )
    def test_a_factor_that_follows_the_size_of_the_batch_takes_the_word_away(self, factor, standing):
        model = small_model()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
        parts = make_private(
            model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=5, stream=SeededStream(1)
        )
        for _ in range(5):
            for x, y in parts.loader:
                (cross_entropy(parts.model(x), y) * factor(x)).backward()
                parts.optimizer.step()
        facts = parts.ledger.facts
        left_open = [name for name in ("loss_rows", "numbers_read") if facts[name].how is How.ASSUMED]
        assert bool(left_open) == (standing == "conditional")

    @pytest.mark.parametrize(
        "loss",
        [
            lambda o, y: F.cross_entropy(o, y) * len(o),
            lambda o, y: F.cross_entropy(o, y) / len(o),
            lambda o, y: F.cross_entropy(o, y) * o.numel(),
            lambda o, y: F.cross_entropy(o, y, reduction="none").sum() / 20,
            lambda o, y: F.cross_entropy(o, y) + Warming.factor() * o.square().sum(),
        ],
    )
    def test_a_mean_that_follows_the_size_in_later_batches_is_refused(self, loss):
        Warming.step = 0
        model, _, loader = parts = opacus_shaped()
        with pytest.raises(InvalidInput, match="must be the mean over the batch"):
            several_steps(parts, loss)
        assert model.session.run.ledger.steps < len(loader)

    @pytest.mark.parametrize(
        "loss",
        [
            lambda o, y: torch.stack([F.cross_entropy(o[i], y[i]) for i in range(len(o))]).mean(),
            lambda o, y: F.cross_entropy(F.dropout(o), y),
        ],
    )
    def test_a_mean_that_does_not_run_with_every_record_twice_takes_the_word_away(self, loss):
        parts = opacus_shaped()
        several_steps(parts, loss)
        facts = parts[0].session.run.ledger.facts
        assert facts["loss_rows"].how is How.ASSUMED
        assert "is the mean over the batch" in facts["loss_rows"].says

    @pytest.mark.parametrize(
        "loss",
        [
            lambda o, y: F.cross_entropy(o, y) + 0.5 * o.square().mean(),
            lambda o, y: F.l1_loss(o, F.one_hot(y, 2).float()),
            lambda o, y: F.gaussian_nll_loss(o[:, :1], y[:, None].float(), F.softplus(o[:, 1:])),
            lambda o, y: F.poisson_nll_loss(o[:, 0], y.float()),
            lambda o, y: F.binary_cross_entropy_with_logits(o, F.one_hot(y, 2).float(), pos_weight=o.new_tensor(3.0)),
            lambda o, y: F.kl_div(o.log_softmax(1), F.one_hot(y, 2) * 0.8 + 0.1),
            lambda o, y: (o - torch.zeros(2).expand(len(o), 2)).square().mean(),
            lambda o, y: F.mse_loss(o + torch.randn_like(o), F.one_hot(y, 2).float()),
        ],
    )
    def test_a_mean_over_records_and_entries_keeps_the_word(self, loss):
        parts = opacus_shaped()
        several_steps(parts, loss)
        facts = parts[0].session.run.ledger.facts
        assert [name for name in ("loss_rows", "numbers_read") if facts[name].how is How.ASSUMED] == []

    @pytest.mark.parametrize("batch_size", [2, 4])
    def test_sizes_that_are_other_numbers_too_are_told_apart(self, batch_size):
        parts = opacus_shaped(batch_size=batch_size)

        def loss(outputs, y):
            halves = F.mse_loss(outputs.view(len(y), 2, 1), F.one_hot(y, 2).view(len(y), 2, 1).float())
            return 8 * halves + F.cross_entropy(outputs.repeat_interleave(2, 0), y.repeat_interleave(2))

        several_steps(parts, loss)
        assert parts[0].session.run.ledger.facts["loss_rows"].how is How.ENFORCED

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.parametrize(
        "loss",
        [
            lambda o, y: F.cross_entropy(o, y, reduction="sum") / len(y) ** 2,
            lambda o, y: F.cross_entropy(o, y) * len(y) ** 0.5,
            lambda o, y: F.cross_entropy(o, y) * (len(y) // 2),
            lambda o, y: (F.cross_entropy(o, y) * 1.0).mul_(o.numel()),
        ],
    )
    def test_another_power_of_the_size_is_refused_or_takes_the_word_away(self, loss, reduction):
        parts = opacus_shaped(reduction=reduction, batch_size=5)
        facts = parts[0].session.run.ledger.facts
        with suppress(InvalidInput, MixesRecords):
            several_steps(parts, loss)
            assert [name for name in ("loss_rows", "numbers_read") if facts[name].how is How.ASSUMED]

    def test_a_constant_that_happens_to_be_the_batch_size_is_no_division_by_it(self):
        model = small_model()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
        parts = make_private(model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, epochs=4)
        for _ in range(4):
            for x, y in parts.loader:
                (cross_entropy(parts.model(x), y) / 20).backward()
                parts.optimizer.step()


class TestPastTheOutputs:
    def test_a_penalty_on_parameters(self):
        parts = opacus_shaped()
        with pytest.raises(InvalidInput, match="use the optimizer's weight_decay for a penalty"):
            several_steps(parts, lambda o, y: F.cross_entropy(o, y) + 0.01 * parts[0].module[0].weight.square().sum())

    def test_a_criterion_with_parameters(self):
        scale = nn.Parameter(torch.ones(()))
        with pytest.raises(InvalidInput, match="only through the outputs of one call of the private model"):
            several_steps(opacus_shaped(), lambda o, y: F.cross_entropy(scale * o, y))

    def test_two_calls_of_the_model(self):
        model, _, loader = opacus_shaped()
        x, y = next(iter(loader))
        with pytest.raises(InvalidInput, match="the outputs of one call of the private model"):
            F.cross_entropy(model(x) + model(-x), y).backward()

    def test_inputs_written_into(self):
        model, _, loader = opacus_shaped()
        x, y = next(iter(loader))
        x = x.clone()
        outputs = model(x)
        x.zero_()
        with pytest.raises(TrainingMisuse, match="the inputs must stay as they are until backward"):
            F.cross_entropy(outputs, y).backward()

    def test_arguments_of_backward(self):
        model, _, loader = opacus_shaped()
        x, y = next(iter(loader))
        with pytest.raises(TypeError, match="takes no gradient"):
            cross_entropy(model(x), y).backward(torch.ones(len(y)))
        F.cross_entropy(model(x), y).backward(retain_graph=True)

    def test_outputs_without_a_row_for_each_example(self):
        class Pooled(nn.Linear):
            def forward(self, x):
                return super().forward(x).mean(0)

        model, _, loader = opacus_shaped(Pooled(4, 2))
        with pytest.raises(UnsupportedModel, match="one row for each"):
            model(next(iter(loader))[0])

    def test_the_losses_of_a_batch_of_one(self):
        model = small_model()
        parts = opacus_shaped(model, blobs(1), batch_size=1)
        x, y = blobs(1)
        total, _ = clipped_sum(small_model(), cross_entropy, x, y, clip_norm=0.3)
        before = flat(model)
        several_steps(parts, lambda o, t: F.cross_entropy(o, t))
        torch.testing.assert_close(before - flat(model), torch.cat([g.flatten() for g in total.values()]))
