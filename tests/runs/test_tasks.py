"""Runs on ratings, texts and regressions: the measure is named and right wherever it is shown."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit import data
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.runs import audit_run, preset_names, read_config, train
from tacit.runs.builders import evaluator
from tacit.runs.decision_metrics import constant_test, measure_of, metric_on_test

PUBLISHED = {
    # Table 1 row 1, Tables 2 to 4 of Bu et al. 2020: mu and epsilon by the CLT, epsilon by the moments accountant.
    "mnist": (0.23, 0.83, 1.19),
    "adult": (2.03, 10.20, 14.70),
    "imdb": (2.07, 10.43, 15.24),
    "imdb_literal": (2.07, 10.43, 15.24),
    "movielens": (1.94, 10.61, 15.39),
}


def ratings(stars):
    codes = np.arange(2 * len(stars)).reshape(-1, 2)
    classes = ("1", "2", "3", "4", "5")
    return data.from_arrays(codes, y_train=stars, classes=classes, task="ratings", bounds=(0, codes.max()), codes=True)


def test_rmse_of_the_expected_rating():
    dataset = ratings(np.array([1, 2, 3, 4, 5, 5, 3, 1, 2, 4]))
    assert measure_of(dataset) == "rmse"
    chances = np.array([[0.5, 0, 0, 0, 0.5], [0, 1, 0, 0, 0]])
    # Expected ratings 3 and 2 against 4 and 2 stars (indices 3 and 1).
    two = replace(dataset, y_test=np.array([3, 1]))
    assert metric_on_test(two, chances) == pytest.approx(np.sqrt(0.5))
    stars = 1 + dataset.y_train
    expected = np.sqrt(np.mean((1 + dataset.y_test - stars.mean()) ** 2))
    assert constant_test(dataset) == pytest.approx(expected)


def test_a_run_is_evaluated_on_held_out_rows():
    """Training labels are all wrong for the model, held-out ones all right."""
    x = np.array([[0.0], [1.0]] * 20, dtype=np.float32)
    right = np.tile([0, 1], 20)
    dataset = data.from_arrays(x, y_train=1 - right, x_test=x, y_test=right, classes=(0, 1), bounds=(0.0, 1.0))
    model = torch.nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.bias.copy_(torch.tensor([0.5, -0.5]))
    assert evaluator(dataset)(model) == {"test": 1.0}


@pytest.mark.slow
def test_a_regression_from_data_to_card(tmp_path, capsys, original_files):
    (tmp_path / "shells.toml").write_text(
        'dataset = "abalone"\nmodel = "linear"\nepsilon = 4.0\ndelta = 1e-4\nepochs = 20\nbatch_size = 256\n'
        "learning_rate = 0.1\n"
    )
    arguments = [
        "train",
        str(tmp_path / "shells.toml"),
        "--data-dir",
        str(original_files),
        "--out",
        str(tmp_path / "r"),
    ]
    assert main(arguments) == 0
    assert "test RMSE" in capsys.readouterr().out
    card = json.loads((tmp_path / "r" / "card.json").read_text())
    assert card["measure"] == "rmse"
    # In rings; predicting the mean leaves 3.2, ordinary least squares about 2.2.
    assert card["metrics"]["test"] < 0.95 * card["metrics"]["constant_test"]
    assert card["audits"][0]["attack"] == "loss_threshold"
    assert "Test RMSE" in (tmp_path / "r" / "card.html").read_text()
    again = audit_run(tmp_path / "r", data_dir=original_files, attacks=["loss_threshold"]).results
    assert again[0].advantage == card["audits"][0]["advantage"]


@pytest.mark.slow
def test_ratings_and_words_from_data_to_card(tmp_path, original_files):
    run = train(read_config("movielens", {"epochs": 2.0}), data_dir=original_files, out=tmp_path / "m")
    assert run.card.measure == "rmse"
    assert run.card.metrics["test"] < run.card.metrics["constant_test"]
    assert run.audits[0].attack == "loss_threshold"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": "movielens", "model": "mlp"}, "must be 'recommender'; got 'mlp'"),
        ({"dataset": "movielens", "model": "text"}, "needs word numbers with classes"),
        ({"dataset": "abalone", "model": "recommender"}, "needs user-item ratings"),
        ({"dataset": "abalone", "model": "convnet"}, "must be 'mlp' or 'linear'; got 'convnet'"),
    ],
)
def test_a_model_of_another_kind_of_data_is_refused(changes, sentence, tmp_path, original_files):
    with pytest.raises(InvalidInput, match=sentence):
        train(read_config("digits", {"delta": 1e-6} | changes), data_dir=original_files, out=tmp_path)


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_complete(name):
    config = read_config(name, {})
    facts = data.describe(config.dataset)
    assert config.name == name
    assert config.batch_size < facts["rows"]["train"]
    assert config.delta < 1 / facts["rows"]["train"]


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_presets_cost_what_the_paper_prints(name, published):
    from tacit.accounting import accountant
    from tacit.mechanisms import Gaussian

    config = read_config(name, {})
    rate = config.batch_size / data.describe(config.dataset)["rows"]["train"]
    ran = Gaussian(config.noise_multiplier).poisson(rate) * round(config.epochs / rate)
    clt, moments = (accountant(kind)(ran) for kind in ("clt", "moments"))
    mu, epsilon, moments_epsilon = published
    assert float(clt.mu()) == pytest.approx(mu, abs=0.006)
    assert float(clt.epsilon(config.delta)) == pytest.approx(epsilon, abs=0.02)
    assert float(moments.epsilon(config.delta)) == pytest.approx(moments_epsilon, abs=0.02)
