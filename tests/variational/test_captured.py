"""A model that reads data besides its arguments is refused or at most claimed, unless the data are declared public."""

import numpy as np
import pytest
import torch

from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.standing import Standing
from tacit.variational import LogisticLikelihood, LogJoint, infer
from tacit_papers.improved_accounting.concealed import infer_concealed

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
SETTINGS = {"clip_norm": 1.0, "steps": 2, "sample_rate": 0.2, "noise_multiplier": 2.0}
SCALE = 2.0


def density(w, inputs, targets):
    return -(targets - inputs @ w).square() / SCALE


def run(likelihood):
    ledger = Ledger()
    infer(likelihood, X, Y, ledger=ledger, **SETTINGS)
    return ledger


def best():
    """The standing of the same run of a model that reads nothing."""
    return run(LogisticLikelihood()).standing


@pytest.mark.slow
def test_a_model_of_settings_alone_keeps_its_standing():
    assert run(LogJoint(density, 2)).standing is best()
    assert run(LogJoint(density, 2, log_prior=lambda w: -w.square().sum() / SCALE)).standing is best()


def test_a_prior_that_reads_the_records_is_refused():
    with pytest.raises(InvalidInput, match="density must be free of private records"):
        run(LogJoint(density, 2, log_prior=lambda w: -(w - X.mean(0)).square().sum()))


@pytest.mark.parametrize("view", [X[3:], X.T, X.numpy()], ids=["rows", "transposed", "array"])
def test_so_is_one_that_reads_a_view_of_them(view):
    with pytest.raises(InvalidInput, match="density must be free of private records"):
        run(LogJoint(lambda w, x, y: density(w, x, y) + float(view[0, 0]), 2))


def test_what_may_follow_the_records_is_at_most_claimed():
    mean = X.mean(0)
    ledger = run(LogJoint(density, 2, log_prior=lambda w: -(w - mean).square().sum()))
    assert ledger.standing is Standing.CLAIMED
    assert "undeclared_density: mean" in ledger.unsafe


def test_a_declaration_by_name_is_kept_in_the_ledger():
    centre = torch.zeros(2)
    ledger = run(LogJoint(density, 2, log_prior=lambda w: -(w - centre).square().sum(), public=("centre",)))
    assert ledger.standing is best()
    assert any("centre" in sentence for sentence in ledger.assumptions)


def test_a_declaration_of_what_is_not_read_is_refused():
    with pytest.raises(InvalidInput, match="public must be names of what the model reads"):
        run(LogJoint(density, 2, public=("centre",)))


def test_concealed_inference_looks_too():
    mean, ledger = X.mean(0), Ledger()
    model = LogJoint(lambda w, x, y: density(w + mean, x, y), 2, predictor=lambda w, x: x @ w)
    infer_concealed(model, X, Y, learning_rate=1.0, ledger=ledger, **SETTINGS)
    assert ledger.standing is Standing.CLAIMED


class Holder:
    """A likelihood of one's own that holds an array."""

    def __init__(self):
        self.table = np.zeros(3)

    def size(self, features):
        return features

    def log_likelihood(self, w, inputs, targets):
        return density(w, inputs, targets) + float(self.table[0])

    def predict(self, w, inputs):
        return inputs @ w


def test_attributes_of_a_likelihood_are_searched():
    assert run(Holder()).standing is Standing.CLAIMED


def test_functions_that_the_model_calls_are_searched():
    hidden = torch.ones(2)

    def helper(w):
        return (w * hidden).sum()

    ledger = run(LogJoint(lambda w, x, y: density(w, x, y) + helper(w), 2))
    assert "undeclared_density: hidden" in ledger.unsafe
    assert run(LogJoint(lambda w, x, y: torch.relu(density(w, x, y)), 2)).standing is best()
