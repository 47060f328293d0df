"""`tacit audit` of runs with correlated noise and of groups in turn: right ones pass, wrong ones are noticed."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.runs import audit_run, read_config, train
from tacit.sampling import cyclic
from tacit.training import release
from tacit.training.release import Correlation

KINDS = {
    "banded": ("banded:4", "cyclic_poisson"),
    "allocation": ("banded:2", "cyclic_allocation"),
    "blt": ("blt:3", "balls_and_bins"),
    "tree": ("tree", "balls_and_bins"),
    "bins": ("independent", "balls_and_bins"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of one epoch, each trained once."""
    kept = {}

    def of(kind):
        if kind not in kept:
            noise, sampling = KINDS[kind]
            settings = {
                "epochs": 1.0,
                "batch_size": 140,
                "noise_multiplier": 1.0,
                "epsilon": None,
                "noise": {"correlation": noise},
                "sampling": {"type": sampling},
            }
            kept[kind] = train(read_config("digits", settings), out=tmp_path_factory.mktemp(kind)).folder
        return kept[kind]

    return of


def audited(run):
    return audit_run(run, attacks=["white_box"], canaries=1000, confidence=1 - 1e-7)


@pytest.mark.slow_cases("banded")
@pytest.mark.parametrize(
    "kind", ["banded", "tree", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("allocation", "blt", "bins"))]
)
def test_a_right_run_is_repeated_and_not_refuted(kind, folder):
    """False alarm 2e-6 for the monitors, .1 % for the refutation."""
    report = audited(folder(kind))
    assert report.differences == ()
    assert report.monitors == {"noise": True, "sampler": True}
    assert report.refuted_by == ()


@pytest.mark.parametrize("kind", ["banded", "tree"])
def test_too_little_noise_is_noticed(kind, folder, monkeypatch):
    run, rounded = folder(kind), release.rounded_gaussian
    monkeypatch.setattr(release, "rounded_gaussian", lambda *given, std, **named: rounded(*given, std=std / 2, **named))
    report = audited(run)
    assert not report.monitors["noise"]
    # What the canaries of one short run on Poisson batches tell may be below what refutes at 99.9 %.
    if kind == "tree":
        assert report.refuted_by == ("white_box",)


def test_noise_that_is_not_of_the_claimed_matrix_is_noticed(folder, monkeypatch):
    """Noise subtracted from noise is the right law of one step only: that of the next knows the wrong rows."""

    def decode(self, rows):
        self._charged = False
        return rows, 1.0

    run = folder("banded")
    monkeypatch.setattr(Correlation, "encode", lambda self, sums, std: sums.double())
    monkeypatch.setattr(Correlation, "decode", decode)
    assert not audited(run).monitors["noise"]


@pytest.mark.slow
def test_contributions_longer_than_the_sensitivity_are_refuted(folder, monkeypatch):
    encode = Correlation.encode
    run = folder("banded")
    monkeypatch.setattr(Correlation, "encode", lambda self, sums, std: encode(self, 3 * sums, std))
    assert audited(run).refuted_by == ("white_box",)


@pytest.mark.slow
def test_batches_of_any_group_are_noticed(folder, monkeypatch):
    run = folder("banded")
    draw = cyclic.CyclicSampler.draw

    def of_all(self):
        batch = draw(self)
        others = np.setdiff1d(np.arange(self.records), batch.indices)[:3]
        return replace(batch, indices=np.union1d(batch.indices, others))

    monkeypatch.setattr(cyclic.CyclicSampler, "draw", of_all)
    assert not audited(run).monitors["sampler"]
