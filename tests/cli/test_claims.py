"""Claims of others: `tacit verify SPEC|card` and `tacit audit --scores`."""

import json

import numpy as np
import pytest

from tacit.accounting import Claim, Ledger, accountant
from tacit.accounting.claims import examine, shuffled_lower
from tacit.cli import main
from tacit.mechanisms import Gaussian, Shuffled
from tacit.relation import Relation

DPSGD = {"type": "gaussian", "noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 500}
SHUFFLED = {
    "type": "gaussian",
    "noise_multiplier": 1.0,
    "sampling": "shuffled",
    "records": 10000,
    "batch_size": 100,
    "steps": 100,
}


def epsilon(name="pld", row=DPSGD, relation="add_remove", delta=1e-5):
    ledger = Ledger.from_spec({"relation": relation, "mechanisms": [row]})
    return float(accountant(name)(ledger).epsilon(delta))


def verify(tmp_path, capsys, claim, row=DPSGD, relation="add_remove"):
    path = tmp_path / "claim.json"
    path.write_text(json.dumps({"relation": relation, "mechanisms": [row], "claim": claim}))
    code = main(["verify", str(path), "--json"])
    table = json.loads(capsys.readouterr().out)
    assert (code == 3) == (table["verdict"] == "refuted")
    (found,) = table["claims"]
    return table["verdict"], " ".join(found["refutations"] + found["objections"])


@pytest.mark.slow
def test_the_exact_number_and_any_above_it_are_consistent(tmp_path, capsys):
    for factor in (1.0, 1.5):
        assert verify(tmp_path, capsys, {"epsilon": factor * epsilon(), "delta": 1e-5}) == ("consistent", "")


@pytest.mark.slow
def test_a_number_of_the_central_limit_theorem_is_no_bound(tmp_path, capsys):
    row = DPSGD | {"sample_rate": 0.004, "noise_multiplier": 0.7, "steps": 2000}
    stated = {"epsilon": epsilon("clt", row), "delta": 1e-5}
    verdict, said = verify(tmp_path, capsys, stated, row)
    assert verdict == "refuted"
    assert "central limit theorem" in said
    assert "no bound" in verify(tmp_path, capsys, {"epsilon": 50.0, "delta": 1e-5, "accountant": "clt"})[1]


@pytest.mark.slow
def test_a_number_of_another_relation_is_told(tmp_path, capsys):
    verdict, said = verify(tmp_path, capsys, {"epsilon": epsilon(), "delta": 1e-5, "relation": "replace_one"})
    assert verdict == "refuted"
    assert "relation add_remove; the claim is about replace_one" in said


@pytest.mark.parametrize("way", ["row", "claim"])
def test_shuffled_batches_that_were_accounted_as_poisson_are_told(tmp_path, capsys, way):
    poisson = DPSGD | {"noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 100}
    stated = {"epsilon": epsilon(row=poisson), "delta": 1e-5}
    if way == "claim":
        stated |= {"sampling": "shuffled", "records": 10000}
    verdict, said = verify(tmp_path, capsys, stated, SHUFFLED if way == "row" else poisson)
    assert verdict == "refuted"
    assert "of Poisson sampling" in said


def test_the_bound_for_a_secret_order_is_below_that_for_the_worst_order():
    for relation in Relation:
        for noise in (0.3, 1.0, 3.0):
            for records in (1, 10, 1000):
                part = Shuffled(Gaussian(noise), records, 1)
                upper = accountant("pld")(Ledger.of(part * records, relation=relation)).epsilon(1e-5)
                assert shuffled_lower(part, records, relation, 1e-5) <= float(upper) + 1e-9
    assert shuffled_lower(Shuffled(Gaussian(1.0), 1000, 10), 99, Relation.ADD_REMOVE, 1e-5) == 0.0


@pytest.mark.parametrize(("delta", "records"), [(1e-3, 1000), (0.5, 3)])
def test_a_delta_of_one_over_n_says_little(tmp_path, capsys, delta, records):
    stated = {"epsilon": 50.0, "delta": delta, "records": records}
    verdict, said = verify(tmp_path, capsys, stated)
    assert verdict == "unsupported"
    assert f"at least 1/n for n = {records}" in said


@pytest.mark.slow
def test_the_best_of_many_runs_costs_more_than_one(tmp_path, capsys):
    verdict, said = verify(tmp_path, capsys, {"epsilon": epsilon() * 1.01, "delta": 1e-5, "runs": 20})
    assert verdict == "unsupported"
    assert "best of 20" in said


@pytest.mark.slow
def test_an_epsilon_of_any_proven_accountant_is_consistent():
    ledger = Ledger.of(Gaussian(2.0).poisson(0.02) * 200)
    for name in ("rdp", "pld", "zcdp"):
        stated = float(accountant(name)(ledger).epsilon(1e-6))
        assert examine(Claim(ledger, stated, 1e-6, name)).verdict.value == "consistent"


@pytest.mark.slow
def test_a_card_is_recomputed_and_an_edited_number_is_refuted(tmp_path, capsys):
    rows = [{"accountant": "pld", "standing": "proven", "epsilon": epsilon(), "delta": 1e-5}]
    rows.append({"accountant": "clt", "standing": "asymptotic", "epsilon": 0.001, "delta": 1e-5})
    card = {"relation": "add_remove", "records": 60000, "mechanisms": [DPSGD], "guarantees": rows}
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card))
    assert main(["verify", str(path)]) == 0
    assert "consistent" in capsys.readouterr().out
    rows[0]["epsilon"] = 0.3
    path.write_text(json.dumps(card))
    assert main(["verify", str(path)]) == 3
    assert "is proven to leak; 0.3 is claimed" in capsys.readouterr().out


