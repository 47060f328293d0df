"""Runs with every clip, sampler and noise schedule: what they release, and that the ledger is what ran."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger, accountant
from tacit.clipping import AdaptiveClip, AutomaticClip, BatchMeanClip, FlatClip, GroupClip, PerLayerClip
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.mechanisms import FixedSize, Gaussian, Shuffled, TruncatedPoisson
from tacit.noise import SeededStream
from tacit.sampling import GroupedPoissonSampling, TruncatedPoissonSampling
from tacit.tradeoff import Epsilon, Mu
from tacit.training import (
    ExponentialNoise,
    Functions,
    Plan,
    StepNoise,
    fit,
    make_private,
    private_step,
)
from tacit.training.private_step import PrivateUpdate
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model, squared_error

CLIPS = [
    FlatClip(0.4),
    PerLayerClip(0.4),
    GroupClip({"0.*": 0.1, "*": 0.5}),
    AutomaticClip(0.4),
    AdaptiveClip(0.4),
    BatchMeanClip(0.4),
]
KEYS = np.arange(200) // 5


def run(model=None, **changes):
    model = model if model is not None else small_model()
    x, y = blobs()
    arguments = {"clip_norm": 0.4, "noise_multiplier": 1.3, "batch_size": 20, "steps": 4, "stream": SeededStream(0)}
    if "clipping" in changes:
        arguments.pop("clip_norm")
    return model, fit(model, x, y, loss=cross_entropy, optimizer=plain_sgd(model), **(arguments | changes))


def entries(ledger):
    return [(entry.mechanism, entry.steps) for entry in ledger.entries]


def passes(ledger):
    return sum(times for _, times in ledger.mechanism.accountable().parts())


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.type)
def test_every_clip_runs_and_writes_its_mechanism(clip):
    model, result = run(clipping=clip)
    expected = Gaussian(1.3 / math.sqrt(1.01) if isinstance(clip, AdaptiveClip) else 1.3)
    ((mechanism, steps),) = entries(result.ledger)
    assert (mechanism.sample_rate, steps) == (0.1, 4)
    assert mechanism.base.noise_multiplier == pytest.approx(expected.noise_multiplier, rel=1e-12)
    assert torch.isfinite(flat(model)).all()
    assert not torch.equal(flat(model), flat(small_model()))


@pytest.mark.slow_cases
@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.type)
def test_a_loop_equals_fit_under_every_clip(clip):
    fitted, _ = run(clipping=clip, steps=5)
    looped = small_model()
    loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
    parts = make_private(
        looped, plain_sgd(looped), loader, clipping=clip, noise_multiplier=1.3, steps=5, stream=SeededStream(0)
    )
    for _, (x, y) in zip(range(5), parts.loader, strict=False):
        cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()
    torch.testing.assert_close(flat(looped), flat(fitted), rtol=1e-4, atol=1e-5)


@pytest.mark.slow_cases("per_layer", "automatic", "batch_mean")
@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.type)
def test_a_loop_over_physical_batches_equals_fit(clip):
    fitted, _ = run(clipping=clip, steps=2)
    looped = small_model()
    loader = DataLoader(TensorDataset(*blobs()), batch_size=20)
    parts = make_private(
        looped, plain_sgd(looped), loader, clipping=clip, noise_multiplier=1.3, steps=2, stream=SeededStream(0),
        max_physical_batch_size=7,
    )  # fmt: skip
    for x, y in parts.loader:
        cross_entropy(parts.model(x), y).backward()
        parts.optimizer.step()
        if parts.ledger.steps == 2:
            break
    torch.testing.assert_close(flat(looped), flat(fitted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.type)
def test_noise_has_the_std_of_the_sensitivity(clip):
    """On empty batches an update is noise alone: 300 x 26 values a clip, false alarms below 1e-6."""
    model = small_model()
    x, y = blobs(0)
    step = private_step(
        model, SGD(model.parameters(), lr=1.0), cross_entropy, clipping=clip, noise_multiplier=0.7,
        expected_batch_size=37, stream=SeededStream(1),
    )  # fmt: skip
    values = []
    for _ in range(1 if clip.statistics else 300):
        before = flat(model)
        step(x, y)
        values.append((before - flat(model)).double().numpy())
    std = 0.7 * clip.sensitivity / (1 if clip.of_mean else 37)
    ratio = np.square(values).mean() / std**2
    assert abs(ratio - 1) < 7 * math.sqrt(2 / np.size(values))


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.type)
def test_physical_batches_change_nothing_and_noise_comes_once(clip):
    settings = {"clipping": clip, "batch_size": 60, "steps": 2}
    weights = [flat(run(**settings, max_physical_batch_size=size)[0]) for size in (1, 3, 7, None)]
    for other in weights[:-1]:
        torch.testing.assert_close(other, weights[-1], rtol=1e-4, atol=1e-5)


def test_physical_batches_of_compiled_steps_change_nothing(monkeypatch):
    """Without vectors, for which torch builds eight libraries to ask the processor; slow tests compile with them."""
    monkeypatch.setattr("torch._inductor.config.cpp.vec_isa_ok", False)
    weights = []
    for engine, size in (("compiled", 64), ("eager", None)):  # 200 of 200 records: one size, and so one graph.
        weights.append(flat(run(engine=engine, max_physical_batch_size=size, batch_size=200)[0]))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)


def test_clips_that_cannot_be_compiled_say_so():
    for clip in (AdaptiveClip(1.0), BatchMeanClip(1.0)):
        with pytest.raises(InvalidInput, match=f'engine must be "eager" for {clip.type} clipping'):
            run(clipping=clip, engine="compiled")


def test_the_adaptive_bound_moves_to_the_quantile():
    model = small_model()
    x, y = blobs()
    step = PrivateUpdate(
        model,
        plain_sgd(model, 0.0),
        cross_entropy,
        clip=AdaptiveClip(50.0, quantile=0.3, count_noise=0.1),
        expected_batch_size=200,
        engine="eager",
        stream=SeededStream(2),
    )
    for _ in range(60):
        step(x, y, 1.0)
    norms = []
    for i in range(200):
        gradients = torch.autograd.grad(cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum(), model.parameters())
        norms.append(math.hypot(*(float(g.norm()) for g in gradients)))
    assert step.clipped.clip.sensitivity == pytest.approx(float(np.quantile(norms, 0.3)), rel=0.1)


class TestSampling:
    def test_fixed_size(self):
        _, result = run(sampling="fixed_size", ledger=Ledger(relation="replace_one"))
        assert entries(result.ledger) == [(FixedSize(Gaussian(1.3), 200, 20), 4)]
        with pytest.raises(InvalidInput, match="relation must be replace_one for fixed_size sampling; got add_remove"):
            run(sampling="fixed_size")

    def test_shuffled(self):
        _, result = run(sampling="shuffled", steps=None, epochs=3)
        assert entries(result.ledger) == [(Shuffled(Gaussian(1.3), 200, 20), 30)]
        assert any("disjoint" in sentence for sentence in result.ledger.assumptions)
        exact = accountant("pld")(Gaussian(1.3) * 3).epsilon(1e-5)
        assert accountant("pld")(result.ledger).epsilon(1e-5) == pytest.approx(float(exact))

    @pytest.mark.slow
    def test_the_broken_passes_of_two_runs_are_each_counted_as_whole(self):
        ledger = Ledger()
        for steps in (3, 3, 13):
            run(sampling="shuffled", steps=steps, ledger=ledger)
        assert entries(ledger) == [(Shuffled(Gaussian(1.3), 200, 20, n), steps) for n, steps in enumerate((3, 3, 13))]
        assert passes(ledger) == 1 + 1 + 2

    @pytest.mark.slow
    def test_runs_that_take_turns_on_one_ledger_keep_their_series(self):
        ledger, loader = Ledger(), DataLoader(TensorDataset(*blobs()), batch_size=20)
        settings = {"clip_norm": 0.4, "noise_multiplier": 1.3, "steps": 10, "sampling": "shuffled", "ledger": ledger}
        made = [make_private(model, plain_sgd(model), loader, **settings) for model in (small_model(), small_model())]
        for turns, counted in ((5, 2), (10, 2), (12, 4)):
            while ledger.steps < 2 * turns:
                for private in made:
                    x, y = next(iter(private.loader))
                    cross_entropy(private.model(x), y).backward()
                    private.optimizer.step()
            assert passes(ledger) == counted

    def test_a_run_is_planned_beside_what_the_ledger_holds(self):
        ledger, target = Ledger(), Mu(1.05)
        run(sampling="shuffled", steps=3, ledger=ledger, noise_multiplier=2.0)
        _, result = run(sampling="shuffled", steps=7, ledger=ledger, noise_multiplier=2.0, target=target)
        assert (passes(ledger), result.plan.mechanism) == (2, Shuffled(Gaussian(2.0), 200, 20, 1))
        with pytest.raises(BudgetExceeded):
            run(sampling="shuffled", steps=30, ledger=ledger, noise_multiplier=2.0, target=target)
        assert passes(ledger) == 4

    def test_noise_changes_between_passes_only(self):
        _, result = run(sampling="shuffled", steps=20, noise_multiplier=[1.0] * 10 + [2.0] * 10)
        assert [steps for _, steps in entries(result.ledger)] == [10, 10]
        with pytest.raises(InvalidInput, match="noise_multiplier must be the same for 10 steps"):
            run(sampling="shuffled", steps=20, noise_multiplier=[1.0] * 7 + [2.0] * 13)

    def test_truncated(self):
        sizes = []
        model = small_model()
        model.register_forward_hook(lambda module, args, output: sizes.append(len(args[0])))
        _, result = run(model, sampling=TruncatedPoissonSampling(22), steps=30)
        assert entries(result.ledger) == [(TruncatedPoisson(Gaussian(1.3), 0.1, 200, 22), 30)]
        assert max(sizes[-25:]) <= 22

    def test_users(self):
        _, result = run(sampling=GroupedPoissonSampling(KEYS), batch_size=8)
        assert entries(result.ledger) == [(Gaussian(1.3).poisson(0.2), 4)]
        assert result.ledger.unit == "user"
        assert "The number of users is public." in result.ledger.assumptions
        assert result.plan.expected_batch_size == pytest.approx(8.0)
        with pytest.raises(InvalidInput, match="unit of ledger must be 'user'"):
            run(sampling=GroupedPoissonSampling(KEYS), ledger=run()[1].ledger)

    @pytest.mark.parametrize("average", [False, True])
    def test_a_user_with_many_records_moves_the_weights_by_no_more_than_the_bound(self, average):
        """Without noise: one more user, whose records all pull alike, against the same run without them."""
        x, y = torch.ones(60, 4), torch.zeros(60, 1)
        paths = []
        for records in (20, 60):
            torch.manual_seed(0)
            model = nn.Linear(4, 1)
            keys = np.minimum(np.arange(records), 20)
            fit(
                model, x[:records], y[:records], loss=squared_error, optimizer=plain_sgd(model, 1.0), clip_norm=0.3,
                noise_multiplier=0.0, unsafe_no_noise=True, sample_rate=1.0, steps=1,
                sampling=GroupedPoissonSampling(keys, average=average),
            )  # fmt: skip
            paths.append(flat(model))
        start = flat(_seeded_linear())
        first, second = (paths[0] - start) * 20, (paths[1] - start) * 21
        assert float((second - first).norm()) <= 0.3 * (1 + 1e-4)

    def test_make_private_takes_users(self):
        looped, fitted = small_model(), small_model()
        loader = DataLoader(TensorDataset(*blobs()), batch_size=8)
        sampling = GroupedPoissonSampling(KEYS)
        parts = make_private(
            looped, plain_sgd(looped), loader, clip_norm=0.4, noise_multiplier=1.3, steps=4, sampling=sampling,
            stream=SeededStream(0),
        )  # fmt: skip
        for _, (x, y) in zip(range(4), parts.loader, strict=False):
            cross_entropy(parts.model(x), y).backward()
            parts.optimizer.step()
        run(fitted, sampling=sampling, batch_size=8)
        torch.testing.assert_close(flat(looped), flat(fitted), rtol=1e-4, atol=1e-5)
        assert parts.ledger.unit == "user"

    def test_users_are_clipped_as_one_in_a_loop_with_smaller_physical_batches(self):
        """Without noise and at rate 1: five equal records of each of 40 users add 40 clipping norms at most."""
        model = nn.Linear(4, 1, bias=False)
        nn.init.zeros_(model.weight)
        data = TensorDataset(torch.ones(200, 4), torch.ones(200, 1))
        parts = make_private(
            model, plain_sgd(model, 1.0), DataLoader(data, batch_size=40), clip_norm=0.3, noise_multiplier=0.0,
            unsafe_no_noise=True, steps=1, sampling=GroupedPoissonSampling(KEYS), max_physical_batch_size=20,
        )  # fmt: skip
        for x, y in parts.loader:
            squared_error(parts.model(x), y).backward()
            parts.optimizer.step()
        assert parts.ledger.steps == 1
        # Every record pulls alike, so that the bound is reached: the mean of 40 users' gradients has length 0.3.
        assert float(flat(model).norm()) == pytest.approx(0.3, rel=1e-4)


def _seeded_linear():
    torch.manual_seed(0)
    return nn.Linear(4, 1)


class TestSchedules:
    def test_the_ledger_records_every_run_of_equal_multipliers(self):
        _, result = run(noise_multiplier=[1.0, 1.0, 2.0, 1.0])
        assert entries(result.ledger) == [
            (Gaussian(1.0).poisson(0.1), 2),
            (Gaussian(2.0).poisson(0.1), 1),
            (Gaussian(1.0).poisson(0.1), 1),
        ]

    def test_an_even_schedule_is_one_number(self):
        assert entries(run(noise_multiplier=[1.3] * 4)[1].ledger) == entries(run()[1].ledger)

    def test_every_step_gets_its_own_noise(self):
        """One long direction and no other gradient: the path shows the noise, in units of the plan's."""
        multipliers = [0.5, 4.0, 1.0]
        noises = []
        for scale in (multipliers, [1.0] * 3):
            model = nn.Linear(3, 1)
            start, path = flat(model), []
            fit(
                model, torch.zeros(50, 3), torch.zeros(50), loss=lambda outputs, targets: outputs[:, 0] * 0.0,
                optimizer=plain_sgd(model, 1.0), clip_norm=0.4, noise_multiplier=scale, batch_size=10, steps=3,
                stream=SeededStream(3),
                callbacks=[Functions(on_step=lambda *_, path=path, model=model: path.append(flat(model)))],
            )  # fmt: skip
            noises.append(torch.stack([b - a for a, b in zip([start, *path[:-1]], path, strict=True)]))
        torch.testing.assert_close(noises[0], noises[1] * torch.tensor(multipliers)[:, None], rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("length", [0, 3, 5])
    def test_lists_of_another_length_are_refused(self, length):
        with pytest.raises(InvalidInput, match=rf"noise_multiplier must be one number or a list of 4 .*got '{length} "):
            run(noise_multiplier=[1.0] * length)
        with pytest.raises(InvalidInput, match="noise_multiplier must be"):
            Plan(100, 0.1, FlatClip(1.0), (1.0,) * length, 4)

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", None])
    def test_every_number_of_a_list_is_checked(self, bad):
        with pytest.raises(InvalidInput, match="noise_multiplier must be in"):
            run(noise_multiplier=[1.0, 1.0, bad, 1.0])

    def test_shapes(self):
        assert ExponentialNoise(1.0, 4.0).multipliers(3) == pytest.approx((1.0, 2.0, 4.0))
        assert StepNoise(2.0, 0.5, 2).multipliers(5) == (2.0, 2.0, 1.0, 1.0, 0.5)
        shape = ExponentialNoise(2.0, 1.0)
        assert shape.multipliers(1) == (2.0,)
        _, result = run(noise_multiplier=shape)
        expected = [Gaussian(value).poisson(0.1) for value in shape.multipliers(4)]
        assert [mechanism for mechanism, _ in entries(result.ledger)] == expected

    def test_bad_ends_are_refused(self):
        for start, end in ((0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)):
            with pytest.raises(InvalidInput, match=" must be in"):
                ExponentialNoise(start, end)
        with pytest.raises(InvalidInput, match="every must be"):
            StepNoise(1.0, 0.5, 0)

    def test_a_budget_stops_before_the_step_that_would_cross_it(self):
        target, ledger = Epsilon(1.5, delta=1e-3), Ledger()
        schedule = ExponentialNoise(3.0, 0.4)
        with pytest.raises(BudgetExceeded, match="would cross the privacy budget"):
            run(noise_multiplier=schedule, target=target, accountant="rdp", steps=15, ledger=ledger)
        taken = ledger.steps
        assert 0 < taken < 15
        assert target.met(accountant("rdp")(ledger))
        ledger.add(Gaussian(schedule.multipliers(15)[taken]).poisson(0.1))
        assert not target.met(accountant("rdp")(ledger))


class TestCalibration:
    @pytest.mark.slow_cases
    @pytest.mark.parametrize("changes", [
        {"clipping": AdaptiveClip(0.4)},
        {"sampling": "shuffled"},
        {"sampling": "fixed_size", "ledger": "replace_one"},
        {"sampling": TruncatedPoissonSampling(26)},
        {"sampling": GroupedPoissonSampling(KEYS), "batch_size": 4},
    ], ids=["adaptive", "shuffled", "fixed", "truncated", "users"])  # fmt: skip
    def test_a_target_is_met_by_what_ran(self, changes):
        if "ledger" in changes:
            changes = changes | {"ledger": Ledger(relation=changes["ledger"])}
        target = Epsilon(2.0, delta=1e-3)
        _, result = run(noise_multiplier=None, target=target, accountant="rdp", steps=20, **changes)
        assert result.ledger.steps == 20
        assert 1.99 < accountant("rdp")(result.ledger).epsilon(1e-3) <= 2.0
