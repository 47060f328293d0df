"""Every row of the bad-input table has an answer: here, or in the test that is named for it.

`ROWS` has the rows' first column, word for word; where the table lies beside the checkout, no row of it may be missing.
"""

import ast
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.calibration import noise_multiplier
from tacit.erm import DPLogisticRegression
from tacit.errors import InvalidInput, LeakWarning, TrainingMisuse, UnsupportedModel
from tacit.mechanisms import Gaussian, Laplace
from tacit.tradeoff import Epsilon
from tacit.training import fit, make_private

ROOT = Path(__file__).parents[1]
TABLE = ROOT.parent / "shared" / "bad-input.md"
NUMBERS = "tests/test_bad_input.py::test_numbers_that_break_their_rule"
HERE = "tests/test_bad_input_rows.py::test_"
ROWS = {
    'epsilon -1, 0, NaN, inf, "1"': [NUMBERS],
    "epsilon 1000": [HERE + "epsilon_1000_is_answered"],
    "delta 2, -1e-5, NaN": [NUMBERS],
    "delta 1 / delta 0": [HERE + "the_ends_of_delta"],
    "delta 1e-30": [HERE + "the_ends_of_delta"],
    "delta >= 1/n in training": [HERE + "a_delta_of_one_over_n_is_warned_about"],
    "noise_multiplier negative, NaN, inf": [NUMBERS],
    "noise_multiplier 0": [HERE + "no_noise_must_be_asked_for"],
    "clip_norm <= 0, NaN, inf": [NUMBERS, HERE + "settings_of_fit_with_mistakes"],
    "sample_rate outside (0, 1], steps 1.5 or -5": [NUMBERS],
    "a list of noise multipliers whose length is not steps": [HERE + "lists_of_noise_multipliers"],
    "NaN or inf in a feature table": [HERE + "cells_that_are_not_finite"],
    "a record whose gradient is NaN or inf inside training": [
        "tests/gradients/test_clipped_sum.py::test_a_record_that_is_not_finite_contributes_exactly_nothing",
        "tests/training/test_fit.py::test_a_nan_record_made_by_the_model_never_reaches_the_weights",
    ],
    "empty data, wrong width, lengths that differ, one class only, labels outside the declared classes": [
        HERE + "data_of_the_wrong_form",
        HERE + "one_class_only",
    ],
    "string labels": [HERE + "string_labels_of_declared_classes"],
    "bounds or classes not declared and thus read from private data": [HERE + "what_is_not_declared_is_a_leak"],
    "BatchNorm or another layer that mixes examples": [HERE + "batch_normalisation_is_named"],
    "model in eval mode, optimizer of another model, backward called twice, the original loader iterated": [
        HERE + "loops_with_mistakes",
        HERE + "an_optimizer_of_another_model",
    ],
    "a loss that returns one number, or a mean where a per-example vector is needed": [
        HERE + "settings_of_fit_with_mistakes",
        HERE + "loops_with_mistakes",
    ],
    "unknown accountant, attack, data set, preset, TOML key": [
        "tests/test_bad_input.py::test_configurations_with_mistakes",
        "tests/test_bad_input.py::test_account_arguments_with_mistakes",
        "tests/attacks/test_loss_threshold.py::test_unknown_attacks_get_the_list",
        "tests/data/test_data_files.py::test_unknown_names_list_the_known_and_the_nearest",
    ],
    "data file missing, truncated or with the wrong checksum": ["tests/data/test_data_files.py"],
    "interrupted write, full disk, killed process": [
        "tests/test_atomic.py",
        "tests/runs/test_kill_points.py::test_a_killed_run_ends_in_a_card_and_understates_nothing",
    ],
    "predict before fit": [HERE + "prediction_before_fit"],
    "budget used up": ["tests/training/test_make_private.py"],
    "attack scores with NaN, one class only, empty": [HERE + "scores_that_no_attack_can_use"],
}