@pytest.mark.slow
def test_a_claim_may_be_given_beside_a_plain_spec(tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"mechanisms": [DPSGD]}))
    assert main(["verify", str(path), "--epsilon", "0.5", "--delta", "1e-5"]) == 3
    assert main(["verify", str(path), "--epsilon", "9", "--delta", "1e-5"]) == 0
    assert main(["verify", str(path), "--epsilon", "9"]) == 2
    assert "delta must be stated" in capsys.readouterr().err
    assert main(["verify", str(path)]) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be"),
        ({"delta": 2}, "delta must be"),
        ({"epsilonn": 1}, "Did you mean 'epsilon'"),
        ({"accountant": "pdl"}, "Did you mean 'pld'"),
        ({"standing": "prove"}, "Did you mean 'proven'"),
        ({"sampling": "shuffle"}, "Did you mean 'shuffled'"),
        ({"sampling": "shuffled"}, "records must be stated"),
        ({"records": 0}, "records must be"),
        ({"runs": 1.5}, "runs must be"),
        ({"relation": "add-remove"}, "Did you mean 'add_remove'"),
    ],
)
def test_claims_with_mistakes(tmp_path, capsys, change, said):
    path = tmp_path / "claim.json"
    path.write_text(json.dumps({"mechanisms": [DPSGD], "claim": {"epsilon": 1.0, "delta": 1e-5} | change}))
    assert main(["verify", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def scores_file(tmp_path, mu, size=2000, head="member,score", sep=",", seed=0):
    draw = np.random.default_rng(seed)
    rows = [head.replace(",", sep)]
    rows += [f"{i % 2}{sep}{draw.normal(mu * (i % 2)):.6f}" for i in range(size)]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(rows))
    return str(path)


@pytest.fixture
def claim(tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"mechanisms": [{"type": "gaussian", "noise_multiplier": 2.0}]}))
    return str(path)


