"""What a run releases, measured against its ledger: wrong sums, noise, batches and entries are refused.

Every bug is one of the parts of a real run exchanged; correct runs of every clip, sampler and lane pass.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger
from tacit.accounting.facts import How
from tacit.clipping import AdaptiveClip, AutomaticClip, BatchMeanClip, FlatClip, GroupClip, PerLayerClip
from tacit.errors import Refused, TacitError, UnsupportedModel
from tacit.gradients.clipped import ClippedSum
from tacit.mechanisms import Gaussian
from tacit.noise import SecureStream, SeededStream
from tacit.sampling import (
    FixedSizeSampling,
    GroupedPoissonSampling,
    RandomAllocationSampling,
    TruncatedPoissonSampling,
)
from tacit.sampling.poisson import PoissonSampler
from tacit.standing import Standing
from tacit.tickets.pruning import PartSampling
from tacit.training import Functions, fit, make_private, plan, release, release_monitor, release_statistics
from tacit.training.release_statistics import BatchStatistics, NoiseStatistics, check_draws
from tests.training.cases import blobs, cross_entropy, plain_sgd, small_model

OWNERS = np.arange(400) // 4


class Steep(nn.Module):
    def forward(self, x):
        large = (80 * x).exp()
        return large / (1 + large)


def run(steps=16, records=400, ledger=None, model=None, **changes):
    ledger, model = ledger if ledger is not None else Ledger(), model if model is not None else small_model()
    settings = {"clip_norm": 0.4, "noise_multiplier": 1.3, "batch_size": 40.0} | changes
    if "clipping" in changes:
        del settings["clip_norm"]
    x, y = blobs(records)
    fit(model, x, y, loss=cross_entropy, optimizer=plain_sgd(model), steps=steps, ledger=ledger, **settings)
    return ledger


CORRECT = {
    **{clip.type: {"clipping": clip} for clip in (
        PerLayerClip(0.4), GroupClip({"0.*": 0.1, "*": 0.5}), AutomaticClip(0.4), AdaptiveClip(0.4), BatchMeanClip(0.4)
    )},
    "recorded": {"engine": "recorded"},
    "physical": {"max_physical_batch_size": 8},
    "recorded physical": {"engine": "recorded", "max_physical_batch_size": 8},
    "schedule": {"noise_multiplier": [1.0 + step % 3 for step in range(16)]},
    "everybody": {"batch_size": 400.0},
    "users": {"sampling": GroupedPoissonSampling(OWNERS), "ledger": Ledger(unit="user"), "batch_size": 10.0},
    "mean of users": {
        "sampling": GroupedPoissonSampling(OWNERS, average=True), "ledger": Ledger(unit="user"), "batch_size": 10.0
    },
    "truncated": {"sampling": TruncatedPoissonSampling(41)},
    "fixed size": {"sampling": FixedSizeSampling(), "ledger": Ledger(relation="replace_one")},
    "no noise": {"noise_multiplier": 0.0, "unsafe_no_noise": True},
    "hardly noise": {"noise_multiplier": 1e-7},
    "hardly records": {"batch_size": 0.5},
    # Two passes of small batches agree more often than not.
    "rare dropout": {"model": nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.02), nn.Linear(6, 2)), "batch_size": 2.0},
    # Infinite in single precision for most records, which are left out, and finite in double.
    "overflow": {"model": nn.Sequential(nn.Linear(4, 6), Steep(), nn.Linear(6, 2))},
    "part": {"sampling": PartSampling(np.arange(400) % 2 == 0, 300), "steps": 64},
    "allocation": {"sampling": RandomAllocationSampling()},
    "bfloat16": {"precision": "bfloat16"},
    "public divisor": {"sample_rate": 0.1, "expected_batch_size": 37.0, "batch_size": None},
}  # fmt: skip


@pytest.mark.parametrize("case", CORRECT)
def test_correct_runs_pass(case):
    ledger = run(**CORRECT[case])
    assert not any("measurement" in said for said in ledger.unsafe)


def test_the_ledger_counts_no_comparison_that_an_empty_batch_leaves_out():
    first, *others = ([*run(steps=40, batch_size=0.5).facts] for _ in range(4))
    (arithmetic,) = (fact for fact in first if fact.id == "arithmetic")
    assert (arithmetic.how, arithmetic.times) == (How.ENFORCED, 0)
    assert all(other == first for other in others)


def patched(monkeypatch, owner, name, make):
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))


WRONG = {
    "noise of .9": (release, "scales", lambda usual: lambda *given: (0.9 * usual(*given)[0], usual(*given)[1])),
    "another divisor": (release, "scales", lambda usual: lambda *given: (usual(*given)[0], 1.01 * usual(*given)[1])),
    "off the grid": (
        release, "rounded_gaussian",
        lambda usual: lambda values, stream, std, out: np.add(
            values, np.float32(std) * stream.normal(values.shape, np.float32), out=out
        ),
    ),
    "a clip of 1.1": (ClippedSum, "factors", lambda usual: lambda self, squares: 1.1 * usual(self, squares)),
    "no clip in later batches": (
        ClippedSum, "factors",
        lambda usual: lambda self, squares: usual(self, squares) if len(squares[0]) < 9 else torch.ones_like(squares),
    ),
    "a bound beyond the sensitivity": (
        FlatClip, "factors", lambda usual: lambda self, norms, rounding: 1.1 * usual(self, norms, rounding=rounding)
    ),
    "half of the sensitivity": (FlatClip, "sensitivity", lambda usual: property(lambda self: self.clip_norm / 2)),
    "another rate": (PoissonSampler, "__init__", lambda usual: lambda self, n, q, s=None: usual(self, n, 1.2 * q, s)),
    "a record twice": (
        PoissonSampler, "draw",
        lambda usual: lambda self: release_monitor.Batch(np.repeat(usual(self).indices, 2)),
    ),
    "one size": (
        PoissonSampler, "draw",
        lambda usual: lambda self: release_monitor.Batch(np.sort(np.random.default_rng().permutation(400)[:40])),
    ),
    "the first records": (
        PoissonSampler, "draw", lambda usual: lambda self: release_monitor.Batch(np.arange(len(usual(self)))),
    ),
    "noise of another multiplier": (plan.Plan, "noise_at", lambda usual: lambda self, step: 0.99 * usual(self, step)),
    "no entry": (
        plan.Ledger, "add",
        lambda usual: lambda self, *given, note="": usual(self, *given, note=note) if self.steps < 3 else None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("bug", "engine"), [
    *((bug, "eager") for bug in WRONG),
    *((bug, "recorded") for bug in ("noise of .9", "half of the sensitivity", "no entry")),
])  # fmt: skip
def test_a_bug_is_refused(monkeypatch, bug, engine):
    patched(monkeypatch, *WRONG[bug])
    with pytest.raises((Refused, UnsupportedModel)) as found:
        run(steps=256, records=400, engine=engine, sample_rate=0.1, batch_size=None)
    if isinstance(found.value, Refused):
        assert not any(character.isdigit() for character in str(found.value))


def test_a_bug_after_private_steps_leaves_the_ledger_claimed(monkeypatch):
    ledger = Ledger()
    noise = plan.Plan.noise_at
    monkeypatch.setattr(plan.Plan, "noise_at", lambda self, step: noise(self, step) * (0.9 if step > 3 else 1.0))
    with pytest.raises(Refused, match="a step would have another"):
        run(ledger=ledger)
    assert ledger.standing is Standing.CLAIMED


def test_a_clip_that_is_raised_without_its_noise_is_refused_in_a_loop():
    x, y = blobs(200)
    model = small_model()
    loader = DataLoader(TensorDataset(20 * x, y), batch_size=40)
    parts = make_private(model, plain_sgd(model), loader, clip_norm=0.1, noise_multiplier=1.0, steps=20)
    parts.model.clipped.clip = FlatClip(1.0)
    with pytest.raises(TacitError, match="by the bound that the noise follows"):
        _looped(parts)


def _looped(parts):
    for inputs, targets in parts.loader:
        cross_entropy(parts.model(inputs), targets).backward()
        parts.optimizer.step()


@pytest.mark.parametrize(("name", "noise"), [
    ("not normal", lambda draw: (draw.random(2000) - 0.5) * 12**0.5),
    ("not normal", lambda draw: np.clip(draw.normal(size=2000), -2.2, 2.2) * 1.0232),
    ("of another size", lambda draw: 0.97 * draw.normal(size=2000)),
    ("repeated at the next step", lambda draw: np.random.default_rng(1).normal(size=2000)),
    ("repeated within a step", lambda draw: np.tile(draw.normal(size=8000), 2)),
    ("", lambda draw: draw.normal(size=2000)),
])  # fmt: skip
def test_noise_is_told_from_other_laws(name, noise):
    statistics, draw = NoiseStatistics(), np.random.default_rng(0)
    for _ in range(100):
        statistics.add(noise(draw))
    assert statistics.alarm() == name


def test_noise_that_a_generator_decides_is_refused(monkeypatch):
    draw_check_of = (TruncatedPoissonSampling(900), 1000, 0.5)
    check_draws(*draw_check_of)
    with monkeypatch.context() as patch:
        patch.setattr("os.urandom", bytes)
        with pytest.raises(Refused, match="noise must come from the secure stream"):
            check_draws(*draw_check_of)
    monkeypatch.setattr(release_statistics, "SecureStream", lambda: _TorchBits())
    with pytest.raises(Refused, match="must come from the secure stream"):
        check_draws(*draw_check_of)


class _TorchBits(SecureStream):
    def bits(self, count):
        return torch.randint(-(2**63), 2**63 - 1, (count,)).numpy().view(np.uint64)


def test_correct_laws_raise_no_alarm_in_many_runs():
    """150 looks with about five tests each, at 1e-9."""
    draw = np.random.default_rng(0)
    for rate, records in ((0.5, 300), (0.01, 5000), (0.0002, 10_000)):
        for _ in range(50):
            noise, batches = NoiseStatistics(), BatchStatistics(records)
            for step in range(40):
                found = batches.add(
                    release_monitor.Batch(np.flatnonzero(draw.random(records) < rate)), Gaussian(1.0).poisson(rate)
                )
                assert found == ""
                if step < 3:
                    noise.add(draw.normal(size=700))
            assert (noise.alarm(), batches.alarm()) == ("", "")


def test_sums_of_half_the_digits_are_refused(monkeypatch):
    """bfloat16 keeps 8 binary digits: far less than the distance that any two ways of summing up have.

    The check of the first records, which allows a thousandth, sees it in some batches before the monitor does.
    """
    add = ClippedSum.__call__

    def rounded(*given, **named):
        total, norms = add(*given, **named)
        total.flat.copy_(total.flat.bfloat16())
        return total, norms

    monkeypatch.setattr(ClippedSum, "__call__", rounded)
    with pytest.raises((Refused, UnsupportedModel), match=r"clipped (sum of a batch|gradients of the first records)"):
        run()


def test_sums_that_are_short_numbers_by_themselves_pass():
    model = nn.Linear(8, 40, bias=False)
    x, y = torch.randint(0, 4, (400, 8)).float(), torch.zeros(400)
    loss, optimizer = (lambda outputs, _: outputs.sum(1)), plain_sgd(model)
    settings = {"clip_norm": 1e4, "noise_multiplier": 1.3, "batch_size": 40.0}
    fit(model, x, y, loss=loss, optimizer=optimizer, steps=4, **settings)


def test_a_seeded_run_that_would_repeat_its_noise_is_refused(tmp_path, monkeypatch):
    settings = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 4, "resume": True}

    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stream=SeededStream(0), callbacks=[Functions(on_step=stop)], **settings)
    monkeypatch.setattr(SeededStream, "restore", lambda *_: None)
    with pytest.raises(Refused, match="would repeat noise"):
        run(stream=SeededStream(0), **settings)