X, Y = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 2
SETTINGS = {"clip_norm": 1.0, "noise_multiplier": 1.0}


def _losses(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def _fit(inputs=X, targets=Y, model=None, **changes):
    model = model or nn.Linear(4, 2)
    settings = SETTINGS | {"loss": _losses, "batch_size": 16, "epochs": 1, "delta": 1e-5} | changes
    return fit(model, inputs, targets, optimizer=torch.optim.SGD(model.parameters(), 0.1), **settings)


def _regression(**changes):
    return DPLogisticRegression(**({"classes": [0, 1], "data_bounds": (-5, 5)} | changes))


def _table():
    features = np.random.default_rng(0).normal(size=(60, 3))
    return features, (features[:, 0] > 0).astype(int)


def test_every_row_of_the_table_has_a_test_that_exists():
    if TABLE.exists():
        lines = [line.split("|")[1].strip() for line in TABLE.read_text().splitlines() if line.startswith("| ")]
        assert set(lines) - {"input"} == set(ROWS)
    for named in (test for tests in ROWS.values() for test in tests):
        file, _, name = named.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in functions if name else functions


def test_epsilon_1000_is_answered():
    found = noise_multiplier(Epsilon(1000.0, 1e-5), sample_rate=0.01, steps=100).value
    reached = accountant("pld")(Gaussian(found).poisson(0.01) * 100).epsilon(1e-5)
    assert reached <= 1000
    assert reached == pytest.approx(1000, rel=1e-6)


def test_the_ends_of_delta():
    curve = accountant("pld")
    assert curve(Gaussian(1.0)).epsilon(1.0) == 0
    assert curve(Gaussian(1.0)).epsilon(0.0) == math.inf
    assert curve(Laplace(1.0)).epsilon(0.0) == pytest.approx(1, rel=1e-6)
    epsilon = curve(Gaussian(1.0)).epsilon(1e-30)
    with mpmath.workdps(50):
        delta = mpmath.ncdf(0.5 - epsilon) - mpmath.exp(epsilon) * mpmath.ncdf(-0.5 - epsilon)
    assert float(delta) == pytest.approx(1e-30, rel=1e-6)


def test_a_delta_of_one_over_n_is_warned_about():
    with pytest.warns(UserWarning, match="not below 1/n for n=64"):
        _fit(delta=0.1)


def test_no_noise_must_be_asked_for():
    with pytest.raises(InvalidInput, match="unsafe_no_noise"):
        Gaussian(0.0)
    assert accountant("pld")(Gaussian(0.0, unsafe_no_noise=True)).epsilon(1e-5) == math.inf


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clip_norm": math.nan}, "clip_norm must be in .*got nan"),
        ({"clip_norm": -1.0}, r"clip_norm must be in .*got -1\.0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be in .*got -1"),
        ({"loss": F.cross_entropy}, r'loss must be one value per example.*reduction="none"'),
        ({"accountant": "pdl"}, "accountant must be one of .*Did you mean 'pld'"),
    ],
)
def test_settings_of_fit_with_mistakes(changes, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        _fit(**changes)


def test_lists_of_noise_multipliers():
    rule = r"noise_multiplier must be one number or a list of \d+ \(one for each step\)"
    with pytest.raises(InvalidInput, match=rule):
        _fit(noise_multiplier=[1.0, 1.0])
    with pytest.raises(InvalidInput, match=rule):
        Ledger.from_spec({"mechanisms": [{"type": "gaussian", "noise_multiplier": [1.0, 2.0], "steps": 3}]})


def test_cells_that_are_not_finite():
    bad = X.clone()
    bad[3] = math.nan
    with pytest.raises(InvalidInput, match="rows 3, columns 0, 1, 2, 3"):
        _fit(bad)
    features, labels = _table()
    features[7, 1] = math.inf
    with pytest.raises(InvalidInput, match="rows 7, columns 1"):
        _regression().fit(features, labels)


@pytest.mark.parametrize(
    ("inputs", "targets", "sentence"),
    [
        (X[:0], Y[:0], "at least one record; got 0"),
        (torch.randn(64, 5), Y, r"shape that the model takes; got \[\(5,\)\]"),
        (X, Y[:10], r"of equal length; got \[64, 10\]"),
        (X, Y + 5, r"labels in 0\.\.1"),
    ],
)
def test_data_of_the_wrong_form(inputs, targets, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        _fit(inputs, targets)


def test_one_class_only():
    features, labels = _table()
    assert set(_regression(epsilon=1.0).fit(features, 0 * labels).predict(features)) <= {0, 1}
    with pytest.raises(InvalidInput, match=r"declared classes \[0, 1\]"):
        _regression().fit(features, labels + 3)


def test_string_labels_of_declared_classes():
    features, labels = _table()
    model = _regression(classes=["no", "yes"]).fit(features, np.array(["no", "yes"])[labels])
    assert set(model.predict(features)) <= {"no", "yes"}


def test_what_is_not_declared_is_a_leak():
    with pytest.warns(LeakWarning, match="classes came from private data"):
        _regression(classes=None).fit(*_table())
    with pytest.raises(InvalidInput, match="classes"):
        _regression(classes=None, strict=True).fit(*_table())


def test_batch_normalisation_is_named():
    with pytest.raises(UnsupportedModel, match=r"layer '1' \(BatchNorm1d\) mixes.*GroupNorm\(1, 4\)"):
        _fit(model=nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def _original_loader(private, loader):
    for inputs, targets in loader:
        _losses(private.model(inputs), targets).backward()


def _eval_mode(private, _):
    private.model.eval()
    for inputs, targets in private.loader:
        _losses(private.model(inputs), targets).backward()


def _mean(private, _):
    for inputs, targets in private.loader:
        _losses(private.model(inputs), targets).mean().backward()


def _twice(private, _):
    for inputs, targets in private.loader:
        losses = _losses(private.model(inputs), targets)
        losses.backward()
        losses.backward()


def _private(optimized=None):
    model = nn.Linear(4, 2)
    loader = DataLoader(TensorDataset(X, Y), batch_size=16)
    optimizer = torch.optim.SGD((optimized or model).parameters(), 0.1)
    return make_private(model, optimizer, loader, steps=4, **SETTINGS), loader


@pytest.mark.parametrize(
    ("loop", "sentence"),
    [
        (_original_loader, "Iterate the loader that make_private returned"),
        (_eval_mode, r"got eval mode. Call private.model.train\(\)"),
        (_mean, r"one value per example, shape \(batch,\); got 'shape \(\)'"),
        (_twice, "backward must be called once for each batch"),
    ],
)
def test_loops_with_mistakes(loop, sentence):
    with pytest.raises((TrainingMisuse, InvalidInput), match=sentence):
        loop(*_private())


def test_a_wrong_shape_of_losses_does_not_tell_how_many_records_were_drawn():
    def vectors(private, _):
        for inputs, _ in private.loader:
            private.model(inputs).backward()

    with pytest.raises(InvalidInput, match=r"got 'shape \(batch, 2\)'"):
        vectors(*_private())


def test_an_optimizer_of_another_model():
    with pytest.raises(TrainingMisuse, match="optimizer must hold the parameters of this model"):
        _private(nn.Linear(4, 2))


def test_prediction_before_fit():
    with pytest.raises(NotFittedError):
        _regression().predict(_table()[0])


@pytest.mark.parametrize("members", [[], [math.nan, 1.0]])
def test_scores_that_no_attack_can_use(members):
    with pytest.raises(InvalidInput, match=r"members must be .*got"):
        Scores("loss_threshold", np.array(members), np.array([0.0, 1.0]), 0.5)
    with pytest.raises(InvalidInput, match=r"non_members must be .*got"):
        Scores("loss_threshold", np.array([0.0, 1.0]), np.array(members), 0.5)
