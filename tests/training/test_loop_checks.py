"""What a loop makes of a batch is checked: correct loops stay `proven`, undeclared values and reads do not."""

import contextlib
import copy
import gc
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Beta, Laplace
from torch.nn import functional as F
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from tacit.accounting import Ledger
from tacit.accounting.facts import PUBLIC
from tacit.errors import InvalidInput, MixesRecords, TrainingMisuse, UnsupportedModel
from tacit.gradients.model_probe import ModelProbe
from tacit.opacus import PrivacyEngine
from tacit.standing import Standing
from tacit.training import fit, make_private
from tacit.training.numbers_by_size import NumbersBySize
from tests.gradients.modules import GOOD, WRONG, Net
from tests.training.cases import cross_entropy as ce
from tests.training.cases import flat
from tests.training.wrong_loops import Records, records

X, Y = records(60)
TABLE = TensorDataset(X, Y)
WEIGHTS = torch.tensor([1.0, 2.0, 0.5])
MEAN = torch.linspace(-0.1, 0.1, 6)


def private(model=None, data=None, **changes):
    torch.manual_seed(0)
    model = model if model is not None else Net()
    data = data if data is not None else TensorDataset(X, Y)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 60} | changes
    return make_private(model, SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=20), **settings)


def epochs(p, losses, passes=3):
    for _ in range(passes):
        for a, b in p.loader:
            losses(p, a, b).backward()
            p.optimizer.step()


def _flipped(p, a, b):
    flip = torch.rand_like(a[:, 0]) < 0.5
    return ce(p.model(torch.where(flip[:, None], a.flip(1), a)), b)


def _smoothed(p, a, b):
    target = 0.9 * F.one_hot(b, 3).float() + 0.1 / 3
    return -(F.log_softmax(p.model(a), 1) * target).sum(1)


def _focal(p, a, b):
    plain = ce(p.model(a), b)
    return (1 - torch.exp(-plain)) ** 2 * plain


def _two_views(p, a, b):
    outputs = p.model(torch.stack([a, a.flip(1)], 1).flatten(1)[:, :6] + 0 * a)
    return ce(outputs, b)


def _autocast(p, a, b):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = p.model(a)
    return ce(outputs.float(), b)


def _in_place(p, a, b):
    return ce(p.model(a.sub_(MEAN).div_(2.0)), b)


TEACHER = Net()


def _branching(p, a, b):
    return ce(p.model(a.flip(1) if torch.rand(1) < 0.5 else a), b)


FRESH_DRAWS = {
    "flipped by rows": lambda p, a, b: ce(p.model(torch.where((torch.rand(len(a)) < 0.5)[:, None], a.flip(1), a)), b),
    "noise of one shape": lambda p, a, b: ce(p.model(a + 0.1 * torch.randn(a.shape)), b),
    "noise for all rows": lambda p, a, b: ce(p.model(a + 0.1 * torch.randn(6)), b),
    "weights of the losses": lambda p, a, b: ce(p.model(a), b) * torch.rand(len(a)),
    "columns in another order": lambda p, a, b: ce(p.model(a[:, torch.randperm(6)]), b),
    "a branch": _branching,
    "a number": lambda p, a, b: ce(p.model(a * (0.9 + 0.1 * torch.rand(1).item())), b),
    "a shift": lambda p, a, b: ce(p.model(torch.roll(a, int(torch.randint(6, (1,))), 1)), b),
    "inputs": lambda p, a, b: ce(p.model(torch.randn(len(a), 6)), b),
    "a beta law": lambda p, a, b: ce(p.model(a * Beta(0.4, 0.4).sample((len(a), 1))), b),
    "a Laplace law": lambda p, a, b: ce(p.model(a + Laplace(0.0, 0.1).sample(a.shape)), b),
    "a Cauchy law": lambda p, a, b: ce(p.model(a + 0.01 * torch.empty_like(a).cauchy_()), b),
    "Gumbel": lambda p, a, b: ce(p.model(F.gumbel_softmax(a)), b),
    "slopes": lambda p, a, b: ce(p.model(F.rrelu(a, training=True)), b),
}


def _against(gradient):
    """A step against the gradient of the inputs."""

    def losses(p, a, b):
        moved = a.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(ce(p.model.module(moved), b).sum(), moved)
        return ce(p.model(a + 0.1 * gradient(found)), b)

    return losses


def _filled(p, a, b):
    draw = torch.rand(len(a))
    draw[:] = a[:, 0]
    return ce(p.model(a), b) * (1 + draw.mean().item())


MIXING_DRAWS = {
    "rows in another order": lambda p, a, b: ce(p.model(0.5 * a + 0.5 * a[torch.randperm(len(a))]), b),
    "targets in another order": lambda p, a, b: ce(p.model(a), b[torch.randperm(len(b))]),
    "scaled by the mean": lambda p, a, b: ce(p.model(a * torch.rand(len(a), 1) * a.mean()), b),
    "filled with rows": _filled,
    "against a gradient over its norm": _against(lambda found: found / found.norm()),
}

CORRECT = {
    "class weights of the source": lambda p, a, b: F.cross_entropy(
        p.model(a), b, weight=torch.tensor([1.0, 2.0, 0.5]), reduction="none"
    ),
    "a number of the source in a tensor": lambda p, a, b: ce(p.model(a), b) * torch.tensor(0.5),
    "plain": lambda p, a, b: ce(p.model(a), b),
    "normalised": lambda p, a, b: ce(p.model((a - MEAN) / 2.0), b),
    "normalised in place": _in_place,
    "flipped at random": _flipped,
    "noise added": lambda p, a, b: ce(p.model(a + 0.1 * torch.randn_like(a)), b),
    "label smoothing": _smoothed,
    "focal": _focal,
    "public teacher": lambda p, a, b: ce(p.model(a), TEACHER(a).argmax(1)),
    "two views": _two_views,
    "autocast": _autocast,
    "moved to the device": lambda p, a, b: ce(p.model(a.to("cpu").contiguous()), b.to("cpu")),
    "through numpy": lambda p, a, b: ce(p.model(a * 1.0), b),
    "mean of tokens": lambda p, a, b: ce(p.model(a.view(-1, 2, 3).flatten(1)), b),
    "masked": lambda p, a, b: ce(p.model(a), b) * (b != 2),
    "against a gradient": _against(torch.sign),
}


