"""Training with correlated noise: what is accounted for is what runs, and what a checkpoint holds."""

import numpy as np
import pytest
import torch

from tacit.accounting import account
from tacit.errors import InvalidInput, Refused, TrainingMisuse
from tacit.mechanisms import CyclicAllocation, CyclicPoisson, Gaussian, MinSeparation, from_spec
from tacit.noise import SecureStream, SeededStream
from tacit.noise.correlated import CorrelatedNoise
from tacit.opacus import PrivacyEngine
from tacit.sampling import BallsAndBinsSampling, CyclicAllocationSampling, CyclicPoissonSampling
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import Functions, fit, make_private, read_checkpoint, release
from tacit.training.release import Correlation
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

KINDS = [
    ("banded:3", "cyclic_poisson"),
    ("banded:3", "cyclic_allocation"),
    ("banded:3", "balls_and_bins"),
    ("blt:2", "balls_and_bins"),
    ("tree", "balls_and_bins"),
    ("independent", "balls_and_bins"),
    ("independent", "cyclic_allocation"),
]


def trained(noise, sampling, *, stream=None, model=None, **options):
    model = small_model() if model is None else model
    inputs, targets = blobs()
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "batch_size": 20, "steps": 24} | options
    result = fit(
        model,
        inputs,
        targets,
        loss=cross_entropy,
        optimizer=plain_sgd(model),
        noise=noise,
        sampling=sampling,
        stream=stream,
        **settings,
    )
    return model, result


@pytest.mark.parametrize(("noise", "sampling"), KINDS)
def test_runs_are_proven_and_cost_what_their_mechanism_does(noise, sampling):
    _, result = trained(noise, sampling, steps=10)
    ledger = result.ledger
    assert ledger.standing is Standing.PROVEN
    (entry,) = ledger.entries
    assert entry.steps == 10
    again, steps = from_spec(entry.mechanism.spec() | {"steps": 10})
    assert (again, steps) == (entry.mechanism, 10)
    assert any("counts as known" in sentence for sentence in ledger.assumptions)


def test_mechanisms_follow_noise_and_sampling():
    kinds = {each: type(trained(*each, steps=4)[1].ledger.entries[0].mechanism) for each in KINDS[:4]}
    assert list(kinds.values()) == [CyclicPoisson, CyclicAllocation, MinSeparation, MinSeparation]


@pytest.mark.parametrize(("noise", "sampling"), KINDS[:5])
def test_the_noise_of_a_run_is_that_of_its_strategy(noise, sampling):
    """Clipped sums of zero: each step's update is C^-1 z. 50 weights x 24 steps, 6 standard errors (2e-9)."""
    updates = []
    model = torch.nn.Linear(4, 500)
    before = flat(model)

    def after(done, total):
        nonlocal before
        updates.append(before - flat(model))
        before = flat(model)

    inputs, _ = blobs()
    result = fit(
        model,
        inputs,
        torch.zeros(len(inputs)),
        loss=lambda outputs, targets: (outputs * 0).sum(1),
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        clip_norm=1.0,
        noise_multiplier=2.0,
        batch_size=20,
        steps=24,
        noise=noise,
        sampling=sampling,
        callbacks=[Functions(on_step=after)],
    )
    found = torch.stack(updates).double().numpy() * 20
    spread = result.plan.strategy.row_norms() * 2.0
    assert np.abs(found.std(axis=1) / spread - 1).max() < 6 / np.sqrt(2 * found.shape[1]) + 0.002


def interrupted_after_14_steps(noise, sampling, **options):
    def stop(done, total):
        if done == 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(noise, sampling, callbacks=[Functions(on_step=stop)], **options)


