import copy
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from tacit import erm, features
from tacit.accounting import Ledger, accountant
from tacit.erm import (
    CosineFeatures,
    DPBoostedTrees,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRidge,
    GradientDescent,
    PrivateQuantiles,
    PrivateScaler,
    PublicImputer,
    PublicOneHot,
    PublicScaler,
    PublicTable,
)
from tacit.errors import InvalidInput, LeakWarning, PrivacyWarning
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.tradeoff import Mu
from tacit_papers.input_perturbation.counter_examples import PaperInput
from tacit_papers.input_perturbation.descent_methods import GaussianOutput
from tacit_papers.input_perturbation.input_methods import Aggregate
from tacit_papers.input_perturbation.network import PublishedMLP
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation, randomised_labels

NOISE = "noise is drawn anew for every fit, and the check compares two fits"
CALL = "noise is drawn anew for every call, and the check compares two calls"
CLASSIFIER = dict.fromkeys(
    ("check_classifier_data_not_an_array", "check_supervised_y_2d", "check_fit_idempotent"), NOISE
)
REGRESSOR = dict.fromkeys(
    ("check_regressor_data_not_an_array", "check_supervised_y_2d", "check_regressors_int", "check_fit_idempotent"),
    NOISE,
)
SPENT = "an error, or a number of records, that follows weights would tell neighbours apart"
WEIGHTS = dict.fromkeys(("check_all_zero_sample_weights_error", "check_sample_weight_equivalence_on_dense_data"), SPENT)
EXPECTED = [
    (DPLogisticRegression, CLASSIFIER | WEIGHTS),
    (DPLinearSVC, CLASSIFIER | WEIGHTS),
    (DPMLPClassifier, CLASSIFIER),
    (DPLinearRegression, REGRESSOR | WEIGHTS),
    (DPRidge, REGRESSOR | WEIGHTS),
    (InputPerturbation, {"check_estimators_pickle": CALL, "check_fit_idempotent": CALL}),
    (CosineFeatures, {"check_fit_idempotent": NOISE}),
    (PrivateScaler, {"check_fit_idempotent": NOISE}),
    (PrivateQuantiles, {"check_fit_idempotent": NOISE}),
    # At a large epsilon: the checks ask for an accuracy of .83 on few records.
    (partial(DPBoostedTrees, trees=20, depth=4, epsilon=8.0), CLASSIFIER),
]


def data(records=400, width=3, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (records, width))
    scores = x @ rng.normal(size=(width, classes)) * 4
    return x, scores.argmax(axis=1)


def fitted(kind=DPLogisticRegression, classes=2, **settings):
    x, y = data(classes=classes)
    declared = {"classes": range(classes)} if kind is not DPLinearRegression else {"target_bounds": (0, 1)}
    return kind(data_bounds=(-1, 1), **declared, **settings).fit(x, y)


def failures(estimator, allowed):
    """Checks of scikit-learn that fail and are not tagged as expected to."""
    if isinstance(estimator, DPMLPClassifier):
        estimator.set_params(epochs=1.0)
    results = check_estimator(estimator, expected_failed_checks=dict(allowed), on_fail=None)
    return [(row["check_name"], row["exception"]) for row in results if row["status"] == "failed"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "expected"), EXPECTED, ids=lambda value: getattr(value, "__name__", ""))
def test_scikit_learn_checks_with_secure_noise(kind, expected):
    assert not failures(kind(), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "expected"), EXPECTED, ids=lambda value: getattr(value, "__name__", ""))