@pytest.mark.parametrize("name", FRESH_DRAWS)
def test_what_a_loop_draws_afresh_is_known(name):
    p = private()
    epochs(p, FRESH_DRAWS[name], passes=1)
    assert not p.facts.assumed
    assert p.ledger.standing is Standing.PROVEN
    assert type(torch.rand(2)) is torch.Tensor


def _weighted(p, a, b):
    weights = torch.ones(len(b))
    weights[b == 1] = 2.0
    return ce(p.model(a), b) * weights


def _counted(p, a, b):
    outputs, count = p.model(a), torch.zeros(3, 3, dtype=torch.long)
    count.index_put_((b, outputs.detach().argmax(1)), torch.ones_like(b), accumulate=True)
    return ce(outputs, b)


def _looked_up(p, a, b):
    return torch.tensor([0.5, 1.0, 2.0])[torch.randint(0, 3, (len(a),))] * ce(p.model(a), b)


def _of_shared_draws(p, a, b):
    return torch.rand(50).gather(0, torch.randint(0, 50, (len(a),))) * ce(p.model(a), b)


def _by_scatter(p, a, b):
    targets = torch.zeros(len(b), 3).scatter_(1, b[:, None], 1.0)
    return -(F.log_softmax(p.model(a), 1) * targets).sum(1)


FILLED = {
    "full": lambda p, a, b: ce(p.model(a), b) * torch.full((len(b),), 2.0),
    "ones": _weighted,
    "zeros": _by_scatter,
    "eye": lambda p, a, b: -(F.log_softmax(p.model(a), 1) * torch.eye(3)[b]).sum(1),
    "linspace": lambda p, a, b: ce(p.model(a * torch.linspace(0.5, 1, 6)), b),
    "a table of counts": _counted,
    "a table at drawn places": _looked_up,
    "draws at drawn places": _of_shared_draws,
}


@pytest.mark.parametrize("name", FILLED)
def test_what_a_loop_fills_by_rule_is_known(name):
    p = private()
    epochs(p, FILLED[name], passes=1)
    assert p.ledger.standing is Standing.PROVEN
    assert type(torch.ones(2)) is torch.Tensor


@pytest.mark.parametrize(
    "number",
    [
        lambda b: float(len(b)),
        lambda b: 1 / len(b),
        lambda b: torch.full((len(b),), float(len(b))),
        lambda b: torch.ones(len(b)).sum(),
        lambda b: torch.arange(len(b)).max(),
        lambda b: torch.linspace(0, len(b), 3).mean(),
    ],
)
def test_the_number_of_records_itself_is_found_in_the_second_batch(number):
    p = private()
    sizes = set()
    for a, b in (batch for _ in range(20) for batch in p.loader):  # A pass of three may be of one size.
        (ce(p.model(a), b) * number(b)).backward()
        p.optimizer.step()
        sizes.add(len(b))
        if len(sizes) == 2:
            break
    assert "follows the number of records drawn" in p.facts["numbers_read"].says


@pytest.mark.parametrize(
    "weights", [lambda b: torch.full((len(b),), WEIGHTS[0]), lambda b: torch.full((len(b),), fill_value=WEIGHTS[0])]
)
def test_a_rule_that_reads_a_tensor_of_ones_own_is_of_unknown_origin(weights):
    p = private()
    epochs(p, lambda p, a, b: ce(p.model(a), b) * (1 + weights(b)), 1)
    assert p.ledger.standing is Standing.CONDITIONAL


def test_factors_are_no_size_of_small_batches():
    torch.manual_seed(0)
    model = Net()
    loader = DataLoader(TABLE, batch_size=2)
    p = make_private(model, SGD(model.parameters(), lr=0.1), loader, clip_norm=1.0, noise_multiplier=1.0, steps=60)
    epochs(p, lambda p, a, b: ce(p.model(a), b) * 1.0 * 0.5 * 2.0, 2)
    assert p.ledger.standing is Standing.PROVEN


def test_nothing_stands_on_a_trace_after_a_call_that_was_refused():
    p = private(WRONG["mean of the batch"]())
    held = iter(p.loader)
    a, _ = next(held)
    with pytest.raises(MixesRecords):
        p.model(a)
    assert type(torch.ones(2)) is type(torch.rand(2)) is torch.Tensor


def test_gradients_of_inputs_come_from_autograd_grad():
    p = private()
    a, b = next(iter(p.loader))
    moved = a.clone().requires_grad_()
    with pytest.raises(TrainingMisuse, match=r"torch\.autograd\.grad\(losses\.sum\(\), inputs\)"):
        ce(p.model.module(moved), b).sum().backward(inputs=[moved])


class Differentiates(Net):
    """Outputs, and the gradient of their sum with respect to the inputs."""

    def forward(self, x):
        moved = x.detach().requires_grad_()
        outputs = super().forward(moved)
        return outputs, torch.autograd.grad(outputs.sum(), moved, create_graph=True)[0]


def test_a_model_may_return_a_gradient_beside_its_outputs():
    def penalised(p, a, b):
        outputs, slope = p.model(a)
        return ce(outputs, b) + (slope.norm(dim=1) - 1) ** 2

    p = private(Differentiates())
    epochs(p, penalised, 1)
    assert p.ledger.standing is Standing.PROVEN


class _GammaNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.distributions.Gamma(F.softplus(self.layer(x)) + 0.1, 1.0).rsample())


