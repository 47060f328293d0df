"""Searches and validation: the same total for any number of jobs, and no cost of one fit of many stated as proven."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from joblib import parallel_backend
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, PolynomialFeatures, StandardScaler

from tacit import Epsilon
from tacit.accounting import Ledger, accountant
from tacit.budget import Registry
from tacit.erm import DPLogisticRegression, DPRidge, PrivateScaler, PublicScaler
from tacit.errors import BudgetExceeded, PrivacyWarning
from tacit.standing import Standing
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation

DELTA = 1e-5
FIT = 2  # entries of one fit by objective perturbation
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (90, 3)) / 2
Y = (X[:, 0] > 0).astype(int)


def estimator(**settings) -> DPLogisticRegression:
    return DPLogisticRegression(classes=[0, 1], norm_bound=1.0, delta=1e-6, **settings)


@pytest.fixture
def dataset(tmp_path):
    return Registry.create(tmp_path / "budget.sqlite").declare("patients")


@pytest.fixture
def ray_backend():
    """The joblib backend of a local Ray cluster, which ends with the test."""
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "jobs", [(1, "loky"), (2, "loky"), (2, "threading"), pytest.param((2, "ray"), marks=pytest.mark.slow)], ids=str
)
def test_a_search_costs_the_same_for_any_number_of_jobs(dataset, jobs, request):
    ledger = dataset.ledger("search")
    number, backend = jobs
    if backend == "ray":
        request.getfixturevalue("ray_backend")
    with parallel_backend(backend):
        search = GridSearchCV(estimator(ledger=ledger), {"epsilon": [0.2, 0.4]}, cv=3, n_jobs=number).fit(X, Y)
    assert ledger.steps == FIT * (2 * 3 + 1)
    assert search.best_estimator_.ledger_.steps == 7 * FIT
    expected = Ledger()
    best = search.best_params_["epsilon"]
    for value in [0.2] * 3 + [0.4] * 3 + [best]:
        alone = estimator(epsilon=value).fit(X, Y).ledger_  # the noise of a fit depends on epsilon and delta alone
        for entry in alone.entries:
            expected.add(entry.mechanism, entry.steps)
    assert float(dataset.spent().epsilon(DELTA)) == pytest.approx(float(accountant("pld")(expected).epsilon(DELTA)))
    # The last fit takes the epsilon that scored best: no theorem composes exactly what follows outputs.
    assert ledger.standing is Standing.CONDITIONAL


@pytest.mark.parametrize("jobs", [1, 2])
def test_validation_costs_the_same_for_any_number_of_jobs(dataset, jobs):
    cross_val_score(estimator(ledger=dataset.ledger("validation")), X, Y, cv=3, n_jobs=jobs)
    assert dataset.total().steps == 3 * FIT


def test_copies_and_pickles_pay_into_the_same_registry(dataset):
    model = estimator(ledger=dataset.ledger("copies"))
    for each in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model), model):
        each.fit(X, Y)
    assert model.ledger_.steps == dataset.total().steps == 4 * FIT


@pytest.mark.slow
def test_a_search_stops_at_the_cap_in_any_process(dataset):
    dataset.cap(Epsilon(0.9, DELTA))
    search = GridSearchCV(
        estimator(ledger=dataset.ledger("search")), {"epsilon": [0.4]}, cv=3, n_jobs=2, error_score="raise"
    )
    with pytest.raises(BudgetExceeded, match=r"'patients' must stay within epsilon 0\.9"):
        search.fit(X, Y)
    assert float(dataset.spent().epsilon(DELTA)) <= 0.9


@pytest.mark.parametrize("backend", ["multiprocessing", "threading"])  # Forks: those of loky import torch anew.
def test_a_ledger_of_one_process_is_refused_by_another_and_shared_by_threads(backend):
    ledger = Ledger()
    search = GridSearchCV(estimator(ledger=ledger), {"epsilon": [0.2, 0.4]}, cv=3, n_jobs=2)
    with parallel_backend(backend):
        if backend == "multiprocessing":
            with pytest.raises((TypeError, pickle.PicklingError)) as refusal:
                search.fit(X, Y)
            assert "n_jobs=1" in str(refusal.getrepr(chain=True))
        else:
            assert search.fit(X, Y).best_estimator_.ledger_.steps == 7 * FIT


@pytest.mark.parametrize(
    "jobs", [(1, "loky"), pytest.param((2, "loky"), marks=pytest.mark.slow), (2, "threading")], ids=str
)
def test_the_best_of_a_search_without_a_ledger_claims_only(jobs):
    number, backend = jobs
    with parallel_backend(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = GridSearchCV(estimator(), {"epsilon": [0.2, 0.4]}, cv=3, n_jobs=number).fit(X, Y).best_estimator_
    assert best.ledger_.standing is Standing.CLAIMED
    assert best.guarantee_.standing is Standing.CLAIMED
    assert any("Clones or copies" in sentence for sentence in best.ledger_.assumptions)


def test_a_single_fit_stays_proven_whether_cloned_copied_or_repeated():
    for each in (estimator(), clone(estimator()), copy.deepcopy(estimator())):
        each.fit(X, Y)
        each.fit(X, Y)
        assert each.guarantee_.standing is Standing.PROVEN
    loaded = pickle.loads(pickle.dumps(estimator().fit(X, Y)))
    assert loaded.guarantee_.standing is Standing.PROVEN
    assert loaded.fit(X, Y).guarantee_.standing is Standing.PROVEN


ONE_HOT = OneHotEncoder(categories=[[0.0, 1.0]] * 3, sparse_output=False, handle_unknown="ignore")
READS = {
    "StandardScaler": StandardScaler(),
    "ColumnTransformer": ColumnTransformer([("scaled", StandardScaler(), [0])], remainder="passthrough"),
    "nested": make_pipeline(Normalizer(), StandardScaler()),
    "centring function": FunctionTransformer(lambda table: table - table.mean(axis=0)),
    "categories": OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
}
HARMLESS = {
    "Normalizer": Normalizer(),
    "PublicScaler": PublicScaler(data_bounds=(-1, 1)),
    "PrivateScaler": PrivateScaler(epsilon=1.0),
    "PolynomialFeatures": PolynomialFeatures(2),
    "declared categories": ONE_HOT,
    "row by row": FunctionTransformer(np.abs),
    "passthrough": "passthrough",
    "of perturbed rows": make_pipeline(InputPerturbation(norm_bound=1.0), StandardScaler()),
}


@pytest.mark.parametrize("name", READS)
def test_a_pipeline_step_that_reads_data_unpaid_is_named_and_weakens_the_number(name):
    model = make_pipeline(READS[name], estimator())
    with pytest.warns(PrivacyWarning, match="reads private data without paying in"):
        model.fit(X, Y)
    assert model[-1].guarantee_.standing is Standing.CLAIMED
    assert model[-1].ledger_.standing is Standing.CLAIMED
    assert any("pipeline step" in sentence for sentence in model[-1].ledger_.assumptions)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_pipeline_of_harmless_steps_stays_proven(name):
    steps = HARMLESS[name]
    parts = [each for _, each in steps.steps] if name == "of perturbed rows" else [steps]
    model = make_pipeline(*parts, estimator())
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        model.fit(X, Y)
    assert model[-1].guarantee_.standing is Standing.PROVEN


def test_steps_after_a_private_one_are_not_held_against_it():
    scaler = PrivateScaler(epsilon=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(scaler, StandardScaler(), DPRidge(norm_bound=4.0, target_bounds=(0, 1))).fit(X, Y)
    assert model[0].ledger_.standing is Standing.PROVEN
    assert model[-1].ledger_.standing is Standing.CLAIMED
