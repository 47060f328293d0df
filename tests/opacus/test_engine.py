"""`PrivacyEngine` against the installed Opacus: its signatures, its arities, its gradients; and what it refuses."""

import inspect
import itertools
import math

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

import tacit
from tacit.accounting import accountant
from tacit.errors import BudgetExceeded, InvalidInput, MixesRecords, PrivacyWarning, TrainingMisuse, UnsupportedModel
from tacit.gradients import clipped_sum
from tacit.mechanisms import Gaussian
from tacit.opacus import (
    BatchMemoryManager,
    ExponentialGradClip,
    ExponentialNoise,
    LambdaGradClip,
    LambdaNoise,
    ModuleValidator,
    PrivacyEngine,
    StepGradClip,
    StepNoise,
)
from tacit.standing import Standing
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

METHODS = (
    "__init__",
    "make_private",
    "make_private_with_epsilon",
    "get_epsilon",
    "is_compatible",
    "validate",
    "get_compatible_module",
)
WITHOUT_MEANING = {
    "batch_first": False,
    "wrap_model": False,
    "rand_on_empty": True,
    "grad_sample_mode": "ghost_fsdp",
}


def made(engine=None, model=None, data=None, batch_size=20, **changes):
    engine = engine or PrivacyEngine()
    model = model or small_model()
    loader = DataLoader(TensorDataset(*(data or blobs())), batch_size=batch_size)
    given = {"noise_multiplier": 1.3, "max_grad_norm": 0.8} | changes
    if "target_epsilon" in given:
        del given["noise_multiplier"]
        return engine.make_private_with_epsilon(
            module=model, optimizer=plain_sgd(model), data_loader=loader, target_delta=1e-3, epochs=2, **given
        )
    return engine.make_private(module=model, optimizer=plain_sgd(model), data_loader=loader, **given)


def one_epoch(model, optimizer, loader, criterion=None):
    for x, y in loader:
        optimizer.zero_grad()
        (criterion or nn.CrossEntropyLoss())(model(x), y).backward()
        optimizer.step()


class TestShape:
    @pytest.mark.parametrize("method", METHODS)
    def test_signatures_are_those_of_opacus(self, method):
        opacus = pytest.importorskip("opacus")
        theirs = inspect.signature(getattr(opacus.PrivacyEngine, method)).parameters
        ours = inspect.signature(getattr(PrivacyEngine, method)).parameters
        for name, parameter in theirs.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            assert ours[name].kind == parameter.kind, name
            if isinstance(parameter.default, nn.Module):
                assert type(ours[name].default) is type(parameter.default)
            else:
                assert ours[name].default == parameter.default, name
        named = {name: each for name, each in ours.items() if each.kind is not each.VAR_KEYWORD}
        assert all(named[name].default is None for name in named.keys() - theirs.keys())

    @pytest.mark.parametrize(
        ("ours", "name"),
        [
            (BatchMemoryManager, "utils.batch_memory_manager.BatchMemoryManager"),
            *((kind, f"schedulers.{kind.__name__}") for kind in (ExponentialNoise, LambdaNoise, StepNoise)),
            *((kind, f"schedulers.{kind.__name__}") for kind in (ExponentialGradClip, LambdaGradClip, StepGradClip)),
        ],
    )
    def test_other_signatures_are_those_of_opacus(self, ours, name):
        pytest.importorskip("opacus.schedulers")
        module, _, attribute = f"opacus.{name}".rpartition(".")
        theirs = inspect.signature(getattr(__import__(module, fromlist=["_"]), attribute)).parameters
        mine = inspect.signature(ours).parameters
        assert list(mine) == list(theirs)
        assert all((mine[key].kind, mine[key].default) == (theirs[key].kind, theirs[key].default) for key in theirs)

    @pytest.mark.parametrize(("mode", "arity"), [("hooks", 3), ("functorch", 3), ("ew", 3), ("ghost", 4)])
    def test_arity(self, mode, arity):
        assert len(made(grad_sample_mode=mode)) == arity
        assert len(made(grad_sample_mode=mode, target_epsilon=3.0)) == arity

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    def test_arity_is_that_of_opacus(self, mode):
        opacus = pytest.importorskip("opacus")
        model = small_model()
        theirs = opacus.PrivacyEngine(accountant="rdp").make_private(
            module=model,
            optimizer=plain_sgd(model),
            data_loader=DataLoader(TensorDataset(*blobs()), batch_size=20),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            grad_sample_mode=mode,
        )
        assert len(made(grad_sample_mode=mode)) == len(theirs)

    @pytest.mark.parametrize(("name", "value"), WITHOUT_MEANING.items())
    def test_an_argument_without_a_meaning_says_why(self, name, value):
        with pytest.raises(InvalidInput, match=rf"^{name} must be .*; got .*\. [A-Z].*\.$"):
            made(**{name: value})

    def test_privacy_engine_is_a_public_name(self):
        assert tacit.PrivacyEngine is PrivacyEngine