def test_line_9_scores_without_a_declaration_refute_no_claim(tmp_path, capsys, claim):
    assert main(["audit", "--scores", scores_file(tmp_path, 3.0), "--claim", claim]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "No verdict on the claim: it would take that every score is of a training run of its own" in told
    assert "refutes the claim at 99.9 %" not in told


def test_scores_that_leak_more_than_claimed_refute_and_others_do_not(tmp_path, capsys, claim):
    declared = ["--trials", "independent"]
    assert main(["audit", "--scores", scores_file(tmp_path, 3.0), "--claim", claim, "--json", *declared]) == 3
    table = json.loads(capsys.readouterr().out)
    assert [row["estimator"] for row in table["audits"]] == ["band"]
    assert all(row["confidence"] == 0.95 for row in table["audits"])
    assert main(["audit", "--scores", scores_file(tmp_path, 0.5), "--claim", claim, "--out", str(tmp_path)]) == 0
    assert "trained elsewhere" in capsys.readouterr().out.replace("\n", " ")
    assert "trained elsewhere" in (tmp_path / "audit.html").read_text()


def test_a_stated_epsilon_is_tested_as_it_is_stated(tmp_path):
    path = tmp_path / "claim.json"
    path.write_text(json.dumps({"mechanisms": [DPSGD], "claim": {"epsilon": 0.5, "delta": 1e-5}}))
    given = ["--claim", str(path), "--coins", "--trials", "independent"]
    assert main(["audit", "--scores", scores_file(tmp_path, 2.0), *given]) == 3
    assert main(["audit", "--scores", scores_file(tmp_path, 0.1), *given]) == 0


def test_line_12_one_verdict_whether_a_claim_is_read_as_a_point_or_as_a_curve(tmp_path, capsys):
    """Scores of mu .9 against noise 2 (mu .5): no attack shows its epsilon at delta 1e-5, but its curve is refuted."""
    spec = {"relation": "add_remove", "mechanisms": [{"type": "gaussian", "noise_multiplier": 2.0}]}
    exact = float(accountant("pld")(Gaussian(2.0)).epsilon(1e-5))
    stated = [
        {"epsilon": exact, "delta": 1e-5, "accountant": "pld", "standing": "proven"},
        {"epsilon": 2.5, "delta": 1e-5, "accountant": "rdp", "standing": "proven"},
        {"epsilon": 0.1, "delta": 1e-5, "accountant": "clt", "standing": "asymptotic"},
    ]
    forms = {
        "spec": spec,
        "claim": spec | {"claim": {"epsilon": exact, "delta": 1e-5}},
        "loose": spec | {"claim": {"epsilon": 50.0, "delta": 1e-5}},
        "card": spec | {"guarantees": stated},
        "turned": spec | {"guarantees": stated[::-1]},
        "looser": spec | {"guarantees": stated[1:]},
    }
    for mu, code in ((0.9, 3), (0.4, 0)):
        scores = scores_file(tmp_path, mu, size=6000)
        for name, table in forms.items():
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(table))
            given = ["audit", "--scores", scores, "--claim", str(path), "--trials", "independent"]
            delta = "1e-3" if name in ("claim", "looser") else "1e-5"
            assert main([*given, "--delta", delta]) == code, (name, mu)
    # A point below the curve is a claim of its own.
    (tmp_path / "false.json").write_text(json.dumps(spec | {"claim": {"epsilon": 0.01, "delta": 1e-5}}))
    assert main(["audit", "--scores", scores, "--claim", str(tmp_path / "false.json"), "--trials", "independent"]) == 3
    capsys.readouterr()


def test_columns_separators_and_words_for_members(tmp_path, capsys):
    path = scores_file(tmp_path, 1.0, head="inside,loss", sep=";")
    assert main(["audit", "--scores", path, "--member", "inside", "--score", "loss"]) == 0
    assert main(["audit", "--scores", path]) == 2
    assert "the column 'member' must be one of the 2 columns" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "at least one row and one column"),
        (b"member,score\n", "at least one row and one column"),
        (b"member,score\n1,2\n1,3\n", "members only"),
        (b"member,score\n1,nan\n0,3\n", "a number in every row; got '1 others'"),
        (b"member,score\n1,4711x\n0,3\n", "a number in every row; got '1 others'"),
        (b"member,score\n1,1_0\n0,3\n", "a number in every row"),
        (b"member,score\n4711,2\n0,3\n", "1 or 0, true or false"),
        (b"member,score\n1,2,4711\n0,3\n", "as many fields in every row as the header's 2; got '3 in rows 0'"),
        (b"member,member,score\n1,1,2\n0,0,3\n", "a table whose columns have different names"),
        (b"\xff\xfe\x00", "at least one row and one column"),
        (b"member,score\n1," + b"9" * 200_000 + b"\n0,1\n", "well-formed CSV"),
        (b'member,score\n1,"=cmd|4711"\n0,3\n', "a number in every row"),
    ],
)
def test_hostile_score_files(tmp_path, capsys, text, said):
    path = tmp_path / "scores.csv"
    path.write_bytes(text)
    assert main(["audit", "--scores", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "4711" not in error
    assert error.count("\n") == 1


def test_arguments_that_do_not_go_together(tmp_path, capsys, claim):
    path = scores_file(tmp_path, 1.0)
    assert main(["audit"]) == 2
    assert main(["audit", str(tmp_path), "--scores", path]) == 2
    assert main(["audit", "--scores", str(tmp_path / "none.csv")]) == 2
    assert main(["audit", "--scores", path, "--trials", "many"]) == 2
    assert main(["audit", "--scores", path, "--confidence", "1"]) == 2
    assert main(["audit", "--scores", path, "--delta", "2"]) == 2
    assert main(["audit", "--scores", path, "--claim", path]) == 2
