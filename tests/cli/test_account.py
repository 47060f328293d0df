"""`tacit account` without a SPEC file, on standard input, for several files, groups and claims."""

import io
import json
import subprocess
import sys

import pytest

from tacit.accounting import Ledger, account, accountant
from tacit.cli import main
from tacit.mechanisms import Gaussian, Laplace
from tacit.reports import account_table

SGD = ["account", "--noise-multiplier", "1.1", "--sample-rate", "0.01", "--steps", "100", "--accountant", "pld"]


def _answer(capsys, arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_dp_sgd_needs_no_file(capsys):
    (row,) = _answer(capsys, [*SGD, "--delta", "1e-6"])["results"]
    exact = accountant("pld")(Gaussian(1.1).poisson(0.01) * 100).epsilon(1e-6)
    assert (row["epsilon_lower"], row["epsilon"]) == exact.interval


def test_a_spec_comes_from_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(Ledger.of(Gaussian(1.0)).spec())))
    (row,) = _answer(capsys, ["account", "-", "--accountant", "pld"])["results"]
    assert row["epsilon"] == pytest.approx(4.377, abs=1e-3)


def test_every_file_is_answered_by_itself(capsys, tmp_path):
    paths = [str(tmp_path / f"{scale}.json") for scale in (1, 2)]
    for path, scale in zip(paths, (1.0, 2.0), strict=True):
        Ledger.of(Laplace(scale)).save(path)
    found = _answer(capsys, ["account", *paths, "--accountant", "naive"])["ledgers"]
    assert [each["name"] for each in found] == paths
    assert [each["results"][0]["epsilon"] for each in found] == [1.0, 0.5]


def test_a_claim_below_what_leaks_is_refuted_with_exit_code_3(capsys):
    exact = accountant("pld")(Gaussian(1.1).poisson(0.01) * 100).epsilon(1e-5)
    for factor, code, verdict in ((0.9, 3, "is refuted"), (1.1, 0, "is consistent")):
        assert main([*SGD, "--claim", str(factor * exact.lower)]) == code
        (sentence,) = capsys.readouterr().err.strip().splitlines()
        assert verdict in sentence
    assert main([*SGD, "--claim", "1", "--epsilon", "1"]) == 2


@pytest.mark.slow
def test_groups_cost_more_and_a_plain_gaussian_exactly_so(capsys):
    single, group = (
        _answer(capsys, ["account", "--noise-multiplier", "4", "--accountant", "pld", "--group", k])["results"][0]
        for k in ("1", "3")
    )
    assert group["mu"] == pytest.approx(3 * single["mu"])
    assert group["epsilon_lower"] > single["epsilon_lower"]
    (sampled,) = _answer(capsys, [*SGD, "--group", "2"])["results"]
    single = accountant("pld")(Gaussian(1.1).poisson(0.01) * 100)
    assert single.epsilon(1e-5) < sampled["epsilon_lower"] <= sampled["epsilon"] < single.group(2).epsilon(1e-5)


@pytest.mark.slow
def test_a_user_is_a_group_of_the_most_records_of_one(capsys, tmp_path):
    grouped = _answer(capsys, [*SGD, "--group", "3"])["results"]
    assert _answer(capsys, [*SGD, "--unit", "user", "--records-per-user", "3"])["results"] == grouped
    ledger = Ledger.of(Laplace(1.0))
    ledger.unit = "user"
    ledger.save(tmp_path / "users.json")
    for arguments in (
        [*SGD, "--unit", "user"],
        [*SGD, "--records-per-user", "3"],
        ["account", str(tmp_path / "users.json"), "--unit", "user", "--records-per-user", "3"],
    ):
        assert main(arguments) == 2
        assert "must be" in capsys.readouterr().err


def test_the_table_of_a_user_names_the_group_of_records_that_was_asked_for(capsys):
    spec = ["account", "--noise-multiplier", "2", "--delta", "1e-5", "--unit", "user", "--records-per-user", "4"]
    assert main(spec) == 0
    assert "Unit: group of 4 records, which may be all of a user." in " ".join(capsys.readouterr().out.split())


def test_the_table_names_relation_unit_and_sampling(capsys):
    assert main([*SGD, "--epsilon", "40"]) == 0
    shown = capsys.readouterr().out
    for words in ("add_remove", "Unit: record", "Sampling: poisson", "one record"):
        assert words in " ".join(shown.split())
    assert "-0.0" not in shown
    ledger = Ledger.of(Laplace(1.0))
    for question, heading in (({"delta": 0.1}, "proven lower epsilon"), ({"epsilon": 1.0}, "proven lower delta")):
        found = account(ledger, **question, accountants=["pld"])
        assert heading in [str(column.header) for column in account_table(found, ledger).columns]


def test_exactly_one_source_is_named(capsys, tmp_path):
    for arguments in (["account"], [*SGD, str(tmp_path / "x.json")]):
        assert main(arguments) == 2
        assert "SPEC must be given" in capsys.readouterr().err


def test_importing_the_accountants_does_not_load_the_statistics_of_scipy():
    code = "import sys, tacit.accounting; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
