"""The published calibration of input perturbation is refuted by formula and by an attack."""

import math

import numpy as np
import pytest
import torch

from tacit.data import from_arrays
from tacit.erm import DPLogisticRegression
from tacit.models import mlp
from tacit.noise import SeededStream
from tacit.standing import Standing
from tacit.tradeoff.gaussian import gaussian_delta
from tacit_papers.input_perturbation import comparison, counter_examples, network, tables
from tacit_papers.input_perturbation.tables import load_table, optimality_gap, resplit

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
    monkeypatch.setattr(counter_examples, "_OWN_RUNS", 1)
    first, again = (counter_examples.released(True, 2, 0.5, 1) for _ in range(2))
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
        return {row.quantity.rsplit(": ")[-1]: row.ours for row in counter_examples.LABEL_FLIP.rows("quick", worlds)}

    # Equal worlds refute the claim with probability below 5e-2; the draws are fixed.
    assert rows(3.0)["claim refuted (1 yes, 0 no)"] == 1.0
    assert rows(0.0)["claim refuted (1 yes, 0 no)"] == 0.0
    assert rows(3.0)["epsilon at least, at 95 %"] > 1.0


def test_theory_is_recomputed_from_the_formulas():
    value, n, delta = tables.noise(70000, 123, 0.1), 70000, min(1e-5, 70000**-1.1)
    assert value["paper"] == pytest.approx(50 * math.log(1 / delta) / (n * (n - 1) * 0.1 * 0.1**2))
    assert value["kifer"] == pytest.approx(4 * (8 * math.log(2 / delta) + 0.4) / 0.01)
    assert value["fukuchi"] * n == pytest.approx(value["kifer"])
    for name, size in (("wang", 2 * 50**0.5 / n), ("aggregate", 8**0.5), ("paper_repaired", 2 / n**0.5)):
        assert gaussian_delta(0.1, size / value[name] ** 0.5) == pytest.approx(delta, rel=1e-6)
    assert value["zhang_derived"] < value["zhang"]
    assert value["paper_repaired"] > 100 * value["paper"]
    assert set(value) == set(tables.WORDS)


def test_iris_is_read_as_two_binary_tables():
    setosa, virginica = (load_table(name, None) for name in ("iris_setosa", "iris_virginica"))
    assert len(setosa.y_train) + len(setosa.y_test) == 150
    assert len(virginica.y_train) + len(virginica.y_test) == 100
    assert setosa.y_train.sum() + setosa.y_test.sum() == 50
    assert virginica.y_train.sum() + virginica.y_test.sum() == 50


@pytest.mark.slow
def test_the_figures_show_claimed_and_proven_methods_with_means_over_splits():
    values = [comparison.compared("iris_setosa", "logistic", seed, [0.25]) for seed in (0, 1)]
    assert {row["seed"] for row in values[1]} == {1}
    item = comparison.ITEMS["figure-2"]
    values = [values[0], values[0], values[1], values[1]]
    rows = {row.quantity: row.ours for row in item.rows("quick", values)}
    claimed = [row["accuracy"] for value in values[:2] for row in value if row["variant"] == "paper"]
    assert rows["iris_setosa, epsilon 0.25, claimed: input paper: test accuracy %"] == pytest.approx(50 * sum(claimed))
    figures = item.figures("quick", values)
    assert sorted(figures) == ["figure-2", "figure-2-all-epsilons"]
    drawn = figures["figure-2"]
    places = [drawn.index(f">{words}<") for words in (*comparison._PAPERS.values(), "without privacy")]
    assert places == sorted(places)  # the paper's order in the legend
    assert "Iris: setosa or not" in drawn
    assert "noisy sums of statistics" in figures["figure-2-all-epsilons"]
    gaps = comparison.ITEMS["figure-4"].rows("quick", values)
    assert all(row.ours > -1e-6 for row in gaps)
    begun = item.rows("quick", [values[0], None, None, None])
    assert {row.repeats for row in begun} == {1}
    assert all(row.quantity.startswith("iris_setosa") for row in begun)


def test_accuracies_are_drawn_in_percent_and_the_fit_without_privacy_at_every_epsilon(monkeypatch):
    panels = []
    monkeypatch.setattr(comparison, "panels_svg", lambda found, **_: panels.extend(found) or "")
    row = {"method": "gradient", "variant": "sgd", "standing": "proven"}
    rows = [row | {"epsilon": epsilon, "accuracy": 0.5 + epsilon / 100} for epsilon in (0.01, 0.2, 10.0)]
    bare = row | {"epsilon": None, "accuracy": 0.9, "method": "none"}
    comparison.ITEMS["figure-2"].figures("quick", [[bare, *rows], None, None, None])
    first, wide = panels
    assert first.lines["Bassily, noisy SGD"] == ([0.01, 0.2], [pytest.approx(50.01), pytest.approx(50.2)])
    assert first.lines["without privacy"] == ([0.01, 0.2], [90, 90])
    assert wide.lines["Bassily, noisy SGD"][0] == [0.01, 0.2, 10.0]


