import pytest
from benchmarks.estimators import SequentialAudit
from scipy.stats import binom

from tacit.errors import InvalidInput

from .cases import claim, generator


def play(audit, draw, mu, trials):
    """Trials of a mu-GDP game with the threshold that is best at even odds; stops when the claim is refuted."""
    coins = draw.random(trials) < 0.5
    flags = draw.normal(size=trials) + mu * (coins - 0.5) >= 0
    for coin, flag in zip(coins.tolist(), flags.tolist(), strict=True):
        if audit.observe(included=coin, flagged=flag):
            break
    return audit


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_a_true_claim_survives_optional_stopping(mu):
    """100 sequences of 200 trials, watched after each one, at level .1; false alarm of this test below 1e-6."""
    draw, curve = generator(1), claim(mu)
    wrong = sum(play(SequentialAudit(curve, confidence=0.9), draw, mu, 200).refuted for _ in range(100))
    assert wrong <= binom.isf(1e-6, 100, 0.1)


def test_wealth_does_not_grow_on_average_at_the_edge_of_the_claim():
    """E[wealth] <= 1 exactly: summed over the four outcomes of one trial with the claim's own error rates."""
    mu = 1.0
    rate = float(claim(mu).beta(0.3))
    total = 0.0
    for coin in (True, False):
        for flag in (True, False):
            chance = 0.5 * ((1 - rate if flag else rate) if coin else (0.3 if flag else 0.7))
            audit = SequentialAudit(claim(mu))
            audit.observe(included=coin, flagged=flag)
            total += chance * audit.evidence
    assert 0.8 < total <= 1.0


def test_a_false_claim_is_refuted_early():
    audit = play(SequentialAudit(claim(0.5), confidence=0.99), generator(3), 3.0, 1000)
    assert audit.refuted
    assert audit.trials < 300
    assert audit.p_value <= 0.01


def test_evidence_once_reached_is_kept():
    audit = SequentialAudit(claim(0.0), confidence=0.5)
    while not audit.refuted:
        audit.observe(included=True, flagged=True)
        audit.observe(included=False, flagged=False)
    for _ in range(50):
        for coin in (True, False):
            for flag in (True, False):
                audit.observe(included=coin, flagged=flag)
    assert audit.refuted
    assert audit.evidence < 2


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidInput, match="confidence must be"):
        SequentialAudit(claim(1.0), confidence=1.0)
