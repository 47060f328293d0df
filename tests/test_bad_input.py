"""Every row of the bad-input table that touches a number, over the entry points that take it: API, TOML and CLI."""

import json
import math

import pytest

from tacit.accounting import Ledger, account, accountant
from tacit.calibration import largest_sample_rate, largest_steps, noise_multiplier
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.mechanisms import Approximate, Exponential, Gaussian, Laplace, RandomizedResponse
from tacit.runs import config_from_table
from tacit.tradeoff import Epsilon

NOT_POSITIVE = (-1, 0, math.nan, math.inf, "1", True, None)
NOT_A_RATE = (-0.1, 0, 1.5, math.nan, math.inf, "0.1", True, None)
NOT_A_COUNT = (1.5, -5, 0, math.nan, "3", True)
NOT_A_DELTA = (2.0, -1e-5, math.nan, math.inf, "1e-5", True)
GOOD = {"dataset": "digits", "noise_multiplier": 1.0}


def _spec(**changes):
    return {"mechanisms": [{"type": "gaussian", "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 3} | changes]}


def _rows():
    for value in NOT_POSITIVE:
        yield "noise_multiplier", value, lambda v: Gaussian(v)
        yield "noise_multiplier", value, lambda v: Ledger.from_spec(_spec(noise_multiplier=v))
        yield "scale", value, lambda v: Laplace(v)
        yield "sensitivity", value, lambda v: Laplace(1.0, v)
        yield "epsilon", value, lambda v: Exponential(v)
        yield "epsilon", value, lambda v: RandomizedResponse(v)
        yield "epsilon", value, lambda v: Epsilon(v, 1e-5)
        yield "clip_norm", value, lambda v: config_from_table(GOOD | {"clip_norm": v})
        yield "learning_rate", value, lambda v: config_from_table(GOOD | {"learning_rate": v})
        yield "epochs", value, lambda v: config_from_table(GOOD | {"epochs": v})
    for value in NOT_POSITIVE[:-1]:
        yield "noise_multiplier", value, lambda v: config_from_table(GOOD | {"noise_multiplier": v})
        yield "epsilon", value, lambda v: config_from_table({"dataset": "digits", "epsilon": v})
    for value in NOT_A_RATE:
        yield "sample_rate", value, lambda v: Gaussian(1.0).poisson(v)
        yield "sample_rate", value, lambda v: Ledger.from_spec(_spec(sample_rate=v))
        yield "sample_rate", value, lambda v: noise_multiplier(Epsilon(1, 1e-5), sample_rate=v or 0, accountant="clt")
    for value in NOT_A_COUNT:
        yield "steps", value, lambda v: Gaussian(1.0) * v
        yield "steps", value, lambda v: Ledger.from_spec(_spec(steps=v))
        yield "batch_size", value, lambda v: config_from_table(GOOD | {"batch_size": v})
    for value in NOT_A_DELTA:
        yield "delta", value, lambda v: accountant("rdp")(Gaussian(1.0)).epsilon(v)
        yield "delta", value, lambda v: Epsilon(1.0, v)
        yield "delta", value, lambda v: Approximate(1.0, v)
        yield "delta", value, lambda v: config_from_table(GOOD | {"delta": v})


@pytest.mark.parametrize(("name", "value", "call"), list(_rows()))
def test_numbers_that_break_their_rule(name, value, call):
    with pytest.raises(InvalidInput, match=rf"^{name} must be .*got "):
        call(value)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "mechanisms must be a list"),
        ([], "SPEC must be"),
        ({"mechanisms": [{}]}, "type must be one of gaussian"),
        ({"mechanisms": [{"type": "gausian", "noise_multiplier": 1}]}, "Did you mean 'gaussian'"),
        ({"mechanisms": [{"type": "gaussian"}]}, "noise_multiplier must be given"),
        ({"relation": "add-remove", "mechanisms": []}, "Did you mean 'add_remove'"),
        (_spec(samplerate=0.1), "Did you mean 'sample_rate'"),
        (_spec(noise_multiplier=[1.0, 2.0]), "a list of 3"),
        (_spec(noise_multiplier=1.0) | {"mechanism": []}, "Did you mean 'mechanisms'"),
        (_spec() | {"standing": "prove"}, "Did you mean 'proven'"),
        *((_spec() | {"assumptions": value}, "assumptions must be a list of texts") for value in (5, None, "abc", {})),
        *((_spec() | {"unsafe": value}, "unsafe must be a list of texts") for value in (5, None, "abc", {"a": 1})),
        (_spec() | {"unsafe": [5]}, "each of unsafe must be a text"),
    ],
)
def test_specs_with_mistakes(spec, sentence, tmp_path, capsys):
    with pytest.raises(InvalidInput, match=sentence):
        Ledger.from_spec(spec)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    assert main(["account", str(path)]) == 2
    error = capsys.readouterr().err
    assert sentence.replace("\\", "") in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--delta", "2"], "delta must be in [0, 1]; got 2.0"),
        (["--delta", "nan"], "delta must be in [0, 1]; got nan"),
        (["--delta", "x"], "delta must be a number; got 'x'"),
        (["--epsilon", "-1"], "epsilon must be in"),
        (["--epsilon", "1", "--delta", "1e-5"], "delta must be given, or epsilon instead"),
        (["--accountant", "rpd"], "Did you mean 'rdp'"),
        (["--epsilonn", "1"], "No such option: --epsilonn"),
    ],
)
def test_account_arguments_with_mistakes(arguments, sentence, tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(_spec()))
    assert main(["account", str(path), *arguments]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("mechanisms", [5, None, "gaussian"])
def test_calibration_needs_a_list_of_mechanisms(mechanisms, tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"mechanisms": mechanisms}))
    assert main(["calibrate", str(path), "--epsilon", "1", "--delta", "1e-5"]) == 2
    assert "mechanisms must be a list" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mechanism", lambda: Ledger().add(5)),
        ("mechanism", lambda: Ledger().add(None)),
        ("mechanism", lambda: Gaussian(1.0) + 1),
        ("sentence", lambda: Ledger().assume(5)),
        ("switch", lambda: Ledger().mark_unsafe(5)),
        ("unit", lambda: Ledger(unit=5)),
        ("ledger", lambda: accountant("pld")(5)),
        ("ledger", lambda: account(5, delta=1e-5)),
        ("target", lambda: noise_multiplier(5)),
        ("target", lambda: largest_steps(5, lambda steps: Gaussian(1.0) * steps)),
        ("target", lambda: largest_sample_rate(5, lambda rate: Gaussian(1.0).poisson(rate))),
    ],
)
def test_objects_of_another_kind(name, call):
    with pytest.raises(InvalidInput, match=rf"^{name} must be .*got (5|None|1)\."):
        call()


