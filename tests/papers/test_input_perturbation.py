"""The published calibration of input perturbation is refuted by formula and by an attack."""

import math

import numpy as np
import pytest

from tacit.papers.input_perturbation import comparison, counter_examples, label_flip, theory
from tacit.standing import Standing
from tacit.tradeoff.gaussian import gaussian_delta

# soundness.md S2: (n, claimed) -> exact epsilon, the c that would be needed.
S2 = {
    (150, 0.25): (0.44, 2.9),
    (984, 0.1): (0.46, 16),
    (45222, 0.1): (3.81, 759),
    (70000, 0.1): (4.91, 1220),
    (70000, 0.25): (14.8, 1400),
}


@pytest.mark.parametrize("cell", S2)
def test_counter_examples_are_those_of_the_review(cell):
    value = counter_examples.exact(*cell)
    epsilon, constant = S2[cell]
    assert value["epsilon"] == pytest.approx(epsilon, rel=0.012)
    assert value["constant"] == pytest.approx(constant, rel=0.02)
    delta = min(1e-5, cell[0] ** -1.1)
    assert gaussian_delta(value["epsilon"], value["mu"]) == pytest.approx(delta, rel=1e-6)


def test_counter_example_rows_carry_their_standing():
    rows = {row.quantity: row for row in counter_examples.ITEM.rows("quick", [counter_examples.exact(70000, 0.25)])}
    assert rows["n 70000, claimed 0.25: epsilon as claimed"].standing is Standing.CLAIMED
    assert rows["n 70000, claimed 0.25: epsilon, exact"].standing is Standing.PROVEN
    assert rows["n 70000, claimed 0.25: mu of a perturbed record itself"].ours > 700


def test_two_releases_differ_and_a_seed_repeats_them(monkeypatch):
    monkeypatch.setattr(label_flip, "_OWN_RUNS", 1)
    first, again = (label_flip.released(True, 2, 0.5, 1) for _ in range(2))
    assert first == again
    assert first["scores"][0] != first["scores"][1]
    assert first["mu"] == pytest.approx(1.068, abs=0.001)


def test_the_audit_refutes_the_claim_from_separated_worlds_and_not_from_equal_ones():
    draw = np.random.default_rng(0)

    def rows(shift):
        worlds = [
            {"scores": (draw.normal(size=100) + shift * flipped).tolist(), "threshold": shift / 2, "mu": 1.0}
            for flipped in (True, False)
        ]
        return {row.quantity.rsplit(": ")[-1]: row.ours for row in label_flip.ITEM.rows("quick", worlds)}

    # Equal worlds refute the claim with probability below 5e-2; the draws are fixed.
    assert rows(3.0)["claim refuted (1 yes, 0 no)"] == 1.0
    assert rows(0.0)["claim refuted (1 yes, 0 no)"] == 0.0
    assert rows(3.0)["epsilon at least, at 95 %"] > 1.0


def test_theory_is_recomputed_from_the_formulas():
    value, n, delta = theory.noise(70000, 123, 0.1), 70000, min(1e-5, 70000**-1.1)
    assert value["paper"] == pytest.approx(50 * math.log(1 / delta) / (n * (n - 1) * 0.1 * 0.1**2))
    assert value["kifer"] == pytest.approx(4 * (8 * math.log(2 / delta) + 0.4) / 0.01)
    assert value["fukuchi"] * n == pytest.approx(value["kifer"])
    for name, size in (("wang", 2 * 50**0.5 / n), ("aggregate", 8**0.5), ("paper_repaired", 2 / n**0.5)):
        assert gaussian_delta(0.1, size / value[name] ** 0.5) == pytest.approx(delta, rel=1e-6)
    assert value["zhang_derived"] < value["zhang"]
    assert value["paper_repaired"] > 100 * value["paper"]
    assert set(value) == set(theory.WORDS)


def test_iris_is_read_as_two_binary_tables():
    setosa, virginica = (comparison._load(name, None) for name in ("iris_setosa", "iris_virginica"))
    assert len(setosa.y_train) + len(setosa.y_test) == 150
    assert len(virginica.y_train) + len(virginica.y_test) == 100
    assert setosa.y_train.sum() + setosa.y_test.sum() == 50
    assert virginica.y_train.sum() + virginica.y_test.sum() == 50


@pytest.mark.slow
def test_the_figures_show_claimed_and_proven_methods_with_means_over_splits():
    values = [comparison.compared("iris_setosa", "logistic", seed, [0.25]) for seed in (0, 1)]
    assert {row["seed"] for row in values[1]} == {1}
    item = next(item for item in comparison.ITEMS if item.name == "figure-2")
    values = [values[0], values[0], values[1], values[1]]
    rows = {row.quantity: row.ours for row in item.rows("quick", values)}
    claimed = [row["accuracy"] for value in values[:2] for row in value if row["variant"] == "paper"]
    assert rows["iris_setosa, epsilon 0.25, claimed: input paper: test accuracy %"] == pytest.approx(50 * sum(claimed))
    figures = item.figures("quick", values)
    assert sorted(figures) == ["figure-2-iris_setosa", "figure-2-iris_virginica"]
    assert "claimed: input paper" in figures["figure-2-iris_setosa"]
    assert "without privacy" in figures["figure-2-iris_setosa"]
    gaps = next(item for item in comparison.ITEMS if item.name == "figure-4").rows("quick", values)
    assert all(row.ours > -1e-6 for row in gaps)
    begun = item.rows("quick", [values[0], None, None, None])
    assert {row.repeats for row in begun} == {1}
    assert all(row.quantity.startswith("iris_setosa") for row in begun)


def test_accuracies_are_drawn_in_percent_and_the_fit_without_privacy_at_every_epsilon(monkeypatch):
    drawn = {}
    monkeypatch.setattr(comparison, "lines_svg", lambda lines, **_: drawn.update(lines) or "")
    item = next(each for each in comparison.ITEMS if each.name == "figure-3")
    row = {"method": "gradient", "variant": "sgd", "standing": "proven"}
    rows = [row | {"epsilon": epsilon, "accuracy": 0.5 + epsilon} for epsilon in (0.01, 0.2)]
    bare = row | {"epsilon": None, "accuracy": 0.9, "method": "none"}
    item.figures("quick", [[bare, *rows], None])
    assert drawn["gradient sgd"] == ([0.01, 0.2], [pytest.approx(51), pytest.approx(70)])
    assert drawn["without privacy"] == ([0.01, 0.2], [90, 90])