class _Likelihood(nn.Module):
    """Gives its own loss, which takes probabilities alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return F.binary_cross_entropy(self.layer(x).sigmoid(), x, reduction="none").sum(1)


@pytest.mark.parametrize(
    "model",
    [
        _GammaNoise,
        lambda: nn.Sequential(nn.Linear(6, 6), nn.RReLU(), nn.Linear(6, 3)),
        lambda: nn.Sequential(nn.Linear(6, 6), nn.RReLU(inplace=True), nn.Linear(6, 3)),
        lambda: nn.Sequential(nn.Linear(6, 6), nn.Hardswish(inplace=True), nn.Linear(6, 3)),
    ],
    ids=["gamma", "rrelu", "rrelu in place", "hardswish"],
)
def test_draws_by_rejection_and_activations_keep_the_word(model):
    p = private(model(), steps=9)
    epochs(p, CORRECT["plain"], 3)
    assert p.ledger.standing is Standing.PROVEN, p.facts


def test_a_model_that_takes_probabilities_alone_is_checked_on_few_records():
    model = _Likelihood()
    data = TensorDataset(torch.rand(60, 6))
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 20}
    p = make_private(model, SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=3), **settings)
    for (rows,) in p.loader:
        p.model(rows).backward()
        p.optimizer.step()
    assert p.ledger.standing is Standing.PROVEN, p.facts


def test_a_complex_parameter_is_refused_with_its_remedy():
    model = Net()
    model.spectrum = nn.Parameter(torch.rand(3, dtype=torch.cfloat))
    with pytest.raises(UnsupportedModel, match=r"complex parameter, 'spectrum'.*view_as_real\(spectrum\)"):
        private(model)


def test_a_normal_law_of_shared_scale_keeps_the_word():
    def losses(p, a, b):
        law = torch.distributions.MultivariateNormal(p.model(a), 2 * torch.eye(3))
        return -law.log_prob(a[:, :3])

    p = private(steps=9)
    epochs(p, losses)
    assert p.ledger.standing is Standing.PROVEN, p.facts


def test_a_draw_into_memory_of_the_loop_is_drawn():
    def step(p, a, b):
        memory = torch.zeros(6)
        assert torch.rand(6, out=memory) is memory
        return ce(p.model(a * (1 + 0 * memory)), b)

    epochs(private(), step, passes=1)


def test_what_others_put_in_the_place_of_a_draw_stays(monkeypatch):
    def drawn(*size):
        return torch.full(size, 0.25)

    monkeypatch.setattr(torch, "rand", drawn)
    epochs(private(), lambda p, a, b: ce(p.model(a), b), passes=1)
    assert torch.rand is drawn


@pytest.mark.parametrize("name", MIXING_DRAWS)
def test_a_draw_does_not_hide_that_records_meet(name):
    p = private()
    with pytest.raises(MixesRecords):
        epochs(p, MIXING_DRAWS[name], passes=1)


def test_a_draw_that_is_kept_from_an_earlier_batch_is_of_unknown_origin():
    kept = []

    def noisy(p, a, b):
        kept.append(torch.rand(6))
        return ce(p.model(a + kept[0]), b)

    p = private()
    epochs(p, noisy, passes=1)
    assert p.ledger.standing is Standing.CONDITIONAL


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_loop_stays_proven(name):
    p = private(public={"mean of another table": MEAN})
    epochs(p, CORRECT[name])
    assert not p.facts.assumed
    assert p.ledger.standing is Standing.PROVEN


@pytest.mark.parametrize("name", GOOD)
def test_a_model_that_keeps_records_apart_stays_proven(name):
    """The latter also for another loss than the first one, and for more rows than a batch has."""
    torch.manual_seed(0)
    p = private(GOOD[name]())
    epochs(p, CORRECT["plain"])
    assert p.ledger.standing is Standing.PROVEN
    epochs(p, list(CORRECT.values())[list(GOOD).index(name) % len(CORRECT)], 1)
    assert p.model.clipped.probe(X, thorough=True)
    assert flat(p.model).isfinite().all()


SWITCHES = {"a dict": {"on": False}}


class Switched(Net):
    """Centres by its batch from where a switch outside of it is turned on."""

    on = False

    def forward(self, x):
        on = self.on or SWITCHES["a dict"]["on"] or Switch.on or _switched(self)
        return super().forward(x - x.mean(0) if on else x)


class Switch:
    on = False


def _switched(model):
    return Switch in SWITCHES


TURNED_ON = {
    "attribute": lambda m: setattr(m, "on", True),
    "attribute of its class": lambda m: setattr(Switched, "on", True),
    "attribute of another class": lambda m: setattr(Switch, "on", True),
    "entry of a global": lambda m: SWITCHES["a dict"].update(on=True),
    "global of a helper": lambda m: SWITCHES.update({Switch: True}),
}


@pytest.mark.parametrize("name", TURNED_ON)
def test_a_program_that_changes_in_the_midst_of_a_run_is_typed_anew(name):
    p = private(Switched())
    try:
        for step, (a, b) in enumerate(p.loader):
            if step == 5:
                TURNED_ON[name](p.model.module)
            if step < 5:
                ce(p.model(a), b).backward()
                p.optimizer.step()
                continue
            with pytest.raises(UnsupportedModel, match=r"aten\.mean at test_loop_checks.py"):
                p.model(a)
            break
    finally:
        Switched.on = Switch.on = SWITCHES["a dict"]["on"] = False
        SWITCHES.pop(Switch, None)


@pytest.mark.parametrize("name", WRONG)
def test_every_door_refuses_a_module_that_keeps_or_mixes_records(name):
    def by_fit(model):
        fit(
            model,
            X,
            Y,
            loss=ce,
            optimizer=SGD(model.parameters(), lr=0.1),
            clip_norm=1.0,
            noise_multiplier=1.0,
            batch_size=20,
            steps=3,
        )

    def by_loop(model):
        epochs(private(model), CORRECT["plain"])

    def by_engine(model):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, optimizer, loader = PrivacyEngine().make_private(
                module=model,
                optimizer=SGD(model.parameters(), lr=0.1),
                data_loader=DataLoader(TensorDataset(X, Y), batch_size=20),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
        for a, b in loader:
            F.cross_entropy(model(a), b).backward()
            optimizer.step()

    for door in (by_fit, by_loop, by_engine):
        torch.manual_seed(0)
        with pytest.raises(UnsupportedModel):
            door(WRONG[name]())


HELD_OUT = records(40)[0]


def _right(p, rows):
    with torch.no_grad():
        return (p.model(rows).argmax(1) == 0).float().mean().item()


def _by_loader(data):
    """Right answers on a loader of one's own."""

    def evaluate(p):
        p.model.eval()
        right = [_right(p, rows) for rows, *_ in DataLoader(data, batch_size=20)]
        p.model.train()
        return sum(right) / len(right)

    return evaluate


