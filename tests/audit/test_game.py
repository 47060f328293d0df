import numpy as np
import pytest
from benchmarks.estimators import ReleaseDifferences, many_runs

from tacit.audit import LikelihoodRatio, one_run
from tacit.errors import InvalidInput
from tacit.noise import SeededStream


def test_many_runs_plays_both_worlds_equally_often():
    told = []
    scores = many_runs(
        lambda included: 1.0 if included else -1.0,
        attack="sure",
        runs=3,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert (scores.members.tolist(), scores.non_members.tolist()) == ([1.0] * 3, [-1.0] * 3)
    assert told[-1] == (6, 6)


def test_one_run_flips_a_fair_coin_for_each_canary():
    """Counts within 6 standard deviations of half of 10000; the scores follow the coins."""
    scores = one_run(lambda included: included.astype(float), attack="sure", canaries=10_000)
    assert abs(len(scores.members) - 5000) < 6 * 50
    assert set(scores.members.tolist()) == {1.0}
    assert set(scores.non_members.tolist()) == {0.0}


def test_the_coins_are_the_streams():
    flips = []
    for _ in range(2):
        one_run(lambda i: flips.append(i) or np.zeros(50), attack="any", canaries=50, stream=SeededStream(4))
    assert np.array_equal(*flips)


def test_bad_games_are_refused():
    with pytest.raises(InvalidInput, match="runs must be"):
        many_runs(lambda included: 0.0, attack="any", runs=0)
    with pytest.raises(InvalidInput, match="canaries must be"):
        one_run(lambda i: i, attack="any", canaries=1)
    with pytest.raises(InvalidInput, match="one for each of 5"):
        one_run(lambda i: np.zeros(4), attack="any", canaries=5)


@pytest.mark.parametrize("rate", [0.02, 0.5, 1.0])
def test_the_likelihood_ratio_is_that_of_a_sampled_gaussian(rate):
    noise, seen = 1.7, np.array([-3.0, 0.1, 0.5, 4.0])
    observer = LikelihoodRatio(noise, rate)
    observer.add(seen)
    out, moved = (np.exp(-((seen - mean) ** 2) / (2 * noise**2)) for mean in (0.0, 1.0))
    assert observer.total == pytest.approx(np.log(((1 - rate) * out + rate * moved) / out))
    observer.add(seen)
    assert observer.total == pytest.approx(2 * np.log(((1 - rate) * out + rate * moved) / out))


def test_absurd_releases_do_not_overflow():
    observer = LikelihoodRatio(0.1, 0.01)
    with np.errstate(over="raise", invalid="raise"):
        observer.add(np.array([1e9, -1e9]))
    assert np.isfinite(observer.total).all()


def test_release_differences_are_small_under_fresh_noise_and_vanish_under_old():
    draw, fresh, old = np.random.default_rng(0), ReleaseDifferences(2.0), ReleaseDifferences(2.0)
    kept = draw.normal(0, 2, 500)
    for _ in range(400):
        fresh.add(draw.normal(0, 2, 500))
        old.add(kept)
    assert abs(float(np.mean(fresh.total))) < 6 * np.sqrt(6 * 400 / 500)
    assert old.total == pytest.approx(np.full(500, -399.0))


@pytest.mark.parametrize("make", [lambda: LikelihoodRatio(0.0, 0.1), lambda: LikelihoodRatio(1.0, 0.0)])
def test_bad_settings_are_refused(make):
    with pytest.raises(InvalidInput):
        make()
