"""Boosted trees and distribution functions: what they release, what a record can move, and their files."""

import math
from functools import partial

import numpy as np
import pytest

from tacit.accounting import Ledger
from tacit.erm import (
    DPBoostedTrees,
    DPLogisticRegression,
    DPMLPClassifier,
    PrivateQuantiles,
    private_histogram,
    private_median,
    private_quantiles,
    quantiles,
    trees,
)
from tacit.erm.quantiles import LEVELS, Distribution, distributions
from tacit.erm.trees import RESIDUAL_BOUND, SymmetricTrees, boosted, draw_structure
from tacit.errors import InvalidInput, LeakWarning
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_mu
from tests.erm.cases import terms

RNG = np.random.default_rng(7)
LOW, HIGH = np.zeros(3), np.ones(3)


class Exact:
    """Terms that add no noise and keep what was asked of them: sums, deviations and charges."""

    def __init__(self, noise=None):
        self.sums, self.stds, self.charged, self._noise = [], [], [], noise

    def charge(self, mechanism, note, *, exact):
        assert exact
        self.charged.append(mechanism)

    def noisy(self, values, *, std, rounding=0.0):
        """The values, or what another run released in their place, so that later questions are the same."""
        self.sums.append(values.copy())
        self.stds.append(std)
        return values if self._noise is None else self._noise[len(self.sums) - 1]


def moved(run, one, other):
    """The mu that the releases of two neighbouring data sets show, each step at its own deviation.

    Both runs see the released values of the first, as a distinguisher does that compares them under either hypothesis.
    """
    first = Exact()
    run(first, *one)
    second = Exact(first.sums)
    run(second, *other)
    steps = zip(first.sums, second.sums, first.stds, second.stds, strict=True)
    total = 0.0
    for mine, theirs, std, same in steps:
        assert std == same
        total += (np.linalg.norm(mine - theirs) / std) ** 2
    return math.sqrt(total)


def rows_of(records=60):
    x = RNG.uniform(0, 1, (records, 3))
    return x, RNG.integers(0, 2, records)