def _declared(p):
    with p.unreleased("watched by hand"):
        return _right(p, X)


@pytest.mark.parametrize(
    ("evaluate", "data", "standing"),
    [
        (lambda p: _right(p, X), TensorDataset(X, Y), Standing.CONDITIONAL),
        (lambda p: _right(p, X[10:20]), TensorDataset(X, Y), Standing.CONDITIONAL),
        (lambda p: _right(p, HELD_OUT), TensorDataset(X, Y), Standing.PROVEN),
        (lambda p: _right(p, X[50:]), TensorDataset(X[:50], Y[:50]), Standing.PROVEN),
        (lambda p: _right(p, X[50:]), Subset(TensorDataset(X, Y), range(50)), Standing.PROVEN),
        (_declared, TensorDataset(X, Y), Standing.PROVEN),
        (_by_loader(TABLE), TABLE, Standing.CONDITIONAL),
        (_by_loader(TensorDataset(X, Y)), TensorDataset(X, Y), Standing.CONDITIONAL),
        (_by_loader(Subset(TABLE, range(40, 60))), Subset(TABLE, range(50)), Standing.CONDITIONAL),
        (_by_loader(Subset(TABLE, range(50, 60))), Subset(TABLE, range(50)), Standing.PROVEN),
        (_by_loader(TensorDataset(HELD_OUT)), TABLE, Standing.PROVEN),
        (_by_loader(Records(X, Y)), Records(X, Y), Standing.CONDITIONAL),
        (_by_loader(Records(HELD_OUT, Y[:40].clone())), Records(X, Y), Standing.PROVEN),
    ],
    ids=[
        *("all", "a slice", "held out", "behind", "outside of a subset", "declared", "own loader", "own copy"),
        *("shared part", "another part", "held out by loader", "own data set twice", "own data set held out"),
    ],
)
def test_passes_over_training_data_between_steps_are_noticed(evaluate, data, standing):
    """A rate, a stop or a choice may follow what they give; after the last step they steer nothing."""
    p = private(data=data)
    for _ in range(3):
        epochs(p, CORRECT["plain"], 1)
        if evaluate(p) > 0.9:
            p.optimizer.param_groups[0]["lr"] *= 0.5
    assert p.ledger.standing is standing, p.facts
    if standing is Standing.CONDITIONAL:
        assert "test_loop_checks.py:" in p.facts["numbers_read"].says


def _trained_beside(p):
    """A network that is trained without privacy on the same records."""
    beside = Net()
    F.cross_entropy(beside(X), Y).backward()


@pytest.mark.parametrize(
    ("between", "standing"),
    [
        (lambda p: F.cross_entropy(p.model.module(X), Y).item(), Standing.CONDITIONAL),
        (lambda p: [p.model.module(rows) for rows, _ in DataLoader(TABLE, batch_size=20)], Standing.CONDITIONAL),
        (lambda p: [rows.std() for rows, _ in DataLoader(TABLE, batch_size=20)], Standing.CONDITIONAL),
        (_trained_beside, Standing.CONDITIONAL),
        (lambda p: p.model.module(HELD_OUT), Standing.PROVEN),
        (lambda p: Net()(HELD_OUT), Standing.PROVEN),
    ],
    ids=["module", "module by loader", "no module", "another network", "held out", "another network held out"],
)
def test_modules_on_training_data_between_steps_are_noticed(between, standing):
    p = private(data=TABLE)
    for _ in range(3):
        epochs(p, CORRECT["plain"], 1)
        with torch.set_grad_enabled(between is _trained_beside):
            between(p)
    assert p.ledger.standing is standing, p.facts


def test_a_module_on_training_data_is_watched_between_passes_of_this_run_alone():
    gc.collect()
    before = len(_global_forward_pre_hooks)
    p = private(data=TABLE)
    for rows, targets in p.loader:
        assert len(_global_forward_pre_hooks) == before + 1
        ce(p.model(rows), targets).backward()
        p.optimizer.step()
        break
    del p, rows, targets
    gc.collect()
    assert len(_global_forward_pre_hooks) == before


def _exact_momentum(optimizer):
    for state in optimizer.state.values():
        state["momentum_buffer"] = torch.ones_like(state["momentum_buffer"])


def _halved_momentum(optimizer):
    for state in optimizer.state.values():
        state["momentum_buffer"].mul_(0.5)


@pytest.mark.parametrize(
    "change", [_exact_momentum, _halved_momentum, lambda o: o.load_state_dict(copy.deepcopy(o.state_dict()))]
)
def test_the_optimizer_s_state_is_changed_by_its_steps_alone(change):
    torch.manual_seed(0)
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    p = make_private(model, optimizer, DataLoader(TABLE, batch_size=20), steps=9, **settings)
    epochs(p, CORRECT["plain"], 1)
    assert p.ledger.standing is Standing.PROVEN
    change(optimizer)
    epochs(p, CORRECT["plain"], 1)
    assert p.ledger.standing is Standing.CONDITIONAL
    assert "optimizer's state" in p.facts["weights"].says