class TestGradient:
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.parametrize("pieces", [None, 7])
    def test_without_noise_it_is_the_clipped_sum(self, reduction, pieces):
        model = small_model()
        before = [p.detach().clone() for p in model.parameters()]
        settings = {"noise_multiplier": 0.0, "unsafe_no_noise": True, "loss_reduction": reduction}
        private, optimizer, loader = made(model=model, max_grad_norm=0.1, **settings)
        optimizer.param_groups[0]["lr"] = 1.0
        seen = []
        manager = BatchMemoryManager(data_loader=loader, max_physical_batch_size=pieces or 1000, optimizer=optimizer)
        with manager as parts:
            for x, y in parts:
                seen.append((x, y))
                nn.CrossEntropyLoss(reduction=reduction)(private(x), y).backward()
                optimizer.step()
                if not torch.equal(before[0], model[0].weight):
                    break
        x, y = torch.cat([x for x, _ in seen]), torch.cat([y for _, y in seen])
        fresh = small_model()
        total, norms = clipped_sum(fresh, cross_entropy, x, y, clip_norm=0.1)
        assert (norms > 0.1).any()
        divisor = 20.0 if reduction == "mean" else 1.0
        for old, new, gradient in zip(before, model.parameters(), total.values(), strict=True):
            torch.testing.assert_close(old - new, gradient / divisor, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("clipping", ["flat", "per_layer"])
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_the_gradient_equals_that_of_opacus(self, clipping, reduction):
        """Both see the whole data set as one batch, without noise."""
        opacus = pytest.importorskip("opacus")
        bound = [0.02, 0.01, 0.03, 0.015] if clipping == "per_layer" else 0.03
        settings = {"max_grad_norm": bound, "clipping": clipping, "loss_reduction": reduction}
        after = []
        for kind, extra in ((opacus.PrivacyEngine, {}), (PrivacyEngine, {"unsafe_no_noise": True})):
            model = small_model()
            loader = DataLoader(TensorDataset(*blobs(30)), batch_size=30)
            parts = kind(accountant="rdp").make_private(
                module=model,
                optimizer=SGD(model.parameters(), lr=1.0),
                data_loader=loader,
                noise_multiplier=0.0,
                **settings,
                **extra,
            )
            one_epoch(*parts, nn.CrossEntropyLoss(reduction=reduction))
            after.append(flat(model))
        # Opacus adds 1e-6 to every norm before it divides.
        torch.testing.assert_close(after[0], after[1], rtol=1e-4, atol=1e-5)

    def test_the_criterion_of_ghost_mode_weighs_without_mixing(self):
        """Class weights and ignored targets divide by nothing of the batch."""
        criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]), ignore_index=-1)
        x, y = blobs()
        y[::7] = -1
        model = small_model()
        parts = made(model=model, data=(x, y), grad_sample_mode="ghost", criterion=criterion)
        private, optimizer, own, loader = parts
        one_epoch(private, optimizer, loader, own)
        refused = made(data=(x, y))
        with pytest.raises(MixesRecords, match="class weights and ignored targets make a mean divide"):
            one_epoch(*refused, criterion)

    def test_the_criterion_of_ghost_mode_takes_positions(self):
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(12, 6), nn.Linear(6, 3)

            def forward(self, words):
                return self.head(self.table(words)).transpose(1, 2)

        words = torch.randint(12, (60, 5), generator=torch.Generator().manual_seed(0))
        model = Tagger()
        criterion = nn.CrossEntropyLoss(ignore_index=0)
        settings = {"criterion": criterion, "grad_sample_mode": "ghost"}
        private, optimizer, own, loader = made(model=model, data=(words, words % 3), **settings)
        one_epoch(private, optimizer, loader, own)
        assert optimizer.state is not None

    def test_a_criterion_that_is_a_function_is_refused_in_ghost_mode(self):
        with pytest.raises(InvalidInput, match="criterion must be a loss module"):
            made(grad_sample_mode="ghost", criterion=cross_entropy)


