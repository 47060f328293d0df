"""Calibration ends on the safe side of every target, for every parameter."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import accountant
from tacit.accounting.pld.accountant import Pld
from tacit.calibration import largest_sample_rate, largest_steps, noise_multiplier, parameter_of_spec, smallest
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Laplace
from tacit.tradeoff import Advantage, Epsilon, Errors, GaussianCurve, Mu
from tacit.tradeoff.gaussian import gaussian_mu

TARGETS = [Epsilon(1.5, 1e-5), Advantage(0.1), Mu(0.5), Errors(alpha=0.05, beta=0.85)]


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("target", "name"),
    [(target, name) for name in ("pld", "rdp", "clt") for target in TARGETS] + [(TARGETS[0], "zcdp")],
    ids=str,
)
def test_the_target_is_met_and_hardly_less_noise_would_do(target, name):
    found = noise_multiplier(target, sample_rate=0.02, steps=500, accountant=name)
    assert target.met(found.guarantee)
    less = accountant(name)(Gaussian(found.value * (1 - 1e-5)).poisson(0.02) * 500)
    assert not target.met(less)


@settings(max_examples=40, deadline=None)
@given(st.floats(-2, 3), st.floats(-12, -2), st.integers(1, 10**6))
def test_unsampled_gaussians_against_the_closed_form(log_epsilon, log_delta, steps):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    found = noise_multiplier(Epsilon(epsilon, delta), steps=steps, accountant="clt")
    assert found.value == pytest.approx(math.sqrt(steps) / gaussian_mu(epsilon, delta), rel=1e-6)
    assert found.guarantee.epsilon(delta) <= epsilon


def test_less_noise_at_the_same_epsilon_as_bu_et_al_solve_it():
    """Equations 7-8: sigma-tilde 1.06 and .638 by the CLT at the moments accountant's epsilon."""
    for sigma, epochs, published in ((1.3, 20, 1.06), (0.7, 70, 0.638)):
        rate = 256 / 60000
        steps = round(epochs / rate)
        epsilon = float(accountant("moments")(Gaussian(sigma).poisson(rate) * steps).epsilon(1e-5))
        found = noise_multiplier(Epsilon(epsilon, 1e-5), sample_rate=rate, steps=steps, accountant="clt")
        assert found.value == pytest.approx(published, abs=5e-3 if published > 1 else 6e-4)


@pytest.mark.parametrize(("sigma", "epochs", "sound"), [(1.3, 20, 1.0854), (0.7, 70, 0.6556)])
def test_less_noise_at_the_same_epsilon_soundly(sigma, epochs, sound):
    """The soundness review's repair of the same equations: 1.0854 and .6556 with the exact accountant."""
    rate = 256 / 60000
    steps = round(epochs / rate)
    epsilon = float(accountant("moments")(Gaussian(sigma).poisson(rate) * steps).epsilon(1e-5))
    found = noise_multiplier(Epsilon(epsilon, 1e-5), sample_rate=rate, steps=steps)
    assert round(found.value, 4) == sound
    assert found.guarantee.upper.epsilon(1e-5) <= epsilon


@pytest.mark.slow
def test_steps_and_sample_rate():
    target = Epsilon(2.0, 1e-5)
    steps = largest_steps(target, lambda count: Gaussian(1.0).poisson(0.01) * count, accountant="rdp")
    judge = accountant("rdp")
    assert judge(Gaussian(1.0).poisson(0.01) * int(steps.value)).epsilon(1e-5) <= 2.0
    assert judge(Gaussian(1.0).poisson(0.01) * (int(steps.value) + 1)).epsilon(1e-5) > 2.0
    rate = largest_sample_rate(target, lambda rate: Gaussian(1.0).poisson(rate) * 1000, accountant="rdp")
    assert judge(Gaussian(1.0).poisson(rate.value) * 1000).epsilon(1e-5) <= 2.0
    assert judge(Gaussian(1.0).poisson(rate.value * 1.001) * 1000).epsilon(1e-5) > 2.0
    assert largest_sample_rate(target, lambda rate: Gaussian(50.0).poisson(rate), accountant="rdp").value == 1.0


def test_an_unreachable_target_is_refused():
    with pytest.raises(InvalidInput, match="nothing up to"):
        noise_multiplier(Advantage(1e-12), steps=10**9, accountant="clt")
    with pytest.raises(InvalidInput, match="within reach of a single step"):
        largest_steps(Epsilon(0.1, 1e-5), lambda count: Gaussian(1.0) * count, accountant="zcdp")
    with pytest.raises(InvalidInput, match="accountant must be one of"):
        noise_multiplier(Epsilon(1, 1e-5), accountant="pdl")


