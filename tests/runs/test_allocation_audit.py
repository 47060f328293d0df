"""`tacit audit` of random allocation and balanced iteration: right runs pass, wrong ones are noticed and refuted."""

import pytest

from tacit.accounting import account
from tacit.runs import audit_run, read_config, train
from tacit.sampling import allocation
from tacit.training import release

KINDS = ("random_allocation", "balanced_iteration")


def naively(ledger, delta, **_):
    return account(ledger, delta=delta, accountants=["naive"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of two epochs, each trained once."""
    kept = {}

    def of(kind):
        if kind not in kept:
            settings = {
                "epochs": 2.0,
                "batch_size": 140,
                "noise_multiplier": 1.0,
                "epsilon": None,
                "sampling": {"type": kind},
                "attacks": (),
            }
            with pytest.MonkeyPatch.context() as patch:  # The audit asks for its claim itself.
                patch.setattr("tacit.runs.run.account", naively)
                kept[kind] = train(read_config("digits", settings), out=tmp_path_factory.mktemp(kind)).folder
        return kept[kind]

    return of


def audited(run):
    return audit_run(run, attacks=["white_box"], canaries=1000, confidence=1 - 1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_run_is_repeated_and_not_refuted(kind, folder):
    """False alarm 2e-6 for the monitors, .1 % for the refutation, 1e-7 for the bound."""
    report = audited(folder(kind))
    assert report.differences == ()
    assert report.monitors == {"noise": True, "sampler": True}
    assert report.refuted_by == ()
    assert report.claim is not None
    assert max(finding.epsilon_lower for finding in report.findings) <= report.claim.epsilon(1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_half_the_noise_is_refuted(kind, folder, monkeypatch):
    run, rounded = folder(kind), release.rounded_gaussian
    monkeypatch.setattr(release, "rounded_gaussian", lambda *given, std, **named: rounded(*given, std=std / 2, **named))
    report = audited(run)
    assert not report.monitors["noise"]
    assert report.refuted_by == ("white_box",)


def test_a_sampler_that_uses_records_twice_as_often_is_noticed(folder, monkeypatch):
    run, begin = folder("balanced_iteration"), allocation.BalancedIterationSampler.__init__

    def twice(self, records, iterations, participations, stream=None):
        begin(self, records, iterations, 2 * participations, stream)

    monkeypatch.setattr(allocation.BalancedIterationSampler, "__init__", twice)
    report = audited(run)
    assert report.monitors == {"noise": True, "sampler": False}


def test_an_allocation_of_twice_the_steps_is_noticed(folder, monkeypatch):
    run, begin = folder("random_allocation"), allocation.RandomAllocationSampler.__init__

    def twice(self, records, steps_per_epoch, stream=None):
        begin(self, records, (steps_per_epoch + 1) // 2, stream)

    monkeypatch.setattr(allocation.RandomAllocationSampler, "__init__", twice)
    assert audited(run).monitors == {"noise": True, "sampler": False}
