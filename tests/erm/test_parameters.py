"""Every parameter of an estimator changes what comes out, or is refused: none is ignored."""

from dataclasses import fields

import numpy as np
import pytest

from tacit.accounting import Ledger
from tacit.erm import (
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRidge,
    GradientDescent,
    PrivateScaler,
    PublicOneHot,
    PublicScaler,
)
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.relation import Relation
from tacit.tradeoff import Mu
from tacit.variational import DPBayesianLinearRegression, DPBayesianLogisticRegression
from tacit_papers.input_perturbation.descent_methods import OutputPerturbation
from tacit_papers.input_perturbation.input_methods import Aggregate
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation

SPENDING = {
    "epsilon": 2.0,
    "delta": 1e-3,
    "target": Mu(0.5),
    "relation": "replace_one",
    "ledger": None,  # one of its own for each case, see `other`
    "unsafe_seed": 7,
}
MODEL = SPENDING | {"data_bounds": (-0.5, 1.0), "norm_bound": 0.5, "strict": True}
LINEAR = MODEL | {"fit_intercept": False, "intercept_scale": 0.25}
CONVEX = LINEAR | {
    "method": GradientDescent(steps=5),
    "features": "cosines",
    "categorical": [0],
    "regularization": 0.3,
    "prior_norm": 0.01,
    "public_size": 90,
    "weight_bound": 2.0,
}
LABELS = {"classes": [0, 1, 2]}
CLASSES = {"class_weight": {1: 5.0}}
RANGE = {"target_bounds": (-2.0, 5.0)}
BAYESIAN = {"noise_multiplier": 3.0, "prior_std": 0.5}
OTHERS = {
    DPLogisticRegression: CONVEX | LABELS | CLASSES | {"slope_bound": 0.9, "method": OutputPerturbation()},
    DPLinearSVC: CONVEX | LABELS | CLASSES | {"half_width": 0.2, "method": OutputPerturbation()},
    DPLinearRegression: CONVEX | RANGE | {"residual_bound": 0.2},
    DPRidge: {name: value for name, value in CONVEX.items() if name not in ("regularization", "prior_norm")}
    | RANGE
    | {"residual_bound": 0.2, "alpha": 1e6},
    DPMLPClassifier: LINEAR
    | LABELS
    | {
        "hidden": 5,
        "linear": False,
        "features": "cosines",
        "categorical": (0,),
        "epochs": 2.0,
        "batch_size": 20,
        "learning_rate": 0.1,
        "clip_norm": 0.1,
        "init_seed": 3,
    },
    DPBayesianLogisticRegression: LINEAR
    | LABELS
    | BAYESIAN
    | {"family": "full_rank", "clip_norm": 0.3, "steps": 7, "batch_size": 20, "learning_rate": 0.05},
    DPBayesianLinearRegression: LINEAR | RANGE | BAYESIAN | {"noise_std": 0.6, "components": 7},
    PrivateScaler: SPENDING | {"data_bounds": (-0.5, 1.0), "public_size": 90},
    InputPerturbation: SPENDING | {"relation": "add_remove", "data_bounds": (-0.5, 1.0), "norm_bound": 0.5},
    PublicScaler: {"data_bounds": (-0.5, 1.0)},
    PublicOneHot: {"categories": [0, 1, 2], "unknown": "zero"},
}
UNREAD = "must be left at its default .* Nothing else in these settings reads it"
REFUSED = {
    **dict.fromkeys([(DPLogisticRegression, "weight_bound"), (DPLinearSVC, "weight_bound")], UNREAD),
    **dict.fromkeys([(DPRidge, "weight_bound"), (DPLinearSVC, "categorical")], UNREAD),
    **dict.fromkeys([(DPLinearRegression, "weight_bound")], UNREAD),
    **{
        (kind, "categorical"): "must be columns of codes"
        for kind in (DPLogisticRegression, DPLinearRegression, DPRidge, DPMLPClassifier)
    },
    (DPLinearSVC, "classes"): "must be two",
}
"""Cases in which the other settings do not read the parameter; every other one changes what comes out."""
CASES = [(kind, name) for kind in OTHERS for name in sorted({f.name for f in fields(kind) if f.init})]