def test_scikit_learn_checks_with_repeatable_noise(kind, expected):
    """All but what privacy forbids."""
    # Each call of a perturbation spends, and the ledger of an unpickled copy is closed.
    spends = {"check_estimators_pickle"} if kind is InputPerturbation else set()
    assert not failures(kind(unsafe_seed=0), {n: why for n, why in expected.items() if why == SPENT or n in spends})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "transformer",
    [
        *(PublicScaler(), PublicOneHot(categories=(0, 1), unknown="zero"), PublicTable(), PublicImputer()),
        *(features.HashedText(), features.Scattering2d((1, 8, 8)), features.PatchDictionary((1, 8, 8))),
        *(features.Beside([features.HashedText()]), features.Frozen(torch.nn.Flatten(), torch.zeros(1, 4))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_scikit_learn_checks_without_noise(transformer):
    assert not failures(transformer, {})


def test_every_estimator_and_transformer_is_checked():
    checked = {kind.func if isinstance(kind, partial) else kind for kind, _ in EXPECTED}
    (public,) = [each for each in test_scikit_learn_checks_without_noise.pytestmark if each.name == "parametrize"]
    checked |= {type(each) for each in public.args[1]} | {features.PublicFeatures, features.SyntheticWhitening}
    every = [getattr(room, name) for room in (erm, features) for name in room.__all__]
    assert {each for each in every if isinstance(each, type) and issubclass(each, BaseEstimator)} <= checked


@pytest.mark.parametrize("method", ["objective", GaussianOutput(), "gradient", Aggregate()], ids=str)
@pytest.mark.parametrize("kind", [DPLogisticRegression, DPLinearSVC, DPLinearRegression])
def test_every_method_of_every_model(kind, method):
    model = fitted(kind, method=method, epsilon=50.0, delta=1e-5)
    assert model.guarantee_.standing is Standing.PROVEN
    assert float(model.guarantee_.epsilon(1e-5)) <= 50.0 * (1 + 1e-6)
    assert model.ledger_.entries
    assert model.score(*data()) > (0.75 if kind is not DPLinearRegression else 0.3)
    if isinstance(method, Aggregate):  # a replaced message moves by 1.5, a blank one by 1
        assert model.release_.exchange_rate == pytest.approx(1.5 * 20.0, rel=1e-3)


def test_multinomial_and_its_probabilities():
    model = fitted(classes=4, epsilon=30.0, features=None)
    x, y = data(classes=4)
    assert model.score(x, y) > 0.7
    assert model.coef_.shape == (4, 3)
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(x), model.predict_proba(x).argmax(axis=1))


@pytest.mark.parametrize("bound", [0.5, 0.7, 1.0])
def test_probabilities_undo_the_clipped_loss(bound):
    """Rows alike, 80 % of them of class 1: the predicted probability is .8 whatever the slope bound."""
    x, y = np.ones((2000, 1)), (np.arange(2000) % 5 > 0).astype(int)
    model = DPLogisticRegression(
        epsilon=1e4, data_bounds=(0, 1), classes=[0, 1], slope_bound=bound, regularization=1e-6, unsafe_seed=1
    ).fit(x, y)
    assert model.predict_proba(x[:1])[0, 1] == pytest.approx(0.8, abs=0.01)


def test_mlp_methods():
    for kind, settings in (
        (DPMLPClassifier, {"epsilon": 20.0}),
        (PublishedMLP, {}),
    ):
        model = fitted(kind, **settings)
        assert model.predict_proba(data()[0]).shape == (400, 2)
        assert hasattr(model.release_, "floor") == (kind is PublishedMLP)


def test_what_a_fit_protects_is_printed():
    model = fitted(method=Aggregate(), epsilon=1.0, delta=1e-5, relation="replace_one")
    assert model.release_.exchange_rate == pytest.approx(20.0, rel=1e-3)  # sqrt(400)
    lines = model.privacy_summary().splitlines()
    assert lines[0].startswith("central        epsilon 1 at delta 1e-05, replace_one, proven")
    assert lines[1].startswith("local          epsilon ")
    assert lines[2] == "exchange rate  local mu = 20 x central mu"
    assert "leaks at least" in fitted(method=PaperInput(), delta=1e-5).privacy_summary()
    assert len(fitted(delta=1e-5).privacy_summary().splitlines()) == 1


def test_a_claimed_method_says_so():
    model = fitted(method=PaperInput(), delta=1e-6)
    assert model.guarantee_.standing is Standing.CLAIMED
    assert model.release_.floor.standing is Standing.PROVEN
    assert model.ledger_.standing is Standing.CLAIMED


def test_undeclared_knowledge_is_a_leak():
    x, y = data()
    with pytest.warns(LeakWarning, match="data_bounds"):
        DPLogisticRegression(classes=[0, 1]).fit(x, y)
    with pytest.warns(LeakWarning, match="classes"):
        DPLogisticRegression(data_bounds=(-1, 1)).fit(x, y)
    with pytest.warns(LeakWarning, match="target_bounds"):
        DPLinearRegression(data_bounds=(-1, 1)).fit(x, y)
    for what, settings in (("data_bounds", {"classes": [0, 1]}), ("classes", {"data_bounds": (-1, 1)})):
        with pytest.raises(InvalidInput, match=f"{what} must be declared as public"):
            DPLogisticRegression(strict=True, **settings).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DPLogisticRegression(strict=True, classes=[0, 1], norm_bound=2.0).fit(x, y)
    with pytest.warns(PrivacyWarning, match="not below 1/n"):
        fitted(delta=0.01)


@pytest.mark.parametrize(
    ("kind", "settings", "read"),
    [
        (DPLogisticRegression, {"classes": [0, 1]}, ["data_bounds"]),
        (DPLogisticRegression, {"norm_bound": 2.0}, ["classes"]),
        (DPLinearSVC, {}, ["data_bounds", "classes"]),
        (DPMLPClassifier, {"epochs": 1.0}, ["data_bounds", "classes"]),
        (DPMLPClassifier, {"classes": [0, 1], "epochs": 1.0}, ["data_bounds"]),
        (DPLinearRegression, {"data_bounds": (-1, 1)}, ["target_bounds"]),
        (DPRidge, {}, ["data_bounds", "target_bounds"]),
    ],
)
def test_a_guarantee_after_a_leak_is_only_claimed(kind, settings, read):
    with pytest.warns(LeakWarning):
        model = kind(delta=1e-5, **settings).fit(*data())
    assert model.guarantee_.standing is Standing.CLAIMED
    assert accountant("pld")(model.ledger_).standing is Standing.CLAIMED
    assert model.ledger_.unsafe == [f"read_from_data: {what}" for what in read]
    assert {f"Read from the data without being paid for: {what}" for what in read} <= {*model.ledger_.assumptions}
    assert all(line.endswith(", claimed") for line in model.privacy_summary().splitlines() if "epsilon" in line)


def test_a_later_leak_in_the_ledger_leaves_the_standing_of_an_earlier_fit():
    ledger = Ledger()
    sound = fitted(ledger=ledger, delta=1e-5)
    with pytest.warns(LeakWarning):
        DPLogisticRegression(delta=1e-5, classes=[0, 1], ledger=ledger).fit(*data())
    assert sound.guarantee_.standing is Standing.PROVEN
    assert accountant("pld")(ledger).standing is Standing.CLAIMED


def test_a_refused_leak_leaves_the_ledger_as_it_was():
    ledger = Ledger()
    with pytest.raises(InvalidInput, match="data_bounds"):
        DPLogisticRegression(strict=True, classes=[0, 1], ledger=ledger).fit(*data())
    assert (ledger.unsafe, ledger.standing) == ([], Standing.PROVEN)


def test_messages_of_removed_records_are_assumed():
    x, _ = data()
    table = InputPerturbation(relation="add_remove").fit(x)
    assert any("a removed record the message of a zero row" in sentence for sentence in table.ledger_.assumptions)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"epsilon": value}, "epsilon must be in") for value in (-1, 0, float("nan"), float("inf"), "1")]
    + [({"delta": value}, "delta must be in") for value in (2.0, -1e-5, float("nan"))]
    + [
        ({"method": "objektive"}, "Did you mean 'objective'"),
        ({"method": "gradient", "delta": 0.0}, "delta must be > 0"),
        ({"relation": "replace"}, "Did you mean 'replace_one'"),
        ({"norm_bound": 0.0}, "norm_bound must be in"),
        ({"regularization": -1.0}, "regularization must be in"),
        ({"regularization": "none"}, "regularization must be in"),
        ({"regularization": 0.0, "method": GaussianOutput()}, "strength must be in"),
        ({"intercept_scale": 0.0}, "intercept_scale must be in"),
        ({"slope_bound": 0.0}, "slope_bound must be in"),
        ({"target": 1.0}, "target must be a Target"),
        ({"ledger": "x"}, "ledger must be a tacit Ledger"),
        ({"unsafe_seed": -1}, "unsafe_seed must be"),
    ],
)
def test_settings_that_break_their_rule_spend_nothing(settings, sentence):
    ledger = Ledger(relation="add_remove")
    with pytest.raises(InvalidInput, match=sentence):
        fitted(**({"ledger": ledger} | settings))
    assert not ledger.entries


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x, y: (np.where(np.arange(400)[:, None] == 7, np.nan, x), y), "rows 7, columns 0, 1, 2"),
        (lambda x, y: (x, y[:-1]), "y must be of length 400"),
        (lambda x, y: (x, y + 5), "labels of the declared classes"),
        (lambda x, y: (x[:0], y[:0]), "0 sample"),
    ],
)
def test_data_that_break_their_rule_spend_nothing(change, sentence):
    ledger, (x, y) = Ledger(), data()
    with pytest.raises(ValueError, match=sentence):
        DPLogisticRegression(data_bounds=(-1, 1), classes=[0, 1], ledger=ledger).fit(*change(x, y))
    assert not ledger.entries