@pytest.mark.parametrize("clip", [None, 0.5, 0.1])
def test_clipped_gradients_of_the_network_are_those_of_autograd(clip):
    torch.manual_seed(1)
    model, x, y = mlp(4, 2, hidden=(3,)), torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 1, 0])
    weights = list(model.parameters())
    expected = [torch.zeros_like(weight) for weight in weights]
    for i in range(len(y)):
        found = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]), weights)
        norm = torch.cat([each.ravel() for each in found]).norm()
        factor = 1.0 if clip is None else clip / max(clip, float(norm))
        expected = [total + factor * each for total, each in zip(expected, found, strict=True)]
    with torch.no_grad():
        ours = network.clipped_gradients(weights, x, y, clip)
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_noise_of_the_network_follows_each_formula(monkeypatch):
    """Standard deviations at epsilon .1: formula of Kifer et al., 3 T / n of Zhang et al., T steps of Wang et al."""
    asked = []
    monkeypatch.setattr(network, "_noise", lambda weights, std, stream: asked.append(std) or [0 * w for w in weights])
    table, delta = network._Table(load_table("iris_setosa", None)), 1e-5
    n = len(table.y)
    network._kifer(table, 0.1, delta, SeededStream(0))
    network._zhang(table, table.network(), 0.1, delta, SeededStream(0))
    network._wang(table, 0.1, delta, SeededStream(0))
    kifer, zhang, *wang = asked
    assert kifer == pytest.approx(2 * math.sqrt(8 * math.log(2 / delta) + 0.4) / 0.1)
    assert gaussian_delta(0.1, 3 * 100 / n / zhang) == pytest.approx(delta, rel=1e-4)
    assert len(wang) == 50
    assert gaussian_delta(0.1, 2 * 0.5 * math.sqrt(50) / wang[0]) == pytest.approx(delta, rel=1e-4)


def test_a_network_that_nothing_proves_is_marked_in_every_row_and_dashed():
    rows = [{"method": "none", "epsilon": None, "accuracy": 0.9, "gap": 0.0}]
    rows += [{"method": name, "epsilon": 0.1, "accuracy": 0.8, "gap": 0.1} for name in network.METHODS]
    found = [row.quantity for row in network.ITEM.rows("quick", [rows])]
    assert "iris_setosa, epsilon 0.1, Zhang, output perturbation (claimed): optimality gap" in found
    assert "iris_setosa, epsilon 0.1, Kifer, objective perturbation (claimed): test accuracy %" in found
    assert "iris_setosa, epsilon 0.1, Bassily, noisy SGD: test accuracy %" in found
    drawn = network.ITEM.figures("quick", [rows])["figure-3"]
    assert drawn.count("stroke-dasharray") >= 3
    assert "optimality gap" in drawn


def test_resplit_keeps_every_row_with_its_label():
    x = np.arange(28.0).reshape(14, 2)
    y = np.arange(14) % 2
    dataset = from_arrays(x[:10], y_train=y[:10], x_test=x[10:], y_test=y[10:], classes=[0, 1], bounds=(0, 28))
    again = resplit(dataset, test_fraction=0.5, seed=1)
    assert (len(again.x_train), len(again.x_test)) == (7, 7)
    label = {row.tobytes(): answer for row, answer in zip(x.astype(np.float32), y, strict=True)}
    for rows, answers in ((again.x_train, again.y_train), (again.x_test, again.y_test)):
        assert [label[row.tobytes()] for row in rows] == list(answers)
    assert again.public_facts[0] == "number of rows: 7 for training, 7 for testing"
    assert again.public_facts[1:] == dataset.public_facts[1:]
    assert "seed 1" in again.notes[-1]


def test_the_gap_is_that_of_the_training_records():
    """Shrunk coefficients of a fit with much noise are further from the minimum than those of one with little."""
    x = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    y = (x[:, 0] > 0).astype(int)
    settings = {"delta": 1e-4, "data_bounds": (-1, 1), "classes": [0, 1], "unsafe_seed": 0, "regularization": 0.01}
    noisy, exact = (DPLogisticRegression(epsilon=epsilon, **settings).fit(x, y) for epsilon in (0.5, 1e6))
    assert optimality_gap(exact, x, y) == pytest.approx(0.0, abs=1e-6)
    assert optimality_gap(noisy, x, y) > 1e-3