class TestAccounting:
    @pytest.mark.parametrize(("theirs", "ours"), [("prv", "pld"), ("rdp", "rdp"), ("pld", "pld"), ("zcdp", "zcdp")])
    def test_accountants_by_name(self, theirs, ours):
        engine = PrivacyEngine(accountant=theirs)
        one_epoch(*made(engine, noise_multiplier=2.0, batch_size=200))
        epsilon = engine.get_epsilon(1e-3)
        assert epsilon == accountant(ours)(engine.ledger).epsilon(1e-3)
        assert epsilon.standing is Standing.PROVEN
        assert len(engine.accountant) == 1

    def test_gdp_bounds_nothing_and_says_so(self):
        engine = PrivacyEngine(accountant="gdp")
        one_epoch(*made(engine))
        proven = accountant("pld")(engine.ledger).epsilon(1e-3)
        with pytest.warns(PrivacyWarning, match=rf"is asymptotic and bounds nothing; .* gives {float(proven):.4g}"):
            epsilon = engine.get_epsilon(1e-3)
        assert epsilon.standing is Standing.ASYMPTOTIC
        with pytest.warns(PrivacyWarning, match="noise for it would miss the target"):
            _, optimizer, loader = made(PrivacyEngine(accountant="gdp"), target_epsilon=2.0)
        meant = Gaussian(optimizer.noise_multiplier).poisson(0.1) * (2 * len(loader))
        assert 1.99 < accountant("pld")(meant).epsilon(1e-3) <= 2.0

    def test_a_target_is_met_and_not_passed(self):
        engine = PrivacyEngine()
        parts = made(engine, target_epsilon=2.0, batch_size=30)
        one_epoch(*parts)
        one_epoch(*parts)
        assert 1.99 < engine.get_epsilon(1e-3) <= 2.0
        with pytest.raises(BudgetExceeded):
            one_epoch(*parts)
        assert engine.get_epsilon(1e-3) <= 2.0

    def test_runs_of_one_engine_compose(self):
        engine = PrivacyEngine()
        one_epoch(*made(engine, noise_multiplier=3.0))
        alone = engine.get_epsilon(1e-3)
        one_epoch(*made(engine, noise_multiplier=3.0))
        assert engine.get_epsilon(1e-3) > alone
        one_epoch(*(parts := made(engine, target_epsilon=4.0)))
        one_epoch(*parts)
        assert 3.98 < engine.get_epsilon(1e-3) <= 4.0

    @pytest.mark.slow
    def test_two_runs_in_turn_share_one_target(self):
        """As when two networks are trained against each other."""
        engine = PrivacyEngine()
        first, second = made(engine, target_epsilon=2.0), made(engine, target_epsilon=2.0)

        def in_turn():
            for _ in range(2):
                one_epoch(*first)
                one_epoch(*second)

        with pytest.raises(BudgetExceeded):
            in_turn()
        assert 1.9 < engine.get_epsilon(1e-3) <= 2.0

    def test_the_rate_is_the_batch_size_over_the_records(self):
        engine = PrivacyEngine()
        one_epoch(*made(engine, data=blobs(210), batch_size=60))
        (entry,) = engine.ledger.entries
        assert entry.mechanism == Gaussian(1.3).poisson(60 / 210)
        assert entry.steps == 4

    def test_without_poisson_sampling_nothing_is_amplified(self):
        engine = PrivacyEngine()
        with pytest.warns(PrivacyWarning, match="without amplification"):
            parts = made(engine, poisson_sampling=False, noise_multiplier=6.0)
        assert len(parts[2]) == 10
        for _ in range(3):
            one_epoch(*parts)
        assert engine.get_epsilon(1e-3) == accountant("pld")(Gaussian(6.0) * 3).epsilon(1e-3)

    def test_without_poisson_sampling_a_target_is_met(self):
        engine = PrivacyEngine()
        with pytest.warns(PrivacyWarning, match="without amplification"):
            parts = made(engine, poisson_sampling=False, target_epsilon=3.0)
        one_epoch(*parts)
        one_epoch(*parts)
        assert 2.98 < engine.get_epsilon(1e-3) <= 3.0

    def test_a_noise_generator_voids_the_guarantee_and_says_so(self):
        weights = []
        for _ in range(2):
            engine, model = PrivacyEngine(), small_model()
            one_epoch(*made(engine, model, noise_generator=torch.Generator().manual_seed(3)))
            weights.append(flat(model))
        assert torch.equal(*weights)
        assert engine.get_epsilon(1e-3).standing is Standing.CLAIMED
        with pytest.raises(InvalidInput, match="noise_generator must be None in secure mode"):
            made(PrivacyEngine(secure_mode=True), noise_generator=torch.Generator())

    def test_a_large_delta_is_warned_about(self):
        engine = PrivacyEngine()
        one_epoch(*made(engine))
        with pytest.warns(PrivacyWarning, match="n=200"):
            engine.get_epsilon(0.01)

    def test_nothing_costs_nothing(self):
        assert PrivacyEngine().get_epsilon(1e-5) == 0.0


