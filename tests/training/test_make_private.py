from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tacit.accounting import PLACES, PUBLIC_SIZE, Ledger, accountant
from tacit.budget.shared_ledger import TOGETHER
from tacit.errors import BudgetExceeded, InvalidInput, MixesRecords, TrainingMisuse, UnsupportedModel
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import fit, make_private
from tacit.training.callbacks import Functions
from tests.training.cases import blobs, cross_entropy, differ, flat, plain_sgd, small_model


def private(model=None, optimizer=None, data=None, **changes):
    model = model if model is not None else small_model()
    loader = DataLoader(TensorDataset(*(data or blobs())), batch_size=20, shuffle=True)
    arguments = {"clip_norm": 0.8, "noise_multiplier": 1.3, "epochs": 2} | changes
    return make_private(model, optimizer or plain_sgd(model), loader, **arguments), loader


def one_epoch(parts):
    for x, y in parts.loader:
        parts.optimizer.zero_grad()
        cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()


def test_an_ordinary_loop_is_a_private_run():
    model = small_model()
    parts, _ = private(model)
    before = flat(model)
    for _ in range(2):
        one_epoch(parts)
    (entry,) = parts.ledger.entries
    assert (entry.mechanism, entry.steps) == (Gaussian(1.3).poisson(0.1), 20)
    assert differ(flat(model), before)
    assert parts.model.state_dict().keys() == model.state_dict().keys()
    assert [said for said in parts.ledger.assumptions if said != TOGETHER] == [PUBLIC_SIZE, PLACES]


@pytest.mark.parametrize(
    "optimizer", [lambda m: SGD(m.parameters(), lr=0.3, momentum=0.9), lambda m: Adam(m.parameters())]
)
def test_make_private_equals_fit(optimizer):
    looped, fitted = small_model(), small_model()
    parts, _ = private(looped, optimizer(looped), stream=SeededStream(1))
    one_epoch(parts)
    x, y = blobs()
    settings = {"clip_norm": 0.8, "noise_multiplier": 1.3, "batch_size": 20, "steps": 10, "stream": SeededStream(1)}
    fit(fitted, x, y, loss=cross_entropy, optimizer=optimizer(fitted), **settings)
    torch.testing.assert_close(flat(looped), flat(fitted))


def test_the_ledger_says_what_was_checked():
    parts, _ = private()
    one_epoch(parts)
    known = {fact.id: fact.how.value for fact in parts.facts}
    checked = {"numbers_read", "weights"}
    assert {name for name, how in known.items() if how == "checked"} == checked
    assert parts.ledger.standing is Standing.PROVEN


def test_always_the_same_named_tuple():
    for arguments in ({}, {"noise_multiplier": None, "target": Epsilon(3.0, 1e-3), "accountant": "rdp"}):
        parts, _ = private(**arguments)
        assert parts._fields == ("model", "optimizer", "loader", "ledger")


def test_a_target_is_met_and_not_passed():
    parts, _ = private(noise_multiplier=None, target=Epsilon(2.0, 1e-3), accountant="rdp")
    for _ in range(2):
        one_epoch(parts)
    assert 1.99 < accountant("rdp")(parts.ledger).epsilon(1e-3) <= 2.0
    with pytest.raises(BudgetExceeded, match="step 21 would cross"):
        one_epoch(parts)
    assert parts.ledger.steps == 20


def test_empty_batches_run_through_the_loop():
    class Pairs(Dataset):
        def __len__(self):
            return 200

        def __getitem__(self, index):
            return {"x": torch.ones(4), "y": torch.tensor(1)}

    for rate in (1e-9, 0.05):
        model = small_model()
        before = flat(model)
        parts = make_private(
            model,
            plain_sgd(model),
            DataLoader(Pairs()),
            clip_norm=1.0,
            noise_multiplier=1.0,
            sample_rate=rate,
            steps=3,
            expected_batch_size=1.0,
        )
        for _, batch in zip(range(3), parts.loader, strict=False):
            cross_entropy(parts.model(batch["x"]), batch["y"]).backward()
            parts.optimizer.step()
        assert parts.ledger.steps == 3
        assert torch.any(flat(model) != before)
    parts, _ = private(sample_rate=1e-9, public_size=200, epochs=None, steps=1)
    x, y = next(iter(parts.loader))
    assert (x.shape, y.shape) == ((0, 4), (0,))


def test_schedulers_accept_the_optimizer():
    parts, _ = private()
    scheduler = StepLR(parts.optimizer, 1, gamma=0.1)
    one_epoch(parts)
    scheduler.step()
    assert parts.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_evaluation_is_untouched():
    parts, _ = private()
    x, _ = blobs()
    parts.model.eval()
    assert type(parts.model(x)) is torch.Tensor
    parts.model.train()
    with torch.no_grad():
        assert type(parts.model(x)) is torch.Tensor