@pytest.mark.slow_cases("arguments0")
@pytest.mark.parametrize(
    "arguments",
    [
        ["account", "{spec}", "--plot", "{spec}/x.svg"],
        ["train", "digits", "--epochs", "0.1", "--out", "{spec}"],
        ["train", "digits", "--epochs", "0.1", "--out", "{spec}/x"],
        ["sweep", "{grid}", "--store", "{spec}/x"],
        ["reproduce", "gaussian-dp/table-1", "--store", "{spec}/x/y"],
    ],
)
def test_a_path_that_leads_through_a_file(arguments, tmp_path, capsys):
    places = {"spec": tmp_path / "spec.json", "grid": tmp_path / "grid.toml"}
    places["spec"].write_text(json.dumps(_spec()))
    places["grid"].write_text('preset = "digits"\n')
    assert main([argument.format(**places) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("path must be one that this command can use; got")
    assert error.count("\n") == 1


def test_an_interruption_is_one_sentence_and_exit_code_1(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.runs.train", interrupted)
    assert main(["train", "digits", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("interrupted. ")


@pytest.mark.parametrize("text", ["{", "\x00\xff", "1", "", "[" * 100_000, "1" * 5000])
def test_files_that_are_no_spec(text, tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(text, encoding="latin-1")
    assert main(["account", str(path)]) == 2
    assert "SPEC must be" in capsys.readouterr().err
    assert main(["account", str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"epsilonn": 1.0}, "Did you mean 'epsilon'"),
        (GOOD | {"epsilon": 1.0}, "Give exactly one"),
        ({"dataset": "digits"}, "noise_multiplier must be given"),
        (GOOD | {"model": "mpl"}, "Did you mean 'mlp'"),
        (GOOD | {"optimizer": "adamw"}, "Did you mean 'adam'"),
        (GOOD | {"attacks": ["loss_treshold"]}, "Did you mean 'loss_threshold'"),
        (GOOD | {"attacks": "loss_threshold"}, "attacks must be a list"),
        (GOOD | {"hidden": 3}, "hidden must be a list"),
        (GOOD | {"strict": "yes"}, "strict must be"),
        (GOOD | {"dataset": "table"}, 'dataset must be "table" exactly when'),
        (GOOD | {"dataset": "table", "table": {"path": "x"}}, "target must be given"),
        (GOOD | {"dataset": "table", "table": {"path": "x", "target": "y", "bound": {}}}, "Did you mean 'bounds'"),
        (GOOD | {"relation": "replace"}, "Did you mean 'replace_one'"),
        (GOOD | {"method": "objectiv"}, "Did you mean 'objective'"),
    ],
)
def test_configurations_with_mistakes(table, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        config_from_table(table)


def test_large_epsilons_and_edge_deltas_are_answered():
    curve = accountant("rdp")(Gaussian(0.05) * 10)
    assert float(curve.epsilon(1e-5)) > 1000
    for edge in (0, 1, 0.0, 1.0, 1e-30):
        assert curve.epsilon(edge) >= 0.0
    assert math.isinf(curve.epsilon(0))
    assert curve.epsilon(1) == 0.0
    assert accountant("naive")(Laplace(2.0) * 3).epsilon(0) == pytest.approx(1.5)