def test_not_fitted():
    for model in (DPLogisticRegression(), DPMLPClassifier(), DPLinearRegression()):
        with pytest.raises(NotFittedError):
            model.predict([[0.0]])
        with pytest.raises(NotFittedError):
            _ = model.guarantee_


def test_words_pandas_and_feature_names():
    pandas = pytest.importorskip("pandas")
    x, y = data()
    table = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = DPLogisticRegression(data_bounds=(-1, 1), classes=["no", "yes"], epsilon=50.0)
    model.fit(table, np.where(y, "yes", "no"))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert set(model.predict(table)) == {"no", "yes"}


def test_polars():
    polars = pytest.importorskip("polars")
    x, y = data()
    model = DPLogisticRegression(data_bounds=(-1, 1), classes=[0, 1])
    assert model.fit(polars.DataFrame(x, schema=["a", "b", "c"]), y).n_features_in_ == 3


def test_one_ledger_for_a_pipeline_and_its_clones():
    x, y = data()
    ledger = Ledger()
    steps = make_pipeline(
        PublicScaler(data_bounds=(-1, 1)),
        PrivateScaler(epsilon=1.0, delta=1e-6, data_bounds=(-1, 1), ledger=ledger),
        DPLogisticRegression(epsilon=1.0, delta=1e-6, norm_bound=3.0, classes=[0, 1], ledger=ledger),
    )
    steps.fit(x, y)
    assert {entry.note for entry in ledger.entries} == {"means and deviations", "objective perturbation"}
    alone = float(steps[-1].guarantee_.epsilon(1e-6))
    assert alone == pytest.approx(1.0, rel=1e-3)
    assert float(accountant("pld")(ledger).epsilon(2e-6)) > 1.2
    before = ledger.steps
    search = GridSearchCV(clone(steps[-1]), {"regularization": [0.01, 0.1]}, cv=2).fit(x, y)
    assert search.best_estimator_.ledger_ is ledger
    assert ledger.steps == before + 5 * 2  # four folds and a refit, each with its rounding step