class TestMisuse:
    def test_the_original_loader_is_iterated(self):
        parts, loader = private()
        x, y = next(iter(loader))
        with pytest.raises(TrainingMisuse, match="Iterate the loader that make_private returned"):
            parts.model(x)
        one_epoch(parts)
        with pytest.raises(TrainingMisuse, match="Iterate the loader that make_private returned"):
            cross_entropy(parts.model(x), y).backward()
        assert parts.ledger.steps == 10

    def test_backward_is_called_twice(self):
        parts, _ = private()
        x, y = next(iter(parts.loader))
        cross_entropy(parts.model(x), y).backward()
        with pytest.raises(TrainingMisuse, match="backward must be called once"):
            cross_entropy(parts.model(x), y).backward()

    def test_step_is_called_twice_or_without_backward(self):
        parts, _ = private()
        x, y = next(iter(parts.loader))
        with pytest.raises(TrainingMisuse, match=r"step must follow losses\.backward"):
            parts.optimizer.step()
        cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()
        with pytest.raises(TrainingMisuse, match=r"step must follow losses\.backward"):
            parts.optimizer.step()
        assert parts.ledger.steps == 1

    def test_the_model_is_in_eval_mode(self):
        parts, _ = private()
        x, y = next(iter(parts.loader))
        parts.model.eval()
        with pytest.raises(TrainingMisuse, match="got eval mode"):
            cross_entropy(parts.model(x), y).backward()
        before = flat(parts.model)
        with pytest.raises(TrainingMisuse, match="got eval mode"):
            parts.optimizer.step()
        assert torch.equal(before, flat(parts.model))

    def test_gradients_made_past_the_private_outputs_are_not_stepped_on(self):
        parts, _ = private()
        x, y = next(iter(parts.loader))
        with pytest.raises(TrainingMisuse, match="did not pass the private model"):
            cross_entropy(parts.model.module(x), y).sum().backward()
        with pytest.raises(TrainingMisuse, match=r"step must follow losses\.backward"):
            parts.optimizer.step()
        assert parts.ledger.steps == 0

    def test_a_batch_looked_at_is_not_redrawn(self):
        parts, _ = private()
        first = next(iter(parts.loader))
        again = next(iter(parts.loader))
        assert torch.equal(first[0], again[0])

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_a_loss_that_is_one_number(self, reduction):
        parts, _ = private()
        x, y = next(iter(parts.loader))
        with pytest.raises(InvalidInput, match=r'loss must be one value per example.*reduction="none"'):
            F.cross_entropy(parts.model(x), y, reduction=reduction).backward()

    @pytest.mark.parametrize(
        "mix",
        [
            lambda losses: losses / len(losses) + losses.mean(),
            lambda losses: losses - losses.mean(),
            lambda losses: losses.softmax(0),
            lambda losses: losses.flip(0),
        ],
    )
    def test_a_loss_that_mixes_examples(self, mix):
        parts, _ = private(data=blobs())
        x, y = next(iter(parts.loader))
        with pytest.raises(MixesRecords, match=r"got aten\.\w+ at test_make_private.py"):
            mix(cross_entropy(parts.model(x), y)).backward()

    @pytest.mark.parametrize("noise", [{"noise_multiplier": 1.0}, {"noise_multiplier": None}])
    def test_a_target_that_is_none(self, noise):
        with pytest.raises(InvalidInput, match="target must be one such as"):
            private(target=5, **noise)

    def test_an_optimizer_of_another_model(self):
        with pytest.raises(TrainingMisuse, match="optimizer must hold the parameters of this model"):
            private(optimizer=plain_sgd(small_model()))

    def test_a_model_that_mixes_examples(self):
        with pytest.raises(UnsupportedModel, match=r"layer '1' \(BatchNorm1d\)"):
            private(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))

    @pytest.mark.parametrize("loader", [None, [1, 2], TensorDataset(*blobs())])
    def test_other_loaders_are_refused(self, loader):
        model = small_model()
        with pytest.raises(InvalidInput, match="loader must be a DataLoader"):
            make_private(model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, steps=3)