class TestAdaptive:
    def test_adaptive_clipping_costs_as_much_as_flat_clipping(self):
        engine, model = PrivacyEngine(), small_model()
        parts = made(engine, model, clipping="adaptive", max_grad_norm=5.0, clipbound_learning_rate=1.0)
        before = parts[1].max_grad_norm
        one_epoch(*parts)
        assert parts[1].max_grad_norm < before
        (entry,) = engine.ledger.entries
        assert entry.mechanism.base.noise_multiplier == pytest.approx(1.3, rel=1e-9)
        assert entry.mechanism.base.noise_multiplier >= 1.3

    def test_the_bound_stays_within_bounds(self):
        parts = made(clipping="adaptive", max_grad_norm=5.0, min_clipbound=4.9, max_clipbound=5.1)
        for _ in range(2):
            one_epoch(*parts)
        assert 4.9 <= parts[1].max_grad_norm <= 5.1

    def test_a_target_is_met(self):
        engine = PrivacyEngine()
        parts = made(engine, clipping="adaptive", target_epsilon=3.0)
        one_epoch(*parts)
        one_epoch(*parts)
        assert 2.98 < engine.get_epsilon(1e-3) <= 3.0

    @pytest.mark.parametrize(
        "changes", [{"unclipped_num_std": 0.5}, {"max_clipbound": 1.0, "min_clipbound": 2.0}, {"max_grad_norm": [1.0]}]
    )
    def test_bad_arguments(self, changes):
        with pytest.raises(InvalidInput, match="must be"):
            made(clipping="adaptive", **changes)


class TestSchedulers:
    @pytest.mark.parametrize(
        ("kind", "arguments", "expected"),
        [
            (ExponentialNoise, {"gamma": 0.5}, [2.0, 1.0, 0.5, 0.25]),
            (StepNoise, {"step_size": 2, "gamma": 0.5}, [2.0, 2.0, 1.0, 1.0]),
            (LambdaNoise, {"noise_lambda": lambda epoch: 1 + epoch}, [2.0, 4.0, 6.0, 8.0]),
            (ExponentialGradClip, {"gamma": 0.5}, [2.0, 1.0, 0.5, 0.25]),
            (StepGradClip, {"step_size": 2, "gamma": 0.5}, [2.0, 2.0, 1.0, 1.0]),
            (LambdaGradClip, {"scheduler_function": lambda epoch: 1 + epoch}, [2.0, 4.0, 6.0, 8.0]),
        ],
    )
    def test_values_by_epoch(self, kind, arguments, expected):
        _, optimizer, _ = made(noise_multiplier=2.0, max_grad_norm=2.0)
        scheduler = kind(optimizer, **arguments)
        found = []
        for _ in expected:
            found.append(getattr(optimizer, kind.attribute))
            scheduler.step()
        assert found == pytest.approx(expected)

    def test_a_restored_scheduler_goes_on(self):
        _, optimizer, _ = made(noise_multiplier=2.0)
        scheduler = ExponentialNoise(optimizer, gamma=0.5)
        scheduler.step()
        kept = scheduler.state_dict()
        _, other, _ = made(noise_multiplier=2.0)
        again = ExponentialNoise(other, gamma=0.5)
        again.load_state_dict(kept)
        again.step()
        assert other.noise_multiplier == pytest.approx(0.5)

    def test_the_bound_is_the_one_that_is_applied(self):
        model = small_model()
        private, optimizer, loader = made(model=model, noise_multiplier=0.0, unsafe_no_noise=True, max_grad_norm=1.0)
        optimizer.param_groups[0]["lr"] = 1.0
        optimizer.max_grad_norm = 1e-6
        before = flat(model)
        x, y = next(iter(loader))
        nn.CrossEntropyLoss()(private(x), y).backward()
        with pytest.raises(TrainingMisuse, match="max_grad_norm must change between batches"):
            optimizer.max_grad_norm = 1.0
        optimizer.step()
        assert 0 < (flat(model) - before).norm() < 1e-6 * len(x) / 20 * 1.001

    def test_noise_that_a_budget_was_planned_with_stays(self):
        _, optimizer, _ = made(target_epsilon=2.0)
        with pytest.raises(TrainingMisuse, match=r"noise_multiplier must stay .* the budget"):
            optimizer.noise_multiplier = 0.1

    def test_noise_that_is_none_is_refused(self):
        _, optimizer, _ = made()
        for value in (0.0, -1.0, math.nan):
            with pytest.raises(InvalidInput, match="noise_multiplier must be"):
                optimizer.noise_multiplier = value

    def test_a_plain_optimizer_is_refused(self):
        with pytest.raises(InvalidInput, match="optimizer must be the optimizer that make_private returned"):
            ExponentialNoise(plain_sgd(small_model()), gamma=0.5)