@pytest.mark.parametrize("kind", ["tensor", "tuple"])
def test_settings_that_are_no_plain_number_are_held_against_the_sizes_of_batches(kind):
    torch.manual_seed(0)
    model, rate = Net(), torch.tensor(0.01)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    p = make_private(model, optimizer, DataLoader(TABLE, batch_size=20), steps=60, **settings)

    def losses(p, a, b):
        if kind == "tensor":
            rate.fill_(0.001 * len(a))
        else:
            optimizer.param_groups[0]["betas"] = (0.01 * len(a), 0.999)
        return ce(p.model(a), b)

    epochs(p, losses, 20)
    assert p.ledger.standing is Standing.CONDITIONAL


@pytest.mark.parametrize(("steers", "standing"), [(True, Standing.CONDITIONAL), (False, Standing.PROVEN)])
def test_what_is_read_without_release_does_not_set_the_learning_rate(steers, standing):
    p = private()
    schedule = None if steers else torch.optim.lr_scheduler.StepLR(p.optimizer.original, 3)

    def losses(p, a, b):
        found = ce(p.model(a), b)
        with p.unreleased("a log"):
            value = found.detach().mean().item()
        if steers:
            p.optimizer.param_groups[0]["lr"] = 0.1 * value
        else:
            schedule.step()
        return found

    epochs(p, losses)
    assert p.ledger.standing is standing, p.facts


def test_passes_over_training_data_after_the_last_step_steer_nothing():
    p = private()
    epochs(p, CORRECT["plain"], 1)
    _right(p, X)
    assert p.ledger.standing is Standing.PROVEN


def test_a_tensor_of_ones_own_in_the_loss_must_be_declared():
    p = private()
    epochs(p, lambda p, a, b: F.cross_entropy(p.model(a), b, weight=WEIGHTS, reduction="none"), 1)
    assert p.ledger.standing is Standing.CONDITIONAL
    assert "test_loop_checks.py:" in p.facts["loss_rows"].says
    declared = private(public={"class weights": WEIGHTS})
    epochs(declared, lambda p, a, b: F.cross_entropy(p.model(a), b, weight=WEIGHTS, reduction="none"))
    assert declared.ledger.standing is Standing.PROVEN
    assert "class weights" in declared.facts["settings"].says


def test_a_centre_of_ones_own_in_the_inputs_must_be_declared():
    p = private()
    epochs(p, CORRECT["normalised"], 1)
    assert p.ledger.standing is Standing.CONDITIONAL
    assert "test_loop_checks.py:" in p.facts["rows"].says


def test_a_loss_that_mixes_few_records_is_refused_at_its_operation_in_every_draw():
    def mixed(p, a, b):
        shares = F.one_hot(b, 3).float().mean(0).expand(len(b), 3)
        return -(F.log_softmax(p.model(a), 1) * shares).sum(1)

    for _ in range(20):
        # Labels that are all equal: no replacement by other records of the batch shows the mixing.
        p = private(data=TensorDataset(X[:24], torch.zeros(24, dtype=torch.int64)), steps=60)
        with pytest.raises(MixesRecords) as refusal:
            epochs(p, mixed, 60)
        assert refusal.value.operation == "aten.mean"
        assert refusal.value.line.startswith("test_loop_checks.py:")