def test_any_parameter_can_be_calibrated():
    found = smallest("scale", lambda scale: Laplace(scale) * 4, Epsilon(2.0, 0.0), accountant="naive")
    assert found.value == pytest.approx(2.0, rel=1e-6)


def _spec(tmp_path, **row):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"mechanisms": [{"type": "gaussian", "sample_rate": 0.01, "steps": 1000} | row]}))
    return path


def test_command_line_prints_value_and_guarantee(tmp_path, capsys):
    path = _spec(tmp_path, noise_multiplier=None)
    assert main(["calibrate", str(path), "--epsilon", "2", "--delta", "1e-5", "--accountant", "rdp", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["parameter"] == "noise_multiplier"
    assert answer["guarantee"]["epsilon"] <= 2.0
    assert answer["guarantee"]["epsilon"] == pytest.approx(2.0, rel=1e-5)
    filled = _spec(tmp_path, noise_multiplier=answer["value"])
    assert main(["account", str(filled), "--delta", "1e-5", "--accountant", "rdp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["epsilon"] == pytest.approx(answer["guarantee"]["epsilon"])


@pytest.mark.parametrize(
    ("row", "arguments", "sentence"),
    [
        ({"noise_multiplier": 1.0}, ["--mu", "1"], "is null; got 'no null'"),
        ({"noise_multiplier": None}, [], "exactly one of epsilon"),
        ({"noise_multiplier": None}, ["--epsilon", "1"], "delta must be given with epsilon"),
        ({"noise_multiplier": None}, ["--epsilon", "nan", "--delta", "1e-5"], "epsilon must be in"),
        ({"noise_multiplier": None}, ["--mu", "1", "--advantage", "0.1"], "exactly one of epsilon"),
        ({"noise_multiplier": None, "type": None}, ["--mu", "1"], "got 'noise_multiplier, type'"),
    ],
)
def test_command_line_reports_mistakes_in_one_sentence(row, arguments, sentence, tmp_path, capsys):
    assert main(["calibrate", str(_spec(tmp_path, **row)), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_an_end_of_the_search_is_no_answer():
    with pytest.raises(InvalidInput, match="Any number of steps meets it"):
        largest_steps(Epsilon(2.0, 1e-5), lambda steps: Gaussian(1e6).poisson(1e-6) * steps, accountant="clt")


def test_a_loose_target_ends_the_search():
    found = noise_multiplier(Epsilon(1000.0, 1e-5), sample_rate=0.01, steps=100)
    assert found.guarantee.epsilon(1e-5) == pytest.approx(1000.0, rel=1e-6)


def test_parameter_of_spec_finds_steps(tmp_path):
    found = parameter_of_spec(_spec(tmp_path, noise_multiplier=1.0, steps=None), Epsilon(2.0, 1e-5), accountant="rdp")
    assert found.parameter == "steps"
    assert found.guarantee.epsilon(1e-5) <= 2.0


@pytest.mark.slow_cases
@pytest.mark.parametrize("target", [Epsilon(100.0, 1e-5), Epsilon(8.0, 1e-5), Mu(1.0), Advantage(0.2)])
def test_few_exact_answers_end_a_search_that_begins_at_a_sketch(target):
    exact = accountant("pld")
    asked = []

    class Counted(Pld):
        def curves(self, mechanism, relation):
            asked.append(mechanism)
            return super().curves(mechanism, relation)

    found = noise_multiplier(target, sample_rate=0.01, steps=100, accountant=Counted())
    assert len(asked) <= 5
    assert target.met(exact(Gaussian(found.value).poisson(0.01) * 100))
    assert not target.met(exact(Gaussian(found.value * (1 - 1e-4)).poisson(0.01) * 100))


def test_a_misleading_sketch_moves_no_answer():
    class Misled(Pld):
        def sketch(self, mechanism, relation):
            return GaussianCurve(0.1 * mechanism.clt_mu_squared(relation) ** 0.5)

    target = Epsilon(8.0, 1e-5)
    right = noise_multiplier(target, sample_rate=0.01, steps=100)
    misled = noise_multiplier(target, sample_rate=0.01, steps=100, accountant=Misled())
    assert misled.value == pytest.approx(right.value, rel=1e-6)
    assert target.met(misled.guarantee)
