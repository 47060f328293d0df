"""Canaries through the production path, and trainers that do not do what they claim."""

from functools import partial

import numpy as np
import pytest
import torch
from benchmarks.estimators import ReleaseDifferences

from tacit.accounting import accountant
from tacit.attacks import Scores
from tacit.audit import LikelihoodRatio, audit_scores, one_run
from tacit.errors import InvalidInput
from tacit.gradients.rounding import single_slack, slack
from tacit.models import mlp
from tacit.runs.canaries import CanaryLane

from ..audit.broken import BROKEN, Claim, sound

CLAIM = Claim(clip_norm=0.7, noise_multiplier=2.0, sample_rate=0.05, steps=100)
REAL, CONFIDENCE = 300, 1 - 1e-6
CURVE = accountant("pld")(CLAIM.mechanism)


class Recorder:
    """Keeps every release."""

    def __init__(self):
        self.seen = []
        self.total = 0.0

    def add(self, release):
        self.seen.append(release)
        self.total = self.total + release


def lane(train, observers, claim=CLAIM, *, width):
    draw = np.random.default_rng(0)
    return CanaryLane(
        partial(train, claim),
        lambda: mlp(8, 3),
        draw.normal(size=(REAL, 8)).astype(np.float32),
        draw.integers(0, 3, REAL),
        classes=3,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
        clip_norm=claim.clip_norm,
        sample_rate=claim.sample_rate,
        observers=observers,
        width=width,
    )


def audits(train, canaries):
    """One run, two scores of each canary, each audited at half of the failure probability."""
    ratio, jumps = (
        LikelihoodRatio(CLAIM.noise_multiplier, CLAIM.sample_rate),
        ReleaseDifferences(CLAIM.noise_multiplier),
    )
    flips = []
    run = lane(train, [ratio, jumps], width=canaries)
    scores = [one_run(lambda coins: flips.append(coins) or run(coins), attack="ratio", canaries=canaries)]
    scores.append(Scores("jumps", jumps.total[flips[0]], jumps.total[~flips[0]], 0.0))
    return [
        audit_scores(each, delta=1e-5, trials="independent", confidence=(1 + CONFIDENCE) / 2, claim=CURVE)
        for each in scores
    ]


@pytest.mark.slow
def test_what_is_seen_is_what_the_production_path_releases():
    """Out: N(0, s^2). In: one more clipping bound, at the sampling rate. Bounds at 6 standard errors."""
    record, canaries = Recorder(), 20_000
    flips = []
    run = lane(sound, [record], width=canaries)
    one_run(lambda coins: flips.append(coins) or run(coins), attack="any", canaries=canaries)
    seen, rate = np.stack(record.seen), CLAIM.sample_rate
    # The noise covers the rounding of sums besides.
    noise = CLAIM.noise_multiplier * (1 + slack(torch.float32, 1, single_slack(rate * canaries)))
    assert len(seen) == CLAIM.steps
    out, inside = seen[:, ~flips[0]], seen[:, flips[0]]
    assert abs(out.mean()) < 6 * noise / np.sqrt(out.size)
    assert abs(out.var() / noise**2 - 1) < 6 * np.sqrt(2 / out.size)
    spread = noise**2 + rate * (1 - rate)
    assert abs(inside.mean() - rate) < 6 * np.sqrt(spread / inside.size)
    assert abs(inside.var() / spread - 1) < 8 * np.sqrt(2 / inside.size)


def test_the_production_path_is_not_refuted():
    """Family-wise false alarm 1e-6."""
    assert not any(result.refutes(CURVE) for result in audits(sound, 2000))


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", BROKEN)
def test_broken_trainers_are_refuted_by_one_run(name):
    canaries = {"half the noise": 20_000, "twice the rate": 20_000}.get(name, 2000)
    assert any(result.refutes(CURVE) for result in audits(BROKEN[name], canaries))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": 1}, "width must be"),
        ({"observers": []}, "observers must be"),
    ],
)
def test_bad_arguments_are_refused(change, said):
    with pytest.raises(InvalidInput, match=said):
        lane(sound, **({"observers": [Recorder()], "width": 10} | change))
    with pytest.raises(InvalidInput, match="10 Dirac canaries"):
        lane(sound, [Recorder()], width=10)(np.ones(5, bool))