PLACES = {
    "between leaves": ([0.1, 0.1, 0.1], [0.9, 0.9, 0.9]),
    "at the ends of the range": ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
    "outside of the range": ([-1e300, -5.0, 2.0], [1e300, 7.0, -1.0]),
    "at a cell's edge": ([0.5, 0.25, 0.125], [np.nextafter(0.5, 0), np.nextafter(0.25, 0), 0.75]),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_record_moves_the_counts_by_no_more_than_their_noise_allows(place):
    """Replace-one, the largest change: 2 times the mu of one multiplier, which is the mu of zero-out."""
    x, _ = rows_of()

    def run(found, rows):
        distributions(rows, LOW, HIGH, found, multiplier=1.0, size=60)

    for one, other in (PLACES[place], PLACES[place][::-1]):
        mine, theirs = np.vstack([x, one]), np.vstack([x, other])
        assert moved(run, (mine,), (theirs,)) <= 2.0
        assert moved(run, (mine,), (x,)) <= 1.0 + 1e-12


def test_the_counts_reach_their_bound():
    """One record more is one count in each level and column, sqrt(p L) in all, where every node on its way is split."""
    x = np.full((60, 3), 0.3)

    def run(found, rows):
        distributions(rows, LOW, HIGH, found, multiplier=0.05, size=60)

    assert moved(run, (np.vstack([x, x[:1]]),), (x,)) == pytest.approx(1 / 0.05)


def boost(found, x, labels, *, classes=2, members=False):
    known = {each: Distribution(np.array([0.0, 1.0]), np.array([0.0, 1.0])) for each in range(1 if members else 0, 3)}
    structure = draw_structure(np.random.default_rng(1), known, {0: 4} if members else {}, trees=20, depth=3)
    boosted(structure, x, labels, classes, found, multiplier=1.0, size=60)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("place", PLACES)
def test_a_record_moves_the_sums_by_no_more_than_their_noise_allows(place, classes):
    x, _ = rows_of()
    labels = RNG.integers(0, classes, len(x))
    for one, other in (PLACES[place], PLACES[place][::-1]):
        for label in range(classes):
            mine = np.vstack([x, one]), np.append(labels, label)
            theirs = np.vstack([x, other]), np.append(labels, classes - 1 - label)
            found = moved(lambda *parts: boost(*parts, classes=classes), mine, theirs)
            assert found <= 2.0
            assert moved(lambda *parts: boost(*parts, classes=classes), mine, (x, labels)) <= 1.0


@pytest.mark.parametrize("code", [-1.0, 0.5, 4.0, 1e300])
def test_an_unseen_category_moves_no_more_than_a_known_one(code):
    x, labels = rows_of()
    x[:, 0] = RNG.integers(0, 4, len(x))
    mine = np.vstack([x, [code, 0.5, 0.5]]), np.append(labels, 1)
    found = moved(lambda *parts: boost(*parts, members=True), mine, (x, labels))
    assert 0.5 < found <= 1.0


def test_the_sums_reach_their_bound():
    """At the first tree every residual is 1/2 = C."""
    x, labels = rows_of()
    found = moved(boost, (np.vstack([x, x[:1]]), np.append(labels, 1)), (x, labels))
    assert found == pytest.approx(1.0, rel=0.2)
    assert RESIDUAL_BOUND == 0.5


@pytest.mark.parametrize("broken", ["half the noise", "sensitivity without the columns", "structure that reads"])
def test_the_distinguisher_notices_broken_copies(broken, monkeypatch):
    x = np.full((60, 3), 0.3)
    grown = np.vstack([x, x[:1]])
    if broken == "structure that reads":

        def run(found, rows):
            cut = np.array([[rows[:, 0].sum() / 60]])  # a threshold that follows the records
            one = SymmetricTrees(np.zeros((1, 1), int), cut, np.zeros((1, 1, 0), bool), np.zeros((1, 2, 0)))
            boosted(one, rows + 1e-4, np.ones(len(rows), int), 2, found, multiplier=1.0, size=60)

        assert moved(run, (grown,), (x,)) > 1.0
        return

    def run(found, rows):
        distributions(rows, LOW, HIGH, found, multiplier=0.05, size=60)

    honest, factor = Exact.noisy, {"half the noise": 0.5, "sensitivity without the columns": 3**-0.5}[broken]
    monkeypatch.setattr(
        Exact, "noisy", lambda self, values, *, std, rounding=0.0: honest(self, values, std=std * factor)
    )
    assert moved(run, (grown,), (x,)) > 1 / 0.05 * 1.5


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1.0), ("replace_one", 2.0)])
def test_the_bill_is_that_of_the_target(relation, factor):
    x, labels = rows_of()
    model = DPBoostedTrees(
        epsilon=1.0, delta=1e-5, relation=relation, data_bounds=(0, 1), classes=[0, 1], trees=8, depth=2
    ).fit(x, labels)
    mu = gaussian_mu(1.0, 1e-5)
    steps = {each.mechanism.noise_multiplier: each.steps for each in model.ledger_.entries}
    assert sum(steps.values()) == 8 + LEVELS
    spent = sum(count / multiplier**2 for multiplier, count in steps.items()) * factor**2
    assert spent == pytest.approx(mu**2, rel=1e-6)
    assert spent <= mu**2 * (1 + 1e-9)
    assert float(model.guarantee_.epsilon(1e-5)) <= 1.0
    counts = min(steps, key=lambda each: abs(steps[each] - LEVELS))
    assert LEVELS / counts**2 * factor**2 == pytest.approx(0.1 * mu**2, rel=1e-6)


@pytest.mark.parametrize(("size", "depth"), [(2000, 4), (200_000, 7)])
def test_the_depth_follows_from_public_numbers(size, depth):
    """Mu is .24 at epsilon 1: records that are declared count, not those that are there."""
    x, labels = rows_of(200)
    declared = {"epsilon": 1.0, "delta": 1e-6, "data_bounds": (0, 1), "classes": [0, 1]}
    model = DPBoostedTrees(**declared, trees=2, public_size=size).fit(x, labels)
    assert model.trees_.columns.shape == (2, depth)


def test_noise_of_the_trees_has_the_stated_deviation():
    x = np.zeros((0, 3))
    known = {each: Distribution(np.array([0.0, 1.0]), np.array([0.0, 1.0])) for each in range(3)}
    structure = draw_structure(np.random.default_rng(0), known, {}, trees=100, depth=7)
    found, facts = boosted(structure, x, np.zeros(0, int), 2, terms(), multiplier=0.7, size=1000)
    assert facts["noise_std"] == pytest.approx(0.5 * 0.7 * 10)
    assert found.values.std() == pytest.approx(facts["value_std"], rel=0.05)