@pytest.mark.slow_cases
@pytest.mark.parametrize(("noise", "sampling"), KINDS)
def test_seeded_runs_resume_bit_for_bit(noise, sampling, tmp_path):
    whole, _ = trained(noise, sampling, stream=SeededStream(3))
    options = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 5}
    interrupted_after_14_steps(noise, sampling, stream=SeededStream(3), **options)
    model, result = trained(noise, sampling, stream=SeededStream(3), resume=True, **options)
    assert torch.equal(flat(model), flat(whole))
    assert result.ledger.steps == 24


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "sampling"), KINDS[:5])
def test_secure_checkpoints_hold_no_sums_and_resume_as_another_run(noise, sampling, tmp_path):
    options = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 5}
    interrupted_after_14_steps(noise, sampling, **options)
    kept = read_checkpoint(options["checkpoint"]).state["run"]
    assert "correlation" not in kept
    assert set(kept["sampler"]) == {"unfinished"}
    _, result = trained(noise, sampling, resume=True, **options)
    series = {entry.mechanism.series for entry in result.ledger.entries}
    assert len(series) == 2
    assert result.ledger.steps >= 24
    whole = trained(noise, sampling)[1].ledger
    cost = [
        account(each, delta=1e-5, accountants=["pld"]).results[0].row()["epsilon"] for each in (result.ledger, whole)
    ]
    assert cost[0] > cost[1]


def test_a_seeded_checkpoint_resumed_with_secure_noise_is_another_run(tmp_path):
    path = tmp_path / "run.safetensors"

    def stop(done, total):
        if done == 7:
            raise KeyboardInterrupt

    options = {"checkpoint": path, "checkpoint_every": 5}
    with pytest.raises(KeyboardInterrupt):
        trained(*KINDS[0], stream=SeededStream(3), callbacks=[Functions(on_step=stop)], **options)
    _, result = trained(*KINDS[0], stream=SecureStream(), resume=True, **options)
    assert len({entry.mechanism.series for entry in result.ledger.entries}) == 2
    assert result.ledger.standing is Standing.CLAIMED


@pytest.mark.slow
def test_recorded_engines_take_the_same_noise():
    eager, _ = trained("banded:3", "cyclic_poisson", stream=SeededStream(1))
    recorded, _ = trained("banded:3", "cyclic_poisson", stream=SeededStream(1), engine="recorded")
    assert torch.allclose(flat(eager), flat(recorded), atol=2e-2)


def test_loops_of_the_user_take_correlated_noise_and_end_with_the_plan():
    inputs, targets = blobs()
    model = small_model()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=20)
    private = make_private(
        model,
        plain_sgd(model),
        loader,
        clip_norm=1.0,
        noise_multiplier=1.0,
        epochs=1,
        noise="banded:3",
        sampling="cyclic_allocation",
    )
    for x, y in private.loader:
        cross_entropy(private.model(x), y).backward()
        private.optimizer.step()
    assert private.ledger.steps == 10
    assert type(private.ledger.entries[0].mechanism) is CyclicAllocation
    with pytest.raises(TrainingMisuse, match="must end after the 10 steps"):
        next(iter(private.loader))
    with pytest.raises(TrainingMisuse, match="noise_multiplier must stay"):
        private.optimizer.noise_multiplier = 3.0
    with pytest.raises(InvalidInput, match="clip_norm"):
        private.optimizer.max_grad_norm = 3.0


def test_the_engine_of_opacus_takes_the_same_names():
    inputs, targets = blobs()
    model = small_model()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=20)
    engine = PrivacyEngine()
    private, optimizer, batches = engine.make_private(
        module=model,
        optimizer=plain_sgd(model),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        sampling="balls_and_bins",
        noise="blt:2",
        epochs=2,
    )
    for _ in range(2):
        for x, y in batches:
            torch.nn.CrossEntropyLoss()(private(x), y).backward()
            optimizer.step()
    assert engine.ledger.standing is Standing.PROVEN
    assert type(engine.ledger.entries[0].mechanism) is MinSeparation


def test_a_step_that_is_charged_and_not_released_ends_the_run():
    """A missing step would shift the noise against the sampler's turns, and break the separation."""
    from tacit.noise.strategy import banded
    from tacit.training.release import Correlation

    correlation = Correlation(banded(8, 2))
    correlation.charge()
    correlation.decode(correlation.encode(torch.zeros(3), 1.0))
    correlation.charge()
    with pytest.raises(TrainingMisuse, match="release every step"):
        correlation.charge()
    with pytest.raises(TrainingMisuse, match="clip and noise must stay"):
        correlation.encode(torch.zeros(3), 2.0)