def other(kind, name):
    """Another value of a parameter than its default; the ledger has spent something before."""
    if name != "ledger":
        return OTHERS[kind][name]
    (relation,) = [each.default for each in fields(kind) if each.name == "relation"]
    return Ledger.of(Gaussian(50.0), relation=Relation.parse(relation or "add_remove"))


def base(kind):
    if kind is PublicScaler:
        return {}
    if kind is PublicOneHot:
        return {"categories": [0, 1]}
    settings = {"delta": 1e-4, "data_bounds": (-1, 1), "unsafe_seed": 0}
    names = {f.name for f in fields(kind)}
    settings |= {"classes": [0, 1]} if "classes" in names else {}
    settings |= {"target_bounds": (0.0, 1.0)} if "target_bounds" in names else {}
    if kind is DPBayesianLogisticRegression:
        settings |= {"steps": 5}
    if kind is DPMLPClassifier:
        settings |= {"epochs": 1.0}
    return settings


def outcome(kind, settings):
    """Everything that a fit shows: numbers, guarantee, ledger."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 2))
    y = (x[:, 0] > 0).astype(int)
    if kind is PublicOneHot:
        x = (x > 0).astype(float) + (1.0 if settings.get("unknown") == "zero" else 0.0)
    model = kind(**settings).fit(x, y)
    shown = [model.transform(x) if hasattr(model, "transform") else model.predict(x)]
    shown += [model.predict_proba(x)] if hasattr(model, "predict_proba") else []
    shown += [model.coef_, model.intercept_] if hasattr(model, "coef_") else []
    shown += [model.posterior_.interval(0.9)] if hasattr(model, "posterior_") else []
    ledger = getattr(model, "ledger_", None)
    said = "" if ledger is None else f"{ledger.spec()}"
    relation = model.guarantee_.relation if hasattr(model, "guarantee_") else ""
    return [np.asarray(each).tolist() for each in shown], said, relation


@pytest.fixture(scope="module")
def defaults():
    return {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_parameter_changes_the_fit_or_is_refused(kind, name, defaults):
    assert name in OTHERS[kind], f"{name} of {kind.__name__} needs another value here"
    if name == "strict":
        with pytest.raises(InvalidInput, match="strict"):
            outcome(kind, base(kind) | {"data_bounds": None, "strict": True})
        return
    if kind not in defaults:
        defaults[kind] = outcome(kind, base(kind))
    settings = base(kind) | {name: other(kind, name)}
    if (kind, name) in REFUSED:
        with pytest.raises(InvalidInput, match=f"{name} {REFUSED[kind, name]}"):
            outcome(kind, settings)
        return
    # As text, in which a NaN equals another.
    assert repr(outcome(kind, settings)) != repr(defaults[kind])


def test_the_penalty_of_a_ridge_regression_shrinks_it():
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    declared = {"epsilon": 2.0, "delta": 1e-5, "data_bounds": (-1, 1), "target_bounds": (-1, 1), "unsafe_seed": 0}
    small, large = (abs(DPRidge(alpha=a, **declared).fit(x, x[:, 0] / 2).coef_[0]) for a in (1.0, 1e6))
    assert large < 1e-2 * small


@pytest.mark.parametrize("ignored", [{"prior_norm": 1.0}, {"residual_bound": 2.0}, {"public_size": 50}])
def test_what_the_method_does_not_read_is_refused(ignored):
    (name,) = ignored
    x = np.zeros((60, 1))
    with pytest.raises(InvalidInput, match=f"{name} must be left at its default"):
        DPLinearRegression(method=Aggregate(), delta=1e-5, data_bounds=(-1, 1), target_bounds=(0, 1), **ignored).fit(
            x, x[:, 0]
        )