def test_a_batch_that_another_loop_left_in_hand_disturbs_no_later_run():
    left = private()
    rows, _ = next(iter(left.loader))
    x, y = torch.randn(20, 6), torch.randint(0, 3, (20,))
    p = private()

    def losses(p, a, b):
        with p.postprocessing("public data"):
            optimizer = SGD(p.model.module.parameters(), lr=0.1)
            F.cross_entropy(p.model.module(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return ce(p.model(a), b)

    epochs(p, losses, 1)
    assert p.ledger.standing is Standing.PROVEN, p.facts
    assert rows.shape[1:] == (6,)


def test_copies_of_a_batch_stay_on_its_trace():
    p = private()
    epochs(p, lambda p, a, b: ce(p.model(copy.deepcopy(a)), copy.deepcopy(b)))
    assert p.ledger.standing is Standing.PROVEN, p.facts


@pytest.mark.parametrize(("declared", "standing"), [(True, Standing.PROVEN), (False, Standing.CONDITIONAL)])
def test_a_formatted_loss_is_a_number_read(declared, standing):
    p = private()

    def losses(p, a, b):
        found = ce(p.model(a), b)
        with p.unreleased("progress") if declared else contextlib.nullcontext():
            assert float(f"{found.mean():.3f}") >= 0
        return found

    epochs(p, losses, 1)
    assert p.ledger.standing is standing, p.facts


def test_a_number_read_is_named_by_line_unless_declared():
    def with_bar(p, a, b):
        losses = ce(p.model(a), b)
        with p.unreleased("progress bar"):
            float(losses.mean())
        return losses

    declared, silent = private(), private()
    epochs(declared, with_bar)
    assert declared.ledger.standing is Standing.PROVEN
    assert "progress bar" in declared.facts["released"].says
    for read in (lambda v: v.item(), lambda v: f"{v}", lambda v: v.tolist(), bool, lambda v: v.numpy()):
        silent = private()
        epochs(silent, lambda p, a, b, read=read: (losses := ce(p.model(a), b), read(losses.detach().mean()))[0], 1)
        assert silent.ledger.standing is Standing.CONDITIONAL
        assert "test_loop_checks.py:" in silent.facts["numbers_read"].says


@pytest.mark.parametrize(
    ("rate", "standing"),
    [
        (lambda step, size: 0.01 * size, Standing.CONDITIONAL),
        (lambda step, size: 0.1 / max(size, 1) ** 0.5, Standing.CONDITIONAL),
        (lambda step, size: 0.1 if size > 20 else 0.01, Standing.CONDITIONAL),
        (lambda step, size: 0.1 * (1 + size % 2), Standing.CONDITIONAL),
        (lambda step, size: 0.1 * 0.97**step, Standing.PROVEN),
        (lambda step, size: 0.1 if step < 15 else 0.01, Standing.PROVEN),
        (lambda step, size: 0.1 * (1 + step % 2), Standing.PROVEN),
    ],
)
def test_a_learning_rate_in_the_order_of_batch_sizes_takes_the_word_away(rate, standing):
    sizes = np.random.default_rng(3).poisson(20, 60)
    rates = NumbersBySize()
    found = [rates.follow(rate(step, int(size)), int(size)) for step, size in enumerate(sizes)]
    assert any(found) == (standing is Standing.CONDITIONAL)


@pytest.mark.parametrize("schedule", [lambda seen: 1 - seen, lambda seen: 1 / (1 + 9 * seen), lambda seen: seen**2])
@pytest.mark.parametrize("own", [True, False])
def test_a_schedule_by_records_seen_is_told_from_one_by_steps(schedule, own):
    sizes = np.random.default_rng(3).poisson(20, 200)
    done = np.cumsum(sizes) / 4000 if own else np.arange(200) / 200
    rates = NumbersBySize()
    found = [rates.follow(float(schedule(part)), int(size)) for part, size in zip(done, sizes, strict=True)]
    assert any(found) == own


def test_few_schedules_of_two_rates_are_taken_for_numbers_that_follow_sizes():
    """At eight changes one in 63 of them is in the order of the sizes by chance."""
    draw, alarms = np.random.default_rng(5), 0
    for _ in range(2000):
        rates, sizes = NumbersBySize(), draw.poisson(20, 30)
        alarms += max([rates.follow(0.1 * (1 + step % 2), int(size)) for step, size in enumerate(sizes)])
    assert alarms == 0


@pytest.mark.parametrize(
    ("setting", "said"),
    [("lr", "the learning rate"), ("weight_decay", "weight_decay of the optimizer"), ("momentum", "momentum of the")],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_setting_that_follows_the_batch_is_conditional(setting, said, before):
    def scaled(p, a, b):
        if before:
            p.optimizer.param_groups[0][setting] = 0.01 * len(a)
        loss = ce(p.model(a), b)
        if not before:
            after.append(len(a))
            p.optimizer.param_groups[0][setting] = 0.01 * sum(after[-2:-1])
        return loss

    run, after = private(), [20]
    epochs(run, scaled, 20)
    assert run.ledger.standing is Standing.CONDITIONAL
    assert said in run.facts["numbers_read"].says


class Rates:
    """A loop that changes one of its inputs from step to step."""

    def __init__(self):
        self.step = 0

    def by_hand(self, p, a, b):
        p.optimizer.param_groups[0]["lr"] = 0.1 * 0.9**self.step
        return ce(p.model(a), b)

    def factor(self, p, a, b):
        return ce(p.model(a), b) * (1 + 0.1 * self.step)

    def seed(self, p, a, b):
        torch.manual_seed(self.step)
        return ce(p.model(a), b)

    def drawn(self, p, a, b):
        return ce(p.model(a * float(np.random.default_rng(self.step).uniform(0.9, 1.1))), b)

    def same(self, p, a, b):
        return ce(p.model(a), b) * 0.5


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("by_hand", "the learning rate, which changes"),
        ("factor", "a number at test_loop_checks.py:"),
        ("seed", "the seed of torch's generator, which changes"),
        ("drawn", "a number at test_loop_checks.py:"),
        ("same", ""),
    ],
)
def test_numbers_that_a_loop_changes_are_named_on_the_ledger(way, said):
    run, rates = private(), Rates()

    def losses(p, a, b):
        rates.step += 1
        return getattr(rates, way)(p, a, b)

    epochs(run, losses, 2)
    assert run.ledger.standing is Standing.PROVEN
    public = [sentence for sentence in run.ledger.assumptions if sentence.startswith(PUBLIC)]
    assert len(public) == bool(said)
    assert all(said in sentence for sentence in public)


def _copied(p, _):
    _right(p, X[:20].clone())


def _copied_to_module(p, _):
    copy.deepcopy(p.model.module)(X[:20].clone())


def _not_released(p, _):
    with p.unreleased("a log"):
        _right(p, X[:20].clone())


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (_copied, True),
        (_copied_to_module, True),
        (_not_released, False),
        (lambda p, a: p.model.eval()(a), False),
        (lambda p, a: nn.Linear(6, 1)(MEAN), False),
    ],
    ids=["copies", "a copy of the module", "not released", "the batch in hand", "another module"],
)
def test_records_that_a_loop_measures_on_are_named_on_the_ledger(measure, said):
    """Copies of training records look like any others, and which weights are the best may follow them."""
    run = private()
    for step, (a, b) in enumerate(run.loader):
        if step == 2:
            measure(run, a)
            run.model.train()
        ce(run.model(a), b).backward()
        run.optimizer.step()
    assert run.ledger.standing is Standing.PROVEN
    public = "Taken as public: the records that the loop measures on between steps."
    assert (public in run.ledger.assumptions) is said


def test_records_measured_on_after_the_last_step_are_not_named():
    run = private(steps=3)
    epochs(run, lambda p, a, b: ce(p.model(a), b), 1)
    _copied(run, None)
    assert not any(sentence.startswith(PUBLIC) for sentence in run.ledger.assumptions)