def test_own_settings_and_targets():
    model = fitted(method=GradientDescent(steps=5), target=Mu(0.5))
    assert model.facts_["steps"] == 5
    assert float(model.guarantee_.mu()) == pytest.approx(0.5, rel=1e-5)
    assert pickle.loads(pickle.dumps(model)).facts_ == model.facts_


def test_perturbed_tables_cost_every_time():
    x, _ = data()
    table = InputPerturbation(epsilon=2.0, delta=1e-6, norm_bound=1.5)
    once = table.fit_transform(x)
    assert float(table.local_guarantee_.epsilon(1e-6)) == pytest.approx(2.0, rel=1e-5)
    assert not np.allclose(once, table.transform(x))
    assert table.ledger_.steps == 2
    norms = np.linalg.norm(x, axis=1)
    clipped = x * np.minimum(1, 1.5 / norms)[:, None]
    assert np.std(once - clipped) == pytest.approx(table.noise_std_, rel=0.15)


def test_randomised_labels():
    ledger = Ledger(relation="replace_one")
    y = np.repeat([0, 1, 2], 20_000)
    told = randomised_labels(y, classes=[0, 1, 2], epsilon=1.0, ledger=ledger)
    kept = np.exp(1) / (np.exp(1) + 2)
    # 60,000 coin flips: deviation .002; both other classes alike.
    assert np.mean(told == y) == pytest.approx(kept, abs=5 * 0.002)
    assert np.mean((told - y) % 3 == 1) == pytest.approx((1 - kept) / 2, abs=5 * 0.002)
    assert ledger.steps == 1