def test_sums_do_not_depend_on_the_order_of_the_records():
    x, labels = rows_of(500)
    order = RNG.permutation(len(x))
    one, other = Exact(), Exact()
    boost(one, x, labels, classes=2)
    boost(other, x[order], labels[order], classes=2)
    for mine, theirs in zip(one.sums, other.sums, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert (mine == np.trunc(mine)).all()


def fitted(classes=3, **settings):
    x = RNG.uniform(0, 1, (300, 3))
    x[:, 0] = RNG.integers(0, 4, len(x))
    y = (x[:, 1] * classes).astype(int)
    bounds = (0.0, np.array([3.0, 1.0, 1.0]))
    model = DPBoostedTrees(
        epsilon=20.0, delta=1e-5, data_bounds=bounds, categorical=[0], classes=range(classes), **settings
    )
    return model.fit(x, y), x, y


@pytest.mark.parametrize("classes", [2, 3])
def test_saved_trees_answer_as_those_that_were_saved(tmp_path, classes):
    model, x, _ = fitted(classes, trees=12, depth=4)
    model.save(tmp_path / "trees.json")
    x[:5, 0] = [-1, 0.5, 4, 1e9, 3]
    expected = model.trees_.scores(x)
    np.testing.assert_array_equal(SymmetricTrees.load(tmp_path / "trees.json").scores(x), expected)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.onnx(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"X": x})[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "tacit symmetric trees 1", "columns": [[0]]}'])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InvalidInput):
        SymmetricTrees.load(tmp_path / "x.json")


def test_importances_find_the_column_that_decides():
    model, _, _ = fitted(3, trees=300, depth=4)
    assert model.feature_importances_.argmax() == 1
    assert model.feature_importances_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"categorical": [1]}, "columns of codes"),
        ({"categorical": ["colour"]}, "columns of X by name"),
        ({"categorical": [True]}, "columns of X by name"),
        ({"depth": 13}, "depth"),
        ({"norm_bound": 2.0}, "norm_bound"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_spent(settings, said):
    ledger, (x, labels) = Ledger(relation="zero_out"), rows_of()
    bounds = (0.0, np.array([1.0, 0.5, 1.0]))
    declared = {"delta": 1e-5, "data_bounds": bounds, "classes": [0, 1], "relation": "zero_out", "ledger": ledger}
    model = DPBoostedTrees(**(declared | settings))
    with pytest.raises(InvalidInput, match=said):
        model.fit(x, labels)
    assert not ledger.entries


@pytest.mark.parametrize("low", [0.0, 5.0, -1e308])
def test_constant_columns_and_wide_ranges_have_a_distribution(low):
    values = np.full(200, max(low, -1e300))
    high = 5.0 if low == 5.0 else 1e308
    found = private_quantiles(values, [0.0, 0.5, 1.0], epsilon=5.0, delta=1e-5, data_bounds=(low, high))
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(
    ("kind", "undeclared"),
    [
        (partial(DPBoostedTrees, trees=10), "claimed"),
        (DPMLPClassifier, "claimed"),
        (partial(DPLogisticRegression, features="cosines"), "They need data_bounds"),
        (partial(DPMLPClassifier, features="cosines"), "They need data_bounds"),
    ],
)
def test_constant_columns_train_and_undeclared_ranges_are_a_leak_or_refused(kind, undeclared):
    x, labels = rows_of(3000)
    x[:, 1] = 0.5
    settings = {"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1]}
    model = kind(**settings, data_bounds=([0.0, 0.5, 0.0], [1.0, 0.5, 1.0])).fit(x, labels)
    assert np.isfinite(model.decision_function(x)).all()
    assert str(model.guarantee_.standing) == "proven"
    with pytest.raises(InvalidInput, match="data_bounds"):
        kind(**settings, data_bounds=([0.0, 0.0], [1.0, 1.0])).fit(x, labels)
    if undeclared == "claimed":
        with pytest.warns(LeakWarning, match="Pass data_bounds"):
            assert str(kind(**settings).fit(x, labels).guarantee_.standing) == undeclared
    else:
        with pytest.raises(InvalidInput, match=undeclared):
            kind(**settings).fit(x, labels)


def test_one_column_has_a_median_and_a_histogram():
    values = RNG.normal(size=4000)
    settings = {"epsilon": 3.0, "delta": 1e-5, "data_bounds": (-10, 10)}
    assert abs(private_median(values, **settings)) < 0.15
    counts, edges = private_histogram(values, bins=4, **settings)
    assert counts.sum() == pytest.approx(4000)
    assert np.abs(counts - np.histogram(values, edges)[0]).max() < 300
    with pytest.raises(InvalidInput, match="one column"):
        private_median(values[:, None], **settings)
    with pytest.raises(InvalidInput, match="shares"):
        private_quantiles(values, 1.5, **settings)


def test_quantiles_are_paid_under_the_given_ledger():
    ledger = Ledger(relation="zero_out")
    model = PrivateQuantiles(epsilon=1.0, delta=1e-5, data_bounds=(0, 1), relation="zero_out", ledger=ledger)
    rows = model.fit_transform(RNG.uniform(0, 1, (500, 2)))
    assert ((rows >= 0) & (rows <= 1)).all()
    assert sum(each.steps for each in ledger.entries) == LEVELS
    assert model.guarantee_.relation is Relation.ZERO_OUT
    assert float(model.guarantee_.epsilon(1e-5)) <= 1.0
    assert quantiles.mechanism_of(2.0) == trees.mechanism_of(2.0, LEVELS)
