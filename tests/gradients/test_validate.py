"""`problems` finds invalid layers, `fix` repairs them, and `leakage` detects mixing with numbers."""

import math

import pytest
import torch
from torch import nn

from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients import clipped_sum, fix, leakage, problems
from tests.gradients.cases import readout
from tests.gradients.test_rules import floats, ints

INVALID = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), "mixes the examples", "nn.GroupNorm(2, 6)"),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(8), "mixes the examples", "nn.GroupNorm(4, 8)"),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(7), "mixes the examples", "nn.GroupNorm(1, 7)"),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(64), "mixes the examples", "nn.GroupNorm(32, 64)"),
    "LazyBatchNorm1d": (lambda: nn.LazyBatchNorm1d(), "mixes the examples", "nn.GroupNorm"),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, track_running_stats=True), "keeps statistics", "=False"),
    "LazyLinear": (lambda: nn.LazyLinear(3), "no parameters yet", "Run the model once"),
    "ParametrizedLinear": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
        "spectral_norm",
        "weight_norm",
    ),
    "Conv2d": (lambda: nn.utils.spectral_norm(nn.Conv2d(2, 3, 3)), "spectral_norm", "weight_norm"),
    "Embedding": (lambda: nn.Embedding(5, 3, max_norm=1.0), "max_norm", "max_norm=None"),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(5, 3, max_norm=1.0), "max_norm", "max_norm=None"),
}


@pytest.mark.parametrize("kind", INVALID)
def test_problems_name_path_reason_and_fix(kind):
    build, reason, fixing = INVALID[kind]
    found = problems(nn.Sequential(nn.Identity(), nn.ModuleDict({"part": build()})))
    assert [(problem.path, problem.layer) for problem in found][-1] == ("1.part", kind)
    assert reason in found[0].reason
    assert fixing in found[0].fix
    assert str(found[0]).startswith(f"layer '1.part' ({kind})")


def test_valid_models_have_no_problems():
    layers = [nn.GroupNorm(2, 4), nn.InstanceNorm1d(4), nn.LSTM(4, 4), nn.MultiheadAttention(4, 2), nn.Dropout()]
    assert problems(nn.Sequential(*layers, nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))) == []


@pytest.mark.parametrize("kind", [kind for kind in INVALID if not kind.startswith("Lazy")])
def test_a_repaired_model_has_no_problems_and_the_original_keeps_them(kind):
    model = nn.Sequential(nn.Identity(), nn.ModuleDict({"part": INVALID[kind][0]()}))
    before = problems(model)
    fixed, changes = fix(model)
    assert problems(fixed) == []
    assert problems(model) == before
    assert list(changes) == ["1.part"]
    assert "model[1].part" in changes["1.part"]


@pytest.mark.parametrize("kind", ["LazyLinear", "LazyBatchNorm1d"])
def test_layers_without_parameters_cannot_be_repaired(kind):
    with pytest.raises(UnsupportedModel, match=r"Run the model once|nn\.GroupNorm"):
        fix(nn.Sequential(INVALID[kind][0]()))


def test_repair_keeps_scale_shift_type_and_sharing():
    norm = nn.BatchNorm2d(8, eps=1e-3).double()
    nn.init.normal_(norm.weight)
    norm.bias.requires_grad_(False)
    fixed, changes = fix(nn.Sequential(nn.Conv2d(2, 8, 3).double(), norm, nn.ReLU(), norm))
    new = fixed[1]
    assert isinstance(new, nn.GroupNorm)
    assert fixed[3] is new
    assert (new.num_groups, new.num_channels, new.eps) == (4, 8, 1e-3)
    assert torch.equal(new.weight, norm.weight)
    assert new.weight.dtype == torch.float64
    assert not new.bias.requires_grad
    assert changes == {"1": "model[1] = nn.GroupNorm(4, 8, eps=0.001)"}


def test_the_code_lines_repair_the_model():
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3),
        nn.BatchNorm2d(8, affine=False),
        nn.Sequential(nn.InstanceNorm2d(8, affine=True, track_running_stats=True)),
    )
    for line in fix(model).changes.values():
        exec(line, {"model": model, "nn": nn})
    assert problems(model) == []
    assert fix(nn.BatchNorm2d(8)).changes == {"": "model = nn.GroupNorm(4, 8, eps=1e-05)"}