class TestSentences:
    """What a loop does beside the private step is refused by a sentence of ours that names it."""

    def run(self, parts, losses_of=None, after=lambda parts: None):
        for x, y in parts.loader:
            cross_entropy(parts.model(x) if losses_of is None else losses_of(parts, x), y).backward()
            after(parts)
            parts.optimizer.step()

    @pytest.mark.parametrize("width", [4, 2], ids=["of the rows", "of the outputs"])
    def test_another_network_is_named(self, width):
        class Critic(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = torch.nn.Linear(width, 2)

            def forward(self, x):
                return self.head(x)

        parts, critic = private()[0], Critic()
        with pytest.raises((TrainingMisuse, InvalidInput), match=r"parameter 'head\.weight' of the network Critic"):
            self.run(parts, lambda parts, x: critic(x if width == 4 else parts.model(x)))

    @pytest.mark.parametrize("place", ["forward", "step"])
    def test_a_hook_that_writes_to_a_weight_without_no_grad(self, place):
        model = small_model()
        parts, _ = private(model)

        def clamp(*given):
            model[0].weight.clamp_(-1, 1)

        if place == "forward":
            model[0].register_forward_hook(clamp)
        else:
            parts.optimizer.original.register_step_post_hook(clamp)
        with pytest.raises(TrainingMisuse, match="a hook or a layer that writes to a parameter"):
            self.run(parts)

    @pytest.mark.parametrize("where", ["postprocessing", "callback"])
    def test_code_of_ones_own_that_writes_to_a_weight_without_no_grad(self, where):
        model = small_model()

        def clamp(*given):
            for weight in model.parameters():
                weight.clamp_(-1, 1)

        said = r"under torch\.no_grad\(\); got a write to parameter '0\.weight' in line \d+ of test_make_private\.py"
        if where == "callback":
            given = {"loss": cross_entropy, "optimizer": plain_sgd(model), "callbacks": [Functions(on_step=clamp)]}
            with pytest.raises(TrainingMisuse, match=said):
                fit(model, *blobs(), **given, clip_norm=1.0, noise_multiplier=1.0, steps=2, batch_size=20)
            return
        parts, _ = private(model)
        with pytest.raises(TrainingMisuse, match=said), parts.postprocessing("clamped"):
            clamp()
        with torch.no_grad(), parts.postprocessing("clamped"):
            clamp()

    def test_clipping_by_value_names_the_remedy_and_clipping_by_norm_passes(self):
        parts, _ = private()
        self.run(parts, after=lambda parts: torch.nn.utils.clip_grad_norm_(parts.model.parameters(), 1.0))
        with pytest.raises(TrainingMisuse, match="record by record, which clip_norm does"):
            self.run(parts, after=lambda parts: torch.nn.utils.clip_grad_value_(parts.model.parameters(), 1.0))
        assert parts.optimizer.zero_grad(set_to_none=False) is None


LENGTH = 6  # of a text, and of its mask
MASK = nn.Transformer.generate_square_subsequent_mask(LENGTH)


class Masked(nn.Module):
    """Attention within texts, by a mask and at a temperature that all records share."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.attend = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 9)

    def forward(self, x, mask=None, temperature=1.0):
        rows = self.embed(x)
        mask = mask if mask is not None else nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.out(self.attend(rows, rows, rows, attn_mask=mask)[0]) / temperature


def texts():
    return torch.randint(9, (60, LENGTH + 1), generator=torch.Generator().manual_seed(0))


def trained(call, **changes):
    """The parts of a run whose loop gives `call(parts, x)` to the loss, and the weights that it ends with."""
    model = Masked()
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "stream": SeededStream(3), "epochs": 2} | changes
    parts = make_private(model, plain_sgd(model), DataLoader(TensorDataset(texts()), batch_size=12), **settings)
    for (x,) in (batch for _ in range(2) for batch in parts.loader):
        losses = F.cross_entropy(call(parts, x[:, :-1]).transpose(1, 2), x[:, 1:], reduction="none").mean(1)
        losses.backward()
        parts.optimizer.step()
        parts.optimizer.zero_grad()
    return parts, flat(model)


@cache
def weights_without_arguments():
    return trained(lambda parts, x: parts.model(x))[1]


SHARED = {
    "declared": lambda parts, x: parts.model(x, parts.public(MASK, "a causal mask")),
    "by name": lambda parts, x: parts.model(x, mask=parts.public(MASK, "a causal mask")),
    "made in the loop": lambda parts, x: parts.model(x, nn.Transformer.generate_square_subsequent_mask(LENGTH)),
    "a number": lambda parts, x: parts.model(x, temperature=torch.tensor(1.0)),
    "undeclared": lambda parts, x: parts.model(x, MASK),
}


@pytest.mark.parametrize("name", SHARED)
def test_an_argument_that_all_records_share_is_a_constant_of_the_model(name):
    parts, weights = trained(SHARED[name])
    assert differ(weights, flat(Masked()))
    torch.testing.assert_close(weights, weights_without_arguments())
    doubts = {fact.id for fact in parts.facts.assumed} - {"randomness"}
    assert ("rows" in doubts) == bool(doubts) == (name == "undeclared")


def test_a_mask_as_long_as_the_batch_is_no_row_of_it():
    sized = {"sampling": "fixed_size", "batch_size": LENGTH, "ledger": Ledger(relation="replace_one")}
    parts, _ = trained(SHARED["declared"], **sized)
    assert {fact.id for fact in parts.facts.assumed} == {"randomness"}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda parts, x: parts.model(x, temperature=torch.tensor(float(len(x)))), "must stay the same in every call"),
        (lambda parts, x: parts.model(x, torch.randn(LENGTH, LENGTH)), "must stay the same in every call"),
        (lambda parts, x: parts.model(x, torch.zeros(LENGTH, len(x))), "records along the first axis"),
        (lambda parts, x: parts.model(x.flatten()), "one row for each record along the first axis"),
        (lambda parts, x: parts.model(x, MASK * x.double().mean()), "one row for each record along the first axis"),
        (lambda parts, x: parts.model(x, nn.Parameter(MASK)), "one row for each record along the first axis"),
    ],
)
def test_an_argument_that_follows_the_batch_is_not_shared(call, says):
    with pytest.raises(TrainingMisuse, match=says):
        trained(call)
