"""Private tuning: the total, what is kept, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import law_of
from tacit.noise import SecureStream, SeededStream
from tacit.runs import read_config
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.tuning import PrivateSearchCV, space_of, tune
from tacit.tuning.search_state import Standings, best_trial, draw_trials

SHORT = {"epochs": 1.0, "attacks": ()}


def test_the_best_of_a_secret_number_of_trials_is_kept_and_every_other_one_forgotten() -> None:
    stream, runs = SeededStream(5), []

    def run() -> tuple[float, int]:
        score = float(len(runs) * 7 % 5) if len(runs) % 4 else float("nan")
        runs.append(score)
        return score, len(runs) - 1

    standings = Standings(draw_trials(law_of("geometric", trials=12), stream))
    best = best_trial(standings, stream, run)
    finite = [-np.inf if np.isnan(score) else score for score in runs]
    assert finite[best] == max(finite)
    assert standings.kept == [(runs[best], best)]
    assert len(runs) == standings.trials


def test_ties_are_broken_by_a_fair_draw() -> None:
    # 1,500 searches of trials that all score alike: each place is chosen evenly given K; alarm below 1e-6.
    stream, firsts, expected = SeededStream(6), 0, 0.0
    law = law_of("geometric", trials=3)
    for _ in range(1500):
        made: list[int] = []

        def run(made: list[int] = made) -> tuple[float, int]:
            made.append(len(made))
            return 1.0, made[-1]

        firsts += best_trial(Standings(draw_trials(law, stream)), stream, run) == 0
        expected += 1 / len(made)
    assert abs(firsts - expected) < 5 * np.sqrt(expected)


def test_a_law_without_a_sampler_is_refused() -> None:
    with pytest.raises(InvalidInput):
        draw_trials(law_of(2.0, trials=5), SecureStream())
    assert draw_trials(law_of("poisson", trials=5), SecureStream()) >= 0


@pytest.mark.slow
def test_a_search_costs_its_target_and_its_folder_tells_nothing_of_other_trials(tmp_path) -> None:
    space = {"learning_rate": [0.25, 1.0], "clip_norm": [1.0]}
    found = tune("digits", space, target=Epsilon(3.0, 1e-4), trials=3, overrides=SHORT, out=tmp_path / "run")
    total = found.tradeoff.epsilon(1e-4)
    assert found.tradeoff.standing is Standing.PROVEN
    assert total.lower < total <= 3.0
    ledger = Ledger.load(tmp_path / "run" / "ledger.json")
    assert accountant("pld")(ledger).epsilon(1e-4) == total
    assert ledger.steps == 1
    names = {path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
    told = {"card.html", "card.json", "config.json", "ledger.json", "model.safetensors", "preprocessing.json"}
    assert names <= told | {"signature.json"}
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["wall_seconds"] == 0.0
    assert (
        json.loads((tmp_path / "run" / "config.json").read_text())["learning_rate"] == found.settings["learning_rate"]
    )
    steps = {fact["times"] for fact in card["facts"]}
    assert max(steps) <= 40  # Of one trial: one epoch of some 11 steps, so no sum over trials.


@pytest.mark.parametrize(
    "wrong",
    [
        {"trials": 1},
        {"law": -1.0},
        {"law": "uniform"},
        {"space": {}},
        {"space": {"learning_rate": []}},
        {"space": {"epsilon": [1.0, 2.0]}},
        {"validation": "training"},
        {"validation_share": 0.0},
        {"target": 3.0},
        {"overrides": {"method": "vi"}},
        {"overrides": {"sampling": {"type": "shuffled"}}},
    ],
)
def test_what_no_theorem_covers_is_refused_before_any_training(wrong, tmp_path) -> None:
    settings = {"target": Epsilon(3.0, 1e-4), "overrides": {}} | wrong
    settings["overrides"] = SHORT | settings["overrides"]
    with pytest.raises(InvalidInput):
        tune("digits", out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_the_space_holds_no_setting_that_decides_the_cost() -> None:
    config = read_config("digits", {"epsilon": 3.0})
    assert [len(each) for each in space_of(config).values.values()] == [4, 2]
    for name in ("noise_multiplier", "delta", "relation", "table", "dataset"):
        with pytest.raises(InvalidInput):
            space_of(config, {name: [1.0]})


@pytest.mark.slow
def test_private_search_has_scikit_learns_interface_and_one_entry_in_its_ledger() -> None:
    from tacit.erm import DPLogisticRegression

    generator = np.random.default_rng(0)
    x = generator.uniform(0, 1, (400, 3))
    y = (x[:, 0] > 0.5).astype(int)
    model = DPLogisticRegression(classes=[0, 1], data_bounds=(0.0, 1.0), public_size=400)
    search = PrivateSearchCV(model, {"regularization": [0.01, 0.1]}, epsilon=3.0, delta=1e-5, trials=3, unsafe_seed=1)
    search.fit(x, y)
    assert search.predict(x).shape == (400,)
    assert set(search.best_params_) == {"regularization"}
    assert search.ledger_.steps == 1
    assert float(accountant("pld")(search.ledger_).epsilon(1e-5)) <= 3.0
    assert not hasattr(search, "cv_results_")
    assert search.ledger_.standing is Standing.CLAIMED  # The seed.
    for wrong in ({"distributions": {"epsilon": [1.0]}}, {"distributions": {}}, {"estimator": object()}):
        with pytest.raises(InvalidInput):
            PrivateSearchCV(**{"estimator": model, "distributions": {"regularization": [0.1]}} | wrong).fit(x, y)