@pytest.mark.parametrize(
    ("noise", "sampling", "options", "sentence"),
    [
        ("banded:3", "poisson", {}, "cyclic_poisson"),
        ("banded:3", "shuffled", {}, "cyclic_poisson"),
        ("blt:2", "cyclic_poisson", {}, "groups must be at most"),
        ("tree", "cyclic_poisson", {}, "must be"),
        ("banded:11", "cyclic_poisson", {}, "groups must be at most"),
        ("banded:3", CyclicPoissonSampling(groups=2), {}, "groups must be at least the 3 bands"),
        ("banded:auto", "cyclic_poisson", {}, "target"),
        ("banded:3", "cyclic_poisson", {"noise_multiplier": [1.0, 2.0] * 12}, "correlated noise"),
    ],
)
def test_what_is_not_proven_is_refused(noise, sampling, options, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        trained(noise, sampling, **options)


@pytest.mark.slow
def test_automatic_bands_are_no_worse_than_one_band():
    _, result = trained("banded:auto", "cyclic_poisson", noise_multiplier=None, target=Epsilon(4.0, 1e-5))
    from tacit.noise.strategy import banded, prefix_error

    _, single = trained("banded:1", "cyclic_poisson", noise_multiplier=None, target=Epsilon(4.0, 1e-5))
    found, alone = (each.plan.noise_at(0) * prefix_error(each.plan.strategy) for each in (result, single))
    assert found <= alone
    assert result.ledger.standing is Standing.PROVEN
    assert single.plan.strategy == banded(24, 1)


@pytest.mark.parametrize("sampling", [CyclicPoissonSampling(3), CyclicAllocationSampling(3), BallsAndBinsSampling()])
def test_records_keep_their_distance_and_join_at_the_rate(sampling):
    """1,000 records, 600 steps, rate 1 / 12: the total is within 6 standard errors but for 2e-9."""
    sampler = sampling.sampler(1000, 1 / 12, SeededStream(0))
    last = np.full(1000, -1000)
    total = 0
    for step in range(600):
        batch = sampler.issue()
        assert (step - last[batch.indices]).min(initial=1000) >= (12 if sampling.type == "balls_and_bins" else 3)
        last[batch.indices] = step
        total += len(batch)
        sampler.redeem(batch)
    assert abs(total - 50_000) < 6 * np.sqrt(50_000)
    if sampling.type == "cyclic_allocation":
        # T = 4 turns of 3 groups; each record once in every block of them.
        assert (last >= 600 - 2 * 12).all()


def test_min_separation_costs_a_whole_run_from_its_first_step():
    _, result = trained("blt:2", "balls_and_bins", steps=24)
    mechanism = result.ledger.entries[0].mechanism
    assert mechanism.accounted(1) == mechanism.accounted(24)
    assert mechanism.accounted(25)[1] == 2
    assert isinstance(mechanism.accounted(1)[0], Gaussian)
    assert CorrelatedNoise.of(result.plan.strategy).slack(0.0, 2**19) < 1e-4


@pytest.mark.parametrize(("noise", "sampling"), [KINDS[0], KINDS[3], KINDS[4], KINDS[6]])
def test_correlated_noise_of_another_size_ends_the_run(noise, sampling, monkeypatch):
    rounded = release.rounded_gaussian
    monkeypatch.setattr(release, "rounded_gaussian", lambda *given, std, **named: rounded(*given, std=std / 2, **named))
    with pytest.raises(Refused, match=r"ledger states; it is of another size|lie on the grid"):
        trained(noise, sampling)


def test_noise_of_another_matrix_ends_the_run(monkeypatch):
    monkeypatch.setattr(Correlation, "encode", lambda self, sums, std: sums.detach().double().cpu())
    monkeypatch.setattr(Correlation, "decode", independent)
    with pytest.raises(Refused, match="noise must be that which the ledger states"):
        trained("banded:4", "cyclic_poisson", steps=64, model=torch.nn.Linear(4, 100))


def independent(self, rows):
    self._charged = False
    return rows, 1.0
