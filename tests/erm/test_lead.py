"""The private measurement of a model's lead over the constant answer, and the warning that follows from it."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from tacit.accounting import Ledger
from tacit.erm import DPLinearRegression, DPLogisticRegression, linear_model
from tacit.erm.gradient import lead_of_classes, lead_of_numbers
from tacit.erm.release import Terms
from tacit.errors import UtilityWarning
from tacit.tradeoff import Mu

RNG = np.random.default_rng(5)


class Recorded:
    """Terms that add no noise and keep what would have been released."""

    def __init__(self):
        self.values = []

    def charge(self, mechanism, note, *, exact):
        self.mechanism = mechanism

    def noisy(self, values, *, std):
        self.values.append(values.copy())
        self.std = std
        return values


@pytest.mark.parametrize("measured", [lead_of_classes, lead_of_numbers])
def test_no_record_moves_what_is_released_by_more_than_the_noise_covers(measured):
    scores = RNG.normal(size=(300, 1)) * 3
    targets = RNG.integers(0, 2, 300) if measured is lead_of_classes else RNG.uniform(-1, 1, 300)
    seen = []
    for rows in (slice(None), *(np.arange(300) != each for each in range(60))):
        terms = Recorded()
        measured(scores[rows], targets[rows], terms, multiplier=2.0, size=300)
        seen.append(terms.values[0])
    moved = max(float(np.linalg.norm(seen[0] - each)) for each in seen[1:])
    assert 0.5 * terms.std < 2 * moved <= terms.std * (1 + 1e-12)  # the noise is 2 sensitivities


def test_the_lead_is_that_of_the_records():
    x = RNG.uniform(-1, 1, (4000, 2))
    y = (x[:, 0] > 0.3).astype(int)
    model = DPLogisticRegression(epsilon=3.0, delta=1e-5, data_bounds=(-1, 1), classes=[0, 1]).fit(x, y)
    exact = model.score(x, y) - max(y.mean(), 1 - y.mean())
    assert model.lead_.value == pytest.approx(exact, abs=5 * model.lead_.noise)
    answers = x[:, 0] / 2 + RNG.normal(0, 0.1, 4000)
    line = DPLinearRegression(epsilon=3.0, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-1, 1)).fit(x, answers)
    gain = np.var(answers) - np.mean((answers - line.predict(x)) ** 2)
    assert line.lead_.value == pytest.approx(gain, abs=5 * line.lead_.noise)


@pytest.mark.parametrize(
    ("learnable", "records", "told"), [(True, 4000, None), (False, 4000, "lead"), (True, 60, "60 records times mu")]
)
def test_a_model_near_the_constant_answer_is_told(learnable, records, told):
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (records, 6))
    y = ((x[:, 0] if learnable else draw.normal(size=records)) > 0.6).astype(int)
    model = DPLogisticRegression(epsilon=1.0, delta=1e-5, data_bounds=(-1, 1), classes=[0, 1], unsafe_seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y)
    found = [str(each.message) for each in caught if each.category is UtilityWarning]
    assert bool(found) == (told is not None)
    assert all(told in each for each in found)
    assert all(each.filename == __file__ for each in caught if each.category is UtilityWarning)


def test_the_measurement_is_paid_from_the_budget_of_the_fit():
    ledger = Ledger(relation="zero_out")
    terms = Terms(Mu(1.0), ledger, DPLogisticRegression()._stream())
    lead_of_classes(np.ones((10, 1)), np.ones(10), terms, multiplier=4.0, size=10)
    assert [(entry.note, entry.mechanism.noise_multiplier) for entry in ledger.entries] == [
        ("lead over the constant answer", 4.0)
    ]
    assert math.isfinite(float(ledger.steps))


def test_steps_that_err_more_than_the_mean_give_the_mean(monkeypatch):
    """Answers of a narrow spread in a wide declared range, as wages: noise on the slopes is larger than they are."""
    x, y = RNG.uniform(-1, 1, (2000, 8)), RNG.normal(600.0, 450.0, 2000).clip(0, 20_000)
    model = DPLinearRegression(epsilon=0.5, delta=1e-5, data_bounds=(-1, 1), target_bounds=(0, 20_000))
    measured = linear_model.lead_of_numbers
    monkeypatch.setattr(linear_model, "lead_of_numbers", lambda *a, **k: replace(measured(*a, **k), value=-0.01))
    with pytest.warns(UtilityWarning, match="near the mean"):
        model.fit(x, y)
    assert not np.any(model.coef_)
    assert model.predict(x) == pytest.approx(10_000 * (1 + model.lead_.mean))
