"""Private holdouts of a regression: scores with declared bounds, so that one record moves their sum by at most 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import DiscreteGaussian, Parallel
from tacit.noise import SecureStream, SeededStream
from tacit.relation import Relation
from tacit.sampling import GroupedPoissonSampling
from tacit.standing import Standing
from tacit.training import (
    Accuracy,
    BestModel,
    ClippedSquaredError,
    EarlyStopping,
    Plan,
    PrivateHoldout,
    WithinTolerance,
    fit,
    holdout,
)
from tacit.training.holdout import LEVELS

DELTA = 1e-5
DRAW = torch.Generator().manual_seed(1)
X = torch.randn(240, 2, generator=DRAW)
Y = X[:, 0] + 0.3 * torch.randn(240, generator=DRAW)
PLAN = Plan(200, 0.2, 1.0, 2.0, steps=20)
SCORES = [WithinTolerance(0.5), ClippedSquaredError(2.0), ClippedSquaredError(0.1)]


def model():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def squared(outputs, targets):
    return (outputs.squeeze(-1) - targets) ** 2


def train(held, x=X[:200], y=Y[:200], **given):
    net = model()
    settings = {"clip_norm": 1.0, "noise_multiplier": 2.0, "batch_size": 40, "epochs": 4} | given
    callbacks = [each(net) for each in settings.pop("callbacks", ())]
    done = fit(
        net, x, y, loss=squared, optimizer=torch.optim.SGD(net.parameters(), lr=0.2), holdout=held,
        callbacks=callbacks, **settings,
    )  # fmt: skip
    return net, done


@pytest.mark.slow_cases
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("checkpoint", ["noisy", "exponential"])
def test_a_regression_states_the_two_branches_of_a_classification(score, checkpoint):
    held = PrivateHoldout(X[200:], Y[200:], epsilon=2.0, delta=DELTA, checkpoint=checkpoint, score=score)
    _, done = train(held)
    ((beside, _),) = done.ledger.mechanism.parts()
    assert isinstance(beside, Parallel)
    told = float(accountant("pld")(beside.branches[1]).epsilon(DELTA))
    assert 1.98 < told <= 2.0
    if checkpoint == "noisy":
        assert [(part.sensitivity, times) for part, times in beside.branches[1].parts()] == [(score.levels, 4)]
    assert done.ledger.standing is Standing.PROVEN
    assert all((score.metric in row) == (checkpoint == "noisy") for row in done.history)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("wild", [1e30, float("nan"), float("inf")])
def test_no_record_moves_the_sum_by_more_than_its_sensitivity(score, wild):
    """Every neighbour of a holdout in which one target is far beyond all bounds, with the same random roundings."""
    targets = Y[200:].clone()
    targets[7] = wild
    net, stream = model(), SeededStream(4)

    def total(kept):
        held = PrivateHoldout(X[200:][kept], targets[kept], epsilon=1.0, delta=DELTA, score=score)
        held._stream = Rounded(stream, kept)
        return held._total(net)

    everything = total(np.arange(40))
    moved = [everything - total(np.delete(np.arange(40), gone)) for gone in range(40)]
    assert all(0 <= each <= score.levels for each in moved)
    assert moved[7] == 0
    assert max(moved) > 0


class Rounded:
    """The uniform numbers of records, the same with and without one of them."""

    def __init__(self, stream, kept):
        self._numbers, self.secure = np.random.default_rng(2).random(40)[kept], stream.secure

    def uniform(self, count):
        assert count == len(self._numbers)
        return self._numbers


def test_random_rounding_of_clipped_errors_has_no_bias():
    """4,000 sums of 40 records against the exact one; a mean beyond 5 standard errors, false alarm 6e-7."""
    score, net, stream = ClippedSquaredError(2.0), model(), SeededStream(8)
    held = PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA, score=score, stream=stream)
    exact = float(score.of(net(X[200:]).detach(), Y[200:]).sum()) * LEVELS
    sums = np.array([held._total(net) for _ in range(4000)])
    assert abs(sums.mean() - exact) < 5 * sums.std() / np.sqrt(len(sums))


def test_what_is_told_has_the_noise_of_the_ledger():
    """Variance of 1,500 told errors around the clipped mean; chi-square on both sides, false alarm 2e-6."""
    score, net, told, runs = ClippedSquaredError(2.0), model(), [], 1500
    exact = score.told(float(score.of(net(X[200:]).detach(), Y[200:]).mean()))
    for seed in range(runs):
        held = PrivateHoldout(X[200:], Y[200:], noise=3.0, score=score, stream=SeededStream(seed))
        ((counted, looks),) = held.mechanism(PLAN, Relation.ADD_REMOVE).parts()
        assert (counted, looks) == (DiscreteGaussian(3.0, LEVELS), 4)
        told.append((held.look(net)["validation_error"] - exact) * len(held) / score.bound)
    # The rounding of each record adds at most 1/4 of a squared step.
    smallest, largest = 9.0, 9.0 + len(X[200:]) / 4 / LEVELS**2
    spread = float(np.sum(np.square(told)))
    assert smallest * chi2.ppf(1e-6, runs) < spread < largest * chi2.isf(1e-6, runs)


@pytest.mark.slow
def test_neighbours_are_as_hard_to_tell_apart_as_the_ledger_says():
    """Attack on 3,000 looks with and without the worst record: e^eps q + delta covers p, false alarm 1e-6.

    A record of score 1 moves the sum by a whole sensitivity; thresholds between both means are the best tests.
    """
    net, runs = nn.Linear(2, 1), 3000
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    stream, told = SeededStream(11), {}
    for rows in (6, 5):
        held = PrivateHoldout(torch.zeros(rows, 2), torch.zeros(rows), noise=1.0, score=ClippedSquaredError(1.0))
        held._stream = stream
        held.mechanism(Plan(200, 1.0, 1.0, 2.0, steps=runs), Relation.ADD_REMOVE)
        told[rows] = np.array([(1 - held.look(net)["validation_error"]) * rows for _ in range(runs)])
    curve = accountant("pld")(DiscreteGaussian(1.0, LEVELS))
    found = []
    for threshold in (5.5, 6.0, 6.5):
        p, q = (float(np.mean(told[rows] > threshold)) for rows in (6, 5))
        slack = 5 * np.sqrt(max(p, q) / runs)
        for epsilon in (0.25, 0.5, 1.0):
            assert p <= np.exp(epsilon) * (q + slack) + float(curve.delta(epsilon)) + slack
        found.append(p / q)
    assert max(found) > 2.5  # The attack tells them apart as one sensitivity does: the noise is not larger.


@pytest.mark.slow
def test_early_stopping_and_the_best_epoch_follow_the_error():
    def stopping(net):
        return EarlyStopping("validation_error", patience=1, better="lower", least_gain=9.0)

    def best(net):
        return BestModel(net, "validation_error", better="lower")

    _, done = train(
        PrivateHoldout(X[200:], Y[200:], epsilon=2.0, delta=DELTA, score=ClippedSquaredError(2.0)),
        callbacks=[stopping, best],
    )
    assert done.taken == 10
    assert done.ledger.standing is Standing.PROVEN


def test_users_count_with_their_mean():
    owners = np.arange(240) % 60
    score = WithinTolerance(0.5)
    x, y, held = PrivateHoldout.split(X, Y, share=0.3, noise=4.0, score=score, owners=owners)
    sampling = GroupedPoissonSampling(owners[~held.aside])
    _, done = train(held, x, y, sampling=sampling, ledger=Ledger(unit="user"), batch_size=10)
    ((beside, _),) = done.ledger.mechanism.parts()
    assert next(iter(beside.branches[1].parts()))[0] == DiscreteGaussian(4.0, LEVELS)


@pytest.mark.parametrize("score", SCORES)
def test_a_span_is_that_of_the_predictions_of_a_run(score):
    span = (-2.0, 6.0)
    spanned = type(score)(score.bound, span)
    outputs, targets = torch.tensor([[0.5], [1.7], [-3.0]]), torch.tensor([2.1, 6.0, -2.0])
    plain = score.of(torch.tensor([2.0, 6.0, -2.0]), targets)
    assert torch.allclose(spanned.of(outputs, targets), plain)


def test_equal_holdouts_have_one_identity_and_other_scores_another():
    held = [PrivateHoldout(X, Y, epsilon=1.0, delta=DELTA, score=score) for score in [*SCORES, SCORES[0]]]
    names = [each.identity() for each in held]
    assert len(set(names)) == 3
    assert names[0] == names[3]


@pytest.mark.parametrize(
    "act",
    [
        lambda: PrivateHoldout(X, Y, epsilon=1.0, delta=DELTA),
        lambda: PrivateHoldout(X, Y, score=SCORES[0]),
        lambda: PrivateHoldout(X, Y, epsilon=1.0, delta=DELTA, noise=1.0, score=SCORES[0]),
        lambda: PrivateHoldout(X, Y, noise=1.0, checkpoint="exponential", score=SCORES[0]),
        lambda: PrivateHoldout(X, Y, noise=0.0, score=SCORES[0]),
        lambda: WithinTolerance(0.0),
        lambda: ClippedSquaredError(float("inf")),
        lambda: ClippedSquaredError(1.0, (2.0, 2.0)),
        lambda: Accuracy().of(torch.zeros(3), torch.zeros(3)),
        lambda: WithinTolerance(1.0).of(torch.zeros(3, 2), torch.zeros(3)),
    ],
)
def test_what_has_no_meaning_is_refused(act):
    with pytest.raises(InvalidInput):
        act()


def test_noise_comes_from_the_stream_of_the_holdout(monkeypatch):
    drawn = []
    monkeypatch.setattr(holdout, "discrete_gaussian", lambda stream, variance: drawn.append((stream, variance)) or 0)
    held = PrivateHoldout(X[200:], Y[200:], noise=3.0, score=ClippedSquaredError(2.0))
    held.mechanism(PLAN, Relation.ADD_REMOVE)
    held.look(model())
    ((stream, variance),) = drawn
    assert isinstance(stream, SecureStream)
    assert variance == (3 * LEVELS) ** 2
