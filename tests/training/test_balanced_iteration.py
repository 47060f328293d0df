"""Training with balanced iteration sampling: its ledger, its batches, its resumption, and what it refuses."""

import numpy as np
import pytest
import torch

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.mechanisms import BalancedIteration, Gaussian
from tacit.opacus import PrivacyEngine
from tacit.sampling import BalancedIterationSampling
from tacit.sampling.allocation import BalancedIterationSampler
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import Plan, make_private, read_checkpoint
from tests.training.cases import blobs, cross_entropy, plain_sgd, small_model
from tests.training.test_correlation import trained
from tests.training.test_fit_resume import run as resumed
from tests.training.test_fit_resume import stopped


def run(**options):
    return trained("independent", "balanced_iteration", **options)[1]


def test_a_run_states_its_participations_and_is_proven():
    result = run(steps=25)
    (entry,) = result.ledger.entries
    assert entry.mechanism == BalancedIteration(Gaussian(1.0), iterations=25, participations=2)
    assert entry.steps == 25
    assert result.ledger.standing is Standing.PROVEN
    assert result.plan.correlation is None


def test_the_sampler_of_a_plan_deals_each_record_so_many_steps():
    plan = Plan(40, 0.1, 1.0, 1.0, 30, sampling=BalancedIterationSampling())
    sampler = plan.sampling.sampler(40, 0.1, None)
    assert isinstance(sampler, BalancedIterationSampler)
    counts = np.bincount(np.concatenate([sampler.draw().indices for _ in range(30)]), minlength=40)
    assert (counts == 3).all()


def test_replace_one_is_accounted_for_as_if_steps_were_known():
    result = run(steps=24, ledger=Ledger(relation="replace_one"))
    known = accountant("pld")(Gaussian(1.0) * 2, relation="replace_one")
    assert float(accountant("pld")(result.ledger).epsilon(1e-5)) == pytest.approx(float(known.epsilon(1e-5)), rel=1e-3)


@pytest.mark.slow
def test_noise_is_calibrated_to_a_target():
    result = run(steps=24, noise_multiplier=None, target=Epsilon(3.0, 1e-5))
    assert 2.9 < float(accountant("pld")(result.ledger).epsilon(1e-5)) <= 3.0


def test_a_resumed_run_is_charged_as_one_over_the_steps_left(tmp_path):
    path = tmp_path / "run.safetensors"
    stopped(path, 9, sampling="balanced_iteration", steps=24, batch_size=20)
    assert read_checkpoint(path).state["run"]["sampler"] == {"unfinished": True}
    _, _, result = resumed(path, sampling="balanced_iteration", steps=24, batch_size=20, resume=True)
    found = [
        (entry.mechanism.iterations, entry.mechanism.participations, entry.mechanism.series, entry.steps)
        for entry in result.ledger.entries
    ]
    assert found == [(24, 2, 0, 9), (15, 2, 1, 15)]
    parts = [(part.steps, times) for part, times in result.ledger.mechanism.accountable().steps]
    assert parts == [(12, 1), (12, 1), (8, 1), (7, 1)]


@pytest.mark.parametrize("noise", ["banded:2", "blt:2", "tree"])
def test_correlated_noise_is_refused_since_steps_are_not_apart(noise):
    with pytest.raises(InvalidInput, match="one that keeps a record's steps apart"):
        trained(noise, "balanced_iteration")


def test_a_schedule_of_noise_is_refused():
    with pytest.raises(InvalidInput, match="noise_multiplier must be one number"):
        run(noise_multiplier=[1.0] * 12 + [2.0] * 12)


def private_loop():
    inputs, targets = blobs()
    model = small_model()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=20)
    return model, loader


def test_loops_of_ones_own_take_it_and_end_with_their_plan():
    model, loader = private_loop()
    private = make_private(
        model, plain_sgd(model), loader, clip_norm=1.0, noise_multiplier=1.0, sampling="balanced_iteration", epochs=1
    )
    for x, y in private.loader:
        cross_entropy(private.model(x), y).backward()
        private.optimizer.step()
    (entry,) = private.ledger.entries
    assert (entry.mechanism, entry.steps) == (BalancedIteration(Gaussian(1.0), 10, 1), 10)
    with pytest.raises(TrainingMisuse, match="must end after the 10 steps"):
        next(iter(private.loader))


def test_the_engine_of_opacus_takes_it():
    model, loader = private_loop()
    engine = PrivacyEngine()
    private, optimizer, batches = engine.make_private(
        module=model,
        optimizer=plain_sgd(model),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        sampling="balanced_iteration",
        epochs=2,
    )
    for _ in range(2):
        for x, y in batches:
            torch.nn.CrossEntropyLoss()(private(x), y).backward()
            optimizer.step()
    (entry,) = engine.ledger.entries
    assert entry.mechanism.participations == 2
    assert engine.ledger.standing is Standing.PROVEN