@pytest.mark.parametrize("settings", [{"public_size": 60}, {}], ids=["add_remove", "zero_out"])
def test_where_a_loop_ended_may_follow_sizes_that_neighbours_do_not_share(settings):
    """Sizes of batches with a blank record in place of one are the same: only what was released decides the end."""
    run = private(**settings)
    drawn, batches = 0, iter(run.loader)
    while drawn < 30:
        a, b = next(batches)
        drawn += len(a)
        ce(run.model(a), b).backward()
        run.optimizer.step()
    assert "60 charged" in run.ledger.facts["steps"].says
    public = "Taken as public: where a loop ended before its plan."
    whole, resumable = (Ledger.from_spec(each.spec()) for each in (run.ledger.copy(), run.ledger.resumable()))
    for ledger in (run.ledger, Ledger.from_spec(run.ledger.spec()), whole):
        assert (public in ledger.assumptions) is bool(settings)
    assert public not in resumable.assumptions
    for a, b in run.loader:
        ce(run.model(a), b).backward()
        run.optimizer.step()
    assert run.ledger.assumptions.count(public) == bool(settings)
    run.declare("steps", "the time was up")
    assert public not in run.ledger.assumptions


def test_a_schedule_of_torch_is_none_of_the_inputs_that_are_named():
    run = private()
    schedule = torch.optim.lr_scheduler.LambdaLR(run.optimizer, lambda step: 0.9**step)
    for _ in range(2):
        epochs(run, lambda p, a, b: ce(p.model(a), b), 1)
        schedule.step()
    assert not any(sentence.startswith(PUBLIC) for sentence in run.ledger.assumptions)


def test_a_seed_that_follows_the_batch_is_conditional():
    run = private()

    def losses(p, a, b):
        torch.manual_seed(len(a))
        return ce(p.model(a), b)

    epochs(run, losses, 20)
    assert run.ledger.standing is Standing.CONDITIONAL
    assert "the seed of torch's generator" in run.facts["numbers_read"].says


def _raising(a):
    try:
        torch.linalg.cholesky(a[:2, :2])
    except RuntimeError:
        return 2
    return 1


@pytest.mark.parametrize(
    ("number", "standing"),
    [
        (lambda a, b: len(a[b == 1]), Standing.CONDITIONAL),
        (lambda a, b: torch.where(b == 1)[0].shape[0], Standing.CONDITIONAL),
        (lambda a, b: torch.argwhere(b == 1).shape[0], Standing.CONDITIONAL),
        (lambda a, b: F.one_hot(b).shape[1], Standing.CONDITIONAL),
        (lambda a, b: len(a.repeat_interleave(b, 0)), Standing.CONDITIONAL),
        (lambda a, b: float(a.as_subclass(torch.Tensor).mean()), Standing.CONDITIONAL),
        (lambda a, b: _raising(a), Standing.CONDITIONAL),
        (lambda a, b: F.one_hot(b, 3).shape[1], Standing.PROVEN),
        (lambda a, b: torch.where(b == 1, 2.0, 1.0), Standing.PROVEN),
        (lambda a, b: a[torch.arange(len(a)), b], Standing.PROVEN),
    ],
)
def test_a_size_that_follows_values_is_a_read(number, standing):
    run = private()
    epochs(run, lambda p, a, b: ce(p.model(a), b) * number(a, b), 2)
    assert run.ledger.standing is standing


class CountsRecords(torch.nn.Module):
    """Keeps the number of records that it has seen."""

    def __init__(self, count):
        super().__init__()
        self.inner, self.seen, self.count = Net(), 0, count

    def forward(self, x):
        self.seen += self.count(x)
        return self.inner(x) * (1 + 1e-4 * self.seen)


@pytest.mark.parametrize(("count", "standing"), [(len, Standing.CONDITIONAL), (lambda x: 1, Standing.PROVEN)])
def test_a_model_may_count_steps_and_no_records(count, standing):
    run = private(CountsRecords(count))
    epochs(run, lambda p, a, b: ce(p.model(a), b), 2)
    assert run.ledger.standing is standing
    assert run.facts["model_state"].says.startswith("'seen' counts records") == (standing is Standing.CONDITIONAL)


@pytest.mark.parametrize(
    ("losses", "standing"),
    [
        (lambda p, a, b: ce(p.model(a), b) * (20 / len(a)), Standing.CONDITIONAL),
        (lambda p, a, b: ce(p.model(a), b) * (1.0 if len(a) > 20 else 0.5), Standing.CONDITIONAL),
        (lambda p, a, b: ce(p.model(a), b).clamp(max=len(a) / 20), Standing.CONDITIONAL),
        (lambda p, a, b: ce(p.model(a * len(a) ** 0.5), b), Standing.CONDITIONAL),
        (lambda p, a, b: ce(p.model(a), b) * 2 if len(a) > 20 else ce(p.model(a), b), Standing.CONDITIONAL),
        (lambda p, a, b: ce(p.model(a), b) * 0.9**p.ledger.counted, Standing.PROVEN),
        (lambda p, a, b: ce(p.model(a), b) * 2 if p.ledger.counted % 2 else ce(p.model(a), b), Standing.PROVEN),
    ],
    ids=["quotient", "choice", "clamp", "inputs", "course", "schedule", "turns"],
)
def test_a_number_of_a_loss_in_the_order_of_batch_sizes_takes_the_word_away(losses, standing):
    run = private()
    epochs(run, losses, 20)
    assert run.ledger.standing is standing
    if standing is Standing.CONDITIONAL:
        assert "follows the number of records drawn" in run.facts["numbers_read"].says


def _heights(p, a, sign=1.0):
    outputs = p.model(a)
    # torch.compile, once used in a process, lets distributions check nothing by default.
    law = torch.distributions.Normal(outputs[:, 0], sign * F.softplus(outputs[:, 1]) + 1e-3, validate_args=True)
    return -law.log_prob(a[:, 0])


def test_a_check_of_a_distribution_that_passes_reads_nothing():
    run = private()
    epochs(run, lambda p, a, b: _heights(p, a))
    assert run.ledger.standing is Standing.PROVEN


def test_a_check_of_a_distribution_that_fails_is_a_read():
    def caught(p, a, b):
        try:
            return _heights(p, a, sign=-1.0)
        except ValueError:
            return ce(p.model(a), b)

    run = private()
    epochs(run, caught)
    assert run.ledger.standing is Standing.CONDITIONAL
    assert "test_loop_checks.py" in run.facts["numbers_read"].says