def test_a_repaired_model_trains():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    sums, norms = clipped_sum(fix(model).model, readout, floats(5, 2, 6, 6), torch.zeros(5), clip_norm=1.0)
    assert float(norms.min()) > 0
    assert set(sums) == {name for name, _ in model.named_parameters()}


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Across(nn.Module):
    """Attention among the examples: a batch taken for a sequence."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(4, 3)

    def forward(self, x):
        return self.layer(x)[0]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x


class Backwards(torch.autograd.Function):
    """Forward alone, each gradient divided by the size of all."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / ctx.saved_tensors[0].norm()


class Mixing(nn.Module):
    def forward(self, x):
        return Backwards.apply(x)


LEAKY = {
    "functional batch statistics": (lambda: nn.Sequential(nn.Linear(4, 4), Centred()), floats(6, 4), "1", "outputs"),
    "attention across examples": (Across, floats(6, 3, 4), "attention", "outputs"),
    "time first": (TimeFirst, floats(6, 6, 4), "layer", "outputs"),
    "statistics": (lambda: nn.Sequential(nn.Linear(4, 4), Counting()), floats(6, 4), "1", "state"),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), floats(6, 4), "1", "outputs"),
    "a backward pass that mixes": (lambda: nn.Sequential(nn.Linear(4, 4), Mixing()), floats(6, 4), "0", "gradients"),
    "gradients scaled by frequency": (
        lambda: nn.Embedding(5, 3, scale_grad_by_freq=True),
        ints(5, 6, 4),
        "",
        "gradients",
    ),
}


@pytest.mark.parametrize("case", LEAKY)
def test_leakage_is_found_and_named(case):
    build, inputs, path, what = LEAKY[case]
    torch.manual_seed(0)
    model = build()
    found = leakage(model, inputs)
    assert (path, what) in [(leak.path, leak.what) for leak in found]
    assert all(leak.change > 1e-4 for leak in found)
    assert type(model.get_submodule(path)).__name__ in str(found[0])


INDEPENDENT = {
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), floats(6, 4)),
    "group norm": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4)), floats(6, 3, 9)),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), floats(6, 3, 4)),
    "recurrent": (lambda: nn.LSTM(4, 3, batch_first=True), floats(6, 6, 4)),
    "embedding": (lambda: nn.Embedding(5, 3), ints(5, 6, 4)),
}


@pytest.mark.parametrize("case", INDEPENDENT)
def test_models_that_mix_nothing_show_no_leak(case):
    build, inputs = INDEPENDENT[case]
    torch.manual_seed(0)
    model = build().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert leakage(model, inputs) == []
    assert not model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


class Drawing(nn.Module):
    """Draws by rejection, of which a value decides how many numbers of the generator they take."""

    def __init__(self, norm):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 6), norm

    def forward(self, x):
        shape = nn.functional.softplus(self.layer(x)) + 0.1
        made = torch.distributions.Gamma(shape, 1.0).rsample() + torch.distributions.Dirichlet(shape).rsample()
        made = made * torch.poisson(x.abs()) + torch.binomial(torch.full_like(x, 5.0), x.sigmoid())
        return nn.functional.rrelu(self.norm(made), training=True)


def test_draws_by_rejection_neither_show_a_leak_nor_hide_one():
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    assert leakage(Drawing(nn.Identity()), x) == []
    assert "norm" in {leak.path for leak in leakage(Drawing(nn.BatchNorm1d(6)), x)}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_that_are_not_finite_are_refused(value):
    with pytest.raises(InvalidInput, match="could not be tested"):
        leakage(nn.Sequential(nn.Linear(4, 2), Scaled(value)), floats(6, 4))


def test_a_batch_of_one_record_is_refused():
    with pytest.raises(InvalidInput, match="inputs must be tensors with at least two examples"):
        leakage(nn.Linear(4, 2), floats(1, 4))
