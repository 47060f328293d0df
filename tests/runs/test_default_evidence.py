"""Every run is audited by canaries in its first steps, and its card says whether they could have refuted the claim."""

import json
import re
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from torch.nn.functional import cross_entropy

import tacit.runs.audits as audits
from tacit import fit
from tacit.accounting import Ledger
from tacit.accounting.claims import claim_of
from tacit.audit.evidence import canary_power
from tacit.reports.words import canary_sentence
from tacit.runs import read_config, train
from tacit.runs.builders import dataset_of
from tacit.runs.canary_training import training_of
from tacit.runs.default_evidence import StepClock, canary_evidence

SETTINGS = {"epochs": 4.0, "noise_multiplier": 1.6, "epsilon": None}


@pytest.fixture(autouse=True, scope="module")
def whole_evidence(short_runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.runs.run.find_spec", find_spec)
        patch.setattr("tacit.runs.default_evidence._CANARIES", 2000)
        patch.setattr("tacit.audit.evidence.SIMULATED", 4)
        patch.setattr("tacit.runs.default_evidence._SECONDS", 5.0)
        patch.setattr("tacit.runs.default_evidence._COPY_SECONDS", 20.0)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SECONDS", "_COPY_SECONDS"):  # However busy the machine is.
            patch.setattr(f"tacit.runs.default_evidence.{name}", 1e9)
        return train(read_config("digits", SETTINGS), out=tmp_path_factory.mktemp("evidence") / "run")


def evidence_of(run, seconds=1e-3, **changes):
    config = read_config("digits", SETTINGS | changes)
    ledger = Ledger.load(run.folder / "ledger.json")
    return canary_evidence(config, dataset_of(config, None), ledger, seconds, lambda *_: None)


def test_the_bracket_of_a_run_is_decided_in_ball_arithmetic(run):
    assert json.loads((run.folder / "card.json").read_text())["checked"]["verdict"] == "confirmed"


def test_canaries_of_the_first_steps_stand_first_on_the_card_with_their_power(run):
    card = json.loads((run.folder / "card.json").read_text())
    found = card["evidence"]
    assert (found["steps"], found["total"]) == (22, 45)
    assert found["monitors"] == {"noise": True, "sampler": True}
    assert not found["refuted"]
    assert found["power"]["without noise"] == 1.0
    assert found["epsilon_lower"] < found["claim_epsilon"] < card["guarantees"][0]["epsilon"]
    assert card["audits"][0]["attack"] == "canaries in 22 steps"
    page = (run.folder / "card.html").read_text()
    first = page[: page.index("<details>")]
    assert "The first 22 of 45 steps, repeated with canaries. Monitors: noise passed, sampler passed." in first
    assert "refute the claim of the first" not in page


def test_an_attack_that_finds_no_more_without_noise_than_is_claimed_is_told_in_red(run):
    card = json.loads((run.folder / "card.json").read_text())
    claimed = min(row["epsilon"] for row in card["guarantees"] if row["standing"] == "proven")
    found = card["power"]["loss_threshold"]
    assert len(found) == 2
    assert min(found.values()) <= claimed
    red = re.findall(r'<li class="bad">([^<]*)</li>', (run.folder / "card.html").read_text())
    assert len(red) == 2 - card["evidence"]["could_refute"]
    told = red[-1]
    assert told.startswith("loss_threshold: in a copy without clipping and noise it finds ε ≥ ")
    assert f"in a copy with the noise of ε {10 * claimed:.3g} it finds ε ≥ " in told
    assert told.endswith("It could not have refuted the claim.")


def test_a_training_with_less_noise_than_is_claimed_is_refuted(run, monkeypatch):
    right = audits.fit

    def broken(*given, noise_multiplier, **settings):
        return right(*given, noise_multiplier=0.4 * noise_multiplier, **settings)

    monkeypatch.setattr(audits, "fit", broken)
    found = evidence_of(run)
    assert found.refuted
    assert not found.monitors["noise"]
    assert found.result.refutes(found.claim)


def test_the_clock_counts_the_steps_alone(monkeypatch):
    times = iter([5.0, 100.0, 101.0, 103.0, 200.0])
    monkeypatch.setattr("tacit.runs.default_evidence.time.perf_counter", lambda: next(times))
    seen = []
    clock = StepClock(lambda *given: seen.append(given))
    for stage, done in (
        ("data", 1),
        ("private training", 1),
        ("private training", 2),
        ("private training", 4),
        ("x", 1),
    ):
        clock(stage, done, 4)
    assert clock.per_step == 1.0
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attacks": ("loss_threshold",)}, ""),
        ({"clip": {"type": "automatic"}}, "automatic clipping"),
        ({"seconds": 3.0}, "could not be measured: 10 steps with them take about 30.0 s"),
    ],
    ids=str,
)
def test_a_run_without_canaries_says_why(run, changes, said):
    found = evidence_of(run, **changes)
    assert isinstance(found, str)
    assert said in found
    assert bool(said) == bool(found)


def test_a_training_that_fails_on_canaries_leaves_the_run(run, monkeypatch):
    def failing(*given, **settings):
        raise RuntimeError("a model that takes no zeros")

    monkeypatch.setattr(audits, "fit", failing)
    assert evidence_of(run) == "Canaries could not be measured: the training with them ended in RuntimeError."


def test_a_seeded_run_is_audited_by_a_secure_stream(run):
    found = evidence_of(run, unsafe_seed=1)
    assert found.is_seeded
    assert not found.refuted
    assert "not from the run's seed" in canary_sentence(found)


def trained(noise, sampling, steps=12):
    """What default evidence repeats of a run of `fit` with this noise and sampling."""
    ledger, config = Ledger(), read_config("digits", SETTINGS)
    x, y = torch.zeros(60, 1), torch.zeros(60, dtype=torch.long)
    model = torch.nn.Linear(1, 2)
    fit(
        model, x, y, loss=lambda z, t: cross_entropy(z, t, reduction="none"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=1.0, noise_multiplier=1.2,
        noise=noise, sampling=sampling, batch_size=20, steps=steps, ledger=ledger,
    )  # fmt: skip
    return training_of(config, dataset_of(config, None), ledger), claim_of(ledger)


@pytest.mark.parametrize(
    ("noise", "sampling"),
    [
        ("independent", "poisson"),
        ("independent", "random_allocation"),
        ("independent", "balanced_iteration"),
        ("independent", "balls_and_bins"),
        ("banded:2", "cyclic_poisson"),
        ("tree", "balls_and_bins"),
    ],
)
def test_simulated_canaries_refute_a_claim_of_another_noise_and_no_right_one(noise, sampling):
    training, claim = trained(noise, sampling)
    bounds = {"canaries": 1000, "confidence": 0.95, "runs": 2}
    power = [canary_power(claim, partial(training.simulated, true_noise=std), **bounds) for std in (1.2, 0.1)]
    assert power == [0.0, 1.0]
    first = training.audited(affordable=7, wanted=100)
    assert first.steps == {"poisson": 6, "random_allocation": 6}.get(sampling, 12)