class TestMemoryManager:
    def test_loader_and_optimizer_of_different_runs(self):
        _, optimizer, _ = made()
        _, _, loader = made()
        with pytest.raises(InvalidInput, match="optimizer must be the optimizer that make_private returned together"):
            BatchMemoryManager(data_loader=loader, max_physical_batch_size=4, optimizer=optimizer)
        with pytest.raises(InvalidInput, match="data_loader must be the loader"):
            BatchMemoryManager(data_loader=[1], max_physical_batch_size=4, optimizer=optimizer)

    @pytest.mark.parametrize("size", [0, 1.5, None, "3"])
    def test_bad_sizes(self, size):
        _, optimizer, loader = made()
        with pytest.raises(InvalidInput, match="max_physical_batch_size must be an integer"):
            BatchMemoryManager(data_loader=loader, max_physical_batch_size=size, optimizer=optimizer)

    @pytest.mark.slow_cases("1")
    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_noise_is_added_once_whatever_the_physical_batches(self, size):
        weights = []
        for most in (size, 10**6):
            engine, model = PrivacyEngine(), small_model()
            private, optimizer, loader = made(engine, model, noise_generator=torch.Generator().manual_seed(1))
            with BatchMemoryManager(data_loader=loader, max_physical_batch_size=most, optimizer=optimizer) as pieces:
                one_epoch(private, optimizer, pieces)
            assert engine.ledger.steps == len(loader)
            weights.append(flat(model))
        torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