def test_values_of_an_earlier_batch_are_refused():
    kept = []

    def with_memory(p, a, b):
        kept.append(a.mean())
        return ce(p.model(a + 0 * kept[0] if len(kept) > 1 else a), b)

    with pytest.raises(InvalidInput, match="value of an earlier batch"):
        epochs(private(), with_memory)


def test_a_running_sum_of_losses_does_not_disturb():
    p, total = private(), 0.0

    def summed(p, a, b):
        nonlocal total
        losses = ce(p.model(a), b)
        total = total + losses.detach().sum()
        return losses

    epochs(p, summed)
    assert p.ledger.standing is Standing.PROVEN


def test_weights_change_by_releases_and_declared_postprocessing_alone():
    p = private()
    epochs(p, CORRECT["plain"], 1)
    with p.postprocessing("clamped to [-1, 1]"):
        for parameter in p.model.parameters():
            parameter.data.clamp_(-1, 1)
    epochs(p, CORRECT["plain"], 1)
    assert p.ledger.standing is Standing.PROVEN
    p.model.module.a.weight.data[0, 0] += 1.0
    assert p.ledger.standing is Standing.CONDITIONAL
    with pytest.raises(TrainingMisuse, match="postprocessing"):
        epochs(p, CORRECT["plain"], 1)


def test_an_average_may_be_swapped_in_for_evaluation():
    p = private()
    average = AveragedModel(p.model.module)
    epochs(p, CORRECT["plain"], 1)
    average.update_parameters(p.model.module)
    kept = copy.deepcopy(p.model.state_dict())
    p.model.eval()
    p.model.load_state_dict(average.module.state_dict())
    p.model(HELD_OUT)
    p.model.load_state_dict(kept)
    p.model.train()
    epochs(p, CORRECT["plain"], 1)
    assert p.ledger.standing is Standing.PROVEN


def test_the_weights_of_another_run_bring_its_ledger():
    p = private()
    epochs(p, CORRECT["plain"], 1)
    later = private()
    later.resume(p.model.state_dict(), p.ledger)
    epochs(later, CORRECT["plain"], 1)
    assert later.ledger.steps == 2 * p.ledger.steps


def test_layers_may_be_frozen_after_wrapping_and_stay_as_they_are():
    p = private()
    epochs(p, CORRECT["plain"], 1)
    before = p.model.module.a.weight.clone()
    p.model.module.a.requires_grad_(False)
    epochs(p, CORRECT["plain"], 1)
    assert torch.equal(before, p.model.module.a.weight)
    p.model.module.a.requires_grad_(True)
    with pytest.raises(TrainingMisuse, match="requires_grad"):
        epochs(p, CORRECT["plain"], 1)


def test_a_transform_runs_record_by_record():
    def shifted(record, generator):
        assert record[0].shape == (6,)
        return record[0] + 0.1 * torch.randn(6, generator=generator), record[1]

    p = private(transform=shifted)
    epochs(p, CORRECT["plain"], 1)
    assert p.ledger.standing is Standing.PROVEN


class Unreached(Dataset):
    """Records made on the fly, which replacing entries does not reach."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return X[i], Y[i]


class OwnDraws(Records):
    """Augments with a generator of its own."""

    def __init__(self, x, y):
        super().__init__(x, y)
        self.draw = np.random.default_rng(0)

    def __getitem__(self, i):
        return self.x[i] + float(self.draw.normal()), self.y[i]


def test_a_data_set_that_cannot_be_tested_makes_the_run_conditional():
    p = private(data=Unreached())
    epochs(p, CORRECT["plain"], 1)
    assert p.ledger.standing is Standing.CONDITIONAL
    assert "Unreached reads X" in p.facts["rows"].says
    for data in (Records(X, Y), Subset(Records(X, Y), range(60))):
        p = private(data=data)
        epochs(p, CORRECT["plain"], 1)
        assert p.ledger.standing is Standing.PROVEN
    epochs(private(data=OwnDraws(X, Y)), CORRECT["plain"], 1)


def test_one_process_alone_trains(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingMisuse, match="must run in one process on one device; got 2 ranks"):
        private()
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(TrainingMisuse, match="got DataParallel around a module"):
        private(nn.DataParallel(Net()))


@pytest.mark.slow
def test_thousands_of_typed_passes_raise_no_false_alarm():
    """One of each is among the tests above."""
    for model in GOOD.values():
        p = private(model(), steps=10**6)
        for losses in CORRECT.values():
            epochs(p, losses, 8)
        for _ in range(250):
            assert p.model.clipped.probe(X, thorough=True)
        assert flat(p.model).isfinite().all()


class DropsALayer(nn.Module):
    """A branch on a draw of dropout, which the comparison with float64 leaves out."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        outputs = self.layer(x)
        return 2 * outputs if F.dropout(torch.ones(1), 0.5, True).item() else outputs


@pytest.mark.parametrize("door", ["fit", "loop"])
def test_a_branch_on_dropout_is_watched_at_every_pass_after_the_first_batch_was_compared(door, monkeypatch):
    watched, observe = [], ModelProbe.observe

    def counted(probe, *given):
        watched.append(1)
        observe(probe, *given)

    monkeypatch.setattr(ModelProbe, "observe", counted)
    model, x, y = DropsALayer(), torch.randn(200, 4), torch.arange(200) % 2
    optimizer, settings = SGD(model.parameters(), lr=0.1), {"clip_norm": 1.0, "noise_multiplier": 1.0}
    if door == "fit":
        fit(model, x, y, loss=ce, optimizer=optimizer, batch_size=20, steps=8, **settings)
    else:
        parts = make_private(model, optimizer, DataLoader(TensorDataset(x, y), batch_size=20), steps=8, **settings)
        for inputs, targets in parts.loader:
            ce(parts.model(inputs), targets).backward()
            parts.optimizer.step()
    assert len(watched) >= 8