def test_public_transformers():
    x = np.array([[0.0, 5.0], [99.0, 40.0]])
    scaler = PublicScaler(data_bounds=([0, 0], [99, 20])).fit(x)
    np.testing.assert_allclose(scaler.transform(x), [[-1.0, -0.5], [1.0, 1.0]])
    hot = PublicOneHot(categories=[["a", "b"], ["x", "y", "z"]]).fit([["a", "z"]])
    np.testing.assert_allclose(hot.transform([["b", "x"]]), [[0, 1, 1, 0, 0]])
    assert list(hot.get_feature_names_out()) == ["x0_a", "x0_b", "x1_x", "x1_y", "x1_z"]
    with pytest.raises(InvalidInput, match="declared categories in every cell"):
        hot.transform([["c", "x"]])
    with pytest.raises(InvalidInput, match="categories must be declared"):
        PublicOneHot().fit([["a"]])


def test_private_scaler_learns_what_it_pays_for():
    x = np.random.default_rng(0).normal(3.0, 0.5, (5000, 2))
    scaler = PrivateScaler(epsilon=5.0, delta=1e-6, data_bounds=(0, 10)).fit(x)
    assert scaler.mean_ == pytest.approx([3.0, 3.0], abs=0.1)
    assert float(scaler.guarantee_.epsilon(1e-6)) == pytest.approx(5.0, rel=1e-5)


def test_pickled_models_do_not_detach_a_shared_ledger():
    X, y = np.random.default_rng(0).normal(size=(60, 2)) / 4, np.arange(60) % 2
    shared = Ledger()
    model = DPLogisticRegression(classes=[0, 1], norm_bound=1.0, ledger=shared).fit(X, y)
    for detach in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"n_jobs=1"):
            detach(model)
    alone = pickle.loads(pickle.dumps(model.set_params(ledger=None)))
    assert alone.ledger_.hash == shared.hash
    with pytest.raises(InvalidInput, match="closed copy"):
        alone.ledger_.add(Gaussian(1.0))


@pytest.mark.parametrize("kind", [DPMLPClassifier, PublishedMLP])
def test_a_network_ends_with_finite_scores_as_it_comes(kind):
    x = np.random.default_rng(0).uniform(-1, 1, (150, 4))
    model = kind(epsilon=10.0, delta=1e-3, classes=[0, 1], data_bounds=(-1, 1), unsafe_seed=0)
    assert np.isfinite(model.fit(x, x[:, 0] > 0).predict_proba(x)).all()