class TestValidator:
    def test_validator_lists_every_problem(self):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        (error,) = ModuleValidator.validate(model)
        assert "BatchNorm2d" in str(error)
        assert not ModuleValidator.is_valid(model)
        with pytest.raises(UnsupportedModel, match="BatchNorm2d"):
            ModuleValidator.validate(model, strict=True)
        engine = PrivacyEngine()
        assert not engine.is_compatible(module=model, optimizer=None, data_loader=None)
        with pytest.raises(UnsupportedModel, match="BatchNorm2d"):
            engine.validate(module=model, optimizer=None, data_loader=None)

    def test_eval_mode(self):
        (error,) = ModuleValidator.validate(small_model().eval())
        assert "eval mode" in str(error)
        assert ModuleValidator.is_valid(small_model())

    def test_a_fixed_copy(self):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        fixed = PrivacyEngine.get_compatible_module(model)
        assert ModuleValidator.is_valid(fixed)
        assert isinstance(fixed[1], nn.GroupNorm)
        assert isinstance(model[1], nn.BatchNorm2d)


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
            ({"noise_multiplier": math.nan}, "noise_multiplier must be"),
            ({"noise_multiplier": "1"}, "noise_multiplier must be"),
            ({"max_grad_norm": 0.0}, "clip_norm must be"),
            ({"max_grad_norm": math.inf}, "clip_norm must be"),
            ({"max_grad_norm": [1.0, 1.0]}, "max_grad_norm must be one number for flat clipping"),
            ({"max_grad_norm": [1.0], "clipping": "per_layer"}, "max_grad_norm must be a list of 4"),
            ({"loss_reduction": "average"}, "loss_reduction must be one of mean, sum"),
            ({"clipping": "flatt"}, "Did you mean 'flat'"),
            ({"grad_sample_mode": "hook"}, "Did you mean 'hooks'"),
            ({"noise_generator": 3}, "noise_generator must be a torch.Generator"),
            ({"target_epsilon": 0.0}, "epsilon must be"),
            ({"target_epsilon": math.nan}, "epsilon must be"),
        ],
    )
    def test_arguments(self, changes, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            made(**changes)

    def test_accountants(self):
        with pytest.raises(InvalidInput, match="Did you mean 'rdp'"):
            PrivacyEngine(accountant="rpd")

    @pytest.mark.parametrize("delta", [2.0, -1e-5, math.nan, "1e-5"])
    def test_deltas(self, delta):
        with pytest.raises(InvalidInput, match="delta must be"):
            PrivacyEngine().get_epsilon(delta)

    def test_private_parts_are_not_made_private_again(self):
        model, optimizer, loader = made()
        with pytest.raises(TrainingMisuse, match="must be the original ones"):
            PrivacyEngine().make_private(
                module=model,
                optimizer=optimizer,
                data_loader=DataLoader(TensorDataset(*blobs()), batch_size=20),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
        with pytest.raises(InvalidInput, match="loader must be a DataLoader"):
            PrivacyEngine().make_private(
                module=model.module,
                optimizer=optimizer.original,
                data_loader=loader,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )

    def test_a_loss_of_the_wrong_reduction(self):
        with pytest.raises(InvalidInput, match="loss must be the mean over the batch"):
            one_epoch(*made(loss_reduction="mean"), nn.CrossEntropyLoss(reduction="sum"))
        with pytest.raises(MixesRecords, match="it divides by a number of the whole batch"):
            one_epoch(*made(loss_reduction="sum"), nn.CrossEntropyLoss(reduction="mean"))


def test_training_without_noise_is_told_of_and_has_no_standing():
    model = nn.Linear(3, 2)
    engine = PrivacyEngine()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(20, 3)), batch_size=5)
    with pytest.warns(PrivacyWarning, match="noise_multiplier=0 trains without privacy"):
        engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=0.0,
            max_grad_norm=1.0,
        )
    assert engine.ledger.unsafe


def test_batch_normalisation_becomes_what_is_asked_for():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm2d(16))
    groups, instances = ModuleValidator.fix(model, num_groups=4), ModuleValidator.fix(model, replace_bn_with_in=True)
    assert groups[1].num_groups == 4
    assert isinstance(instances[1], nn.InstanceNorm2d)
    assert instances[1].weight.shape == (16,)
    assert isinstance(model[1], nn.BatchNorm2d)
    with pytest.raises(InvalidInput, match="num_groups must be None with replace_bn_with_in"):
        ModuleValidator.fix(model, num_groups=4, replace_bn_with_in=True)
    with pytest.raises(InvalidInput, match="num_groups must be a divisor of the 16 channels"):
        ModuleValidator.fix(model, num_groups=5)
    assert len(ModuleValidator.VALIDATORS[nn.BatchNorm2d](model[1])) == 1
    assert isinstance(ModuleValidator.FIXERS[nn.BatchNorm2d](model[1]), nn.GroupNorm)


def test_an_optimizer_of_another_model_is_a_value_error():
    """Scripts for Opacus catch `ValueError`; those for tacit `TrainingMisuse`."""
    model, loader = small_model(), DataLoader(TensorDataset(*blobs()), batch_size=20)
    optimizer = plain_sgd(small_model())
    with pytest.raises(ValueError, match="optimizer must hold the parameters of this model") as caught:
        PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
        )
    assert isinstance(caught.value, TrainingMisuse)


def test_a_mean_that_leaves_out_a_target_is_refused_in_any_batch():
    labels = torch.arange(400) % 2
    labels[7] = -100
    model, engine, seen = nn.Linear(4, 2), PrivacyEngine(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(400, 4), labels), batch_size=120)
    named = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "loss_reduction": "mean"}
    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **named)

    def train():
        for x, y in itertools.chain.from_iterable(itertools.repeat(loader, 20)):
            seen.append(bool((y.as_subclass(torch.Tensor) == -100).any()))
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    with pytest.raises(MixesRecords, match="ignored targets make a mean divide by a private number"):
        train()  # Record 7 is in none of 60 batches once in 2e9 runs.
    assert seen.index(True) == len(seen) - 1
