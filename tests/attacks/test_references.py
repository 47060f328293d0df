"""Attacks with reference models, on models whose confidence is known exactly."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from tacit.attacks import (
    LikelihoodRatioOffline,
    LikelihoodRatioOnline,
    QuantileRegression,
    References,
    RelativeMembership,
    advantage,
    half_splits,
)
from tacit.attacks.base import logit_confidence
from tacit.errors import InvalidInput
from tacit_papers.evaluating_dp.leakage import members_at_fpr

RECORDS = 400
DRAW = np.random.default_rng(0)
HARDNESS = DRAW.normal(0, 3, RECORDS)
INPUTS = np.column_stack([np.arange(RECORDS, dtype=float), HARDNESS])
EXAMPLES = (INPUTS, np.ones(RECORDS, dtype=int))
HALF = RECORDS // 2


def model_of(included, seed, lift=2.0):
    """Confidence in the label = hardness of the record + `lift` if it was trained on + N(0, 1/4)."""
    noise = np.random.default_rng(seed).normal(0, 0.5, RECORDS)

    def answer(inputs):
        rows = inputs[:, 0].astype(int)
        known = np.where(rows < RECORDS, included[rows % RECORDS], False)
        sure = expit(inputs[:, 1] + lift * known + noise[rows % RECORDS])
        return np.stack([1 - sure, sure], axis=1)

    return answer


@pytest.fixture(scope="module")
def references():
    included = half_splits(16, RECORDS, seed=3)
    return References([model_of(row, seed) for seed, row in enumerate(included)], included)


@pytest.fixture(scope="module")
def target():
    return model_of(np.arange(RECORDS) < HALF, 99)


def halves():
    inputs, labels = EXAMPLES
    return {"members": (inputs[:HALF], labels[:HALF]), "non_members": (inputs[HALF:], labels[HALF:])}


def population(records=300):
    hardness = np.random.default_rng(8).normal(0, 3, records)
    return np.column_stack([RECORDS + np.arange(records), hardness]), np.ones(records, dtype=int)


def test_the_confidence_is_the_logit(target):
    seen = logit_confidence(model_of(np.zeros(RECORDS, bool), 5), EXAMPLES)
    noise = np.random.default_rng(5).normal(0, 0.5, RECORDS)
    assert seen == pytest.approx(HARDNESS + noise, abs=1e-6)


@pytest.mark.parametrize("kind", [LikelihoodRatioOnline, LikelihoodRatioOffline])
def test_the_likelihood_ratio_corrects_for_hard_records(kind, references, target):
    """The separation is 4 standard deviations: an advantage near .95, where the confidence alone has below .35."""
    scores = kind(references)(target, **halves())
    best = max(
        np.mean(scores.members >= t) - np.mean(scores.non_members >= t)
        for t in np.concatenate([scores.members, scores.non_members])
    )
    assert best > 0.85
    plain = logit_confidence(target, EXAMPLES)
    assert np.mean(plain[:HALF] > 0) - np.mean(plain[HALF:] > 0) < 0.4


def test_the_online_score_is_the_log_ratio_of_two_normals(references, target):
    scores = LikelihoodRatioOnline(references).score(target, EXAMPLES)
    known, answer = references.answers(EXAMPLES, logit_confidence), logit_confidence(target, EXAMPLES)
    inside = references.included
    means = [np.where(side, known, 0).sum(0) / side.sum(0) for side in (inside, ~inside)]
    spreads = [
        np.sqrt((np.where(side, known - mean, 0) ** 2).sum() / (side.sum(0) - 1).sum())
        for side, mean in zip((inside, ~inside), means, strict=True)
    ]
    expected = norm.logpdf(answer, means[0], spreads[0]) - norm.logpdf(answer, means[1], spreads[1])
    assert scores == pytest.approx(expected, abs=1e-9)


def test_the_offline_rule_has_its_false_positive_rate(references, target):
    """Flags a non-member when the tail is below fpr: within 6 standard errors, plus the models' own error."""
    scores = LikelihoodRatioOffline(references, fpr=0.2)(target, **halves())
    flagged = np.mean(scores.non_members >= scores.threshold)
    assert abs(flagged - 0.2) < 6 * np.sqrt(0.2 * 0.8 / HALF) + 0.03


def test_relative_membership_beats_the_population(references, target):
    attack = RelativeMembership(references, population())
    scores = attack(target, **halves())
    assert advantage(scores) > 0.15
    assert 0 <= scores.non_members.min() <= scores.members.max() <= 1


def test_quantile_regression_needs_one_model(target):
    """Given the hardness, members stand 4 standard deviations above the quantile of non-members."""
    public = (np.column_stack([np.zeros(300) + RECORDS, np.random.default_rng(4).normal(0, 3, 300)]), np.ones(300, int))
    blind = model_of(np.zeros(RECORDS, bool), 7)
    attack = QuantileRegression(public, fpr=0.1)

    def seen(inputs):
        own = inputs[:, 0] < RECORDS
        return np.where(own[:, None], target(inputs), blind(inputs))

    scores = attack(seen, **halves())
    assert np.mean(scores.members) > np.mean(scores.non_members) + 1
    assert members_at_fpr(scores, 0.05).mean() > 0.2


def test_half_splits_put_each_record_in_half_of_the_models():
    included = half_splits(9, 1000)
    assert set(included.sum(axis=0).tolist()) == {4}
    assert np.all(np.abs(included.mean(axis=1) - 4 / 9) < 6 * 0.5 / np.sqrt(1000))
    assert np.array_equal(included, half_splits(9, 1000))
    assert not np.array_equal(included, half_splits(9, 1000, seed=1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: References([], np.ones((0, 3), bool)), "included must be"),
        (lambda: References([model_of], np.ones((1, 3))), "included must be"),
        (lambda: References([model_of], np.ones((2, 3), bool)), "included must be"),
        (lambda: LikelihoodRatioOnline(References([model_of], np.ones((1, 3), bool))), "both true and false"),
        (lambda: LikelihoodRatioOffline(References([model_of], np.ones((1, 3), bool))), "false somewhere"),
        (lambda: RelativeMembership(References([model_of], np.ones((1, 3), bool)), population()), "false somewhere"),
        (lambda: LikelihoodRatioOffline(References([model_of], np.zeros((1, 3), bool)), fpr=0.0), "fpr must be"),
        (lambda: QuantileRegression(population(), fpr=1.0), "fpr must be"),
    ],
)
def test_bad_arguments_are_refused(call, said):
    with pytest.raises(InvalidInput, match=said):
        call()


def test_other_records_than_the_references_know_are_refused(references, target):
    with pytest.raises(InvalidInput, match="400 records"):
        LikelihoodRatioOffline(references).score(target, (INPUTS[:5], np.ones(5, int)))
