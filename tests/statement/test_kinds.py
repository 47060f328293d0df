"""Statements of fits and of budgets by command; their numbers, the newest one that was seen, and their public forms."""

import json

import pytest

from tacit.accounting import Ledger
from tacit.budget import Registry
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.statement import AuthorKey, SeenStatements, Subject, check_statement, open_envelope, sealed, statement
from tacit.statement.forms import FORMS, public_form
from tests.budget.test_export import FIELDS, wrong
from tests.statement.real_runs import ledger_of


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A configuration folder of its own for keys and what was seen."""
    monkeypatch.setattr("tacit.signing.platformdirs.user_config_path", lambda *a, **k: tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def finding(path, field):
    return next(each for each in check_statement(path.read_bytes())[1] if each.field == field)


@pytest.mark.parametrize("name", ["support vectors", "search"])
def test_the_ledger_of_a_fit_is_stated_and_a_later_one_takes_the_next_number(home, name, capsys):
    ledger_of(name, home).save(home / "ledger.json")
    (home / "model").write_bytes(b"weights")
    assert main(["statement", "ledger.json"]) == 2
    assert "Add --dataset NAME" in " ".join(capsys.readouterr().err.split())
    given = ["--dataset", "people", "--fact", "240 rows", "--data-version", "2026-01", "--model", "model"]
    assert main(["statement", "ledger.json", *given, "--out", "first.json"]) == 0
    assert main(["check", "first.json", "--model", "model", "--slow"]) == 0
    subject = open_envelope((home / "first.json").read_bytes()).payload["subject"]
    assert (subject["facts"], subject["version"], subject["sequence"]) == (["240 rows"], "2026-01", 1)
    assert main(["statement", "ledger.json", *given]) == 0
    assert "Superseded: its author's number 2" in finding(home / "first.json", "subject.sequence").says
    assert "no newer one" in finding(home / "statement.json", "subject.sequence").says


def test_a_received_ledger_of_a_run_gets_no_statement(home, capsys):
    ledger_of("median", home).save(home / "ledger.json")
    table = json.loads((home / "ledger.json").read_text())
    (home / "ledger.json").write_text(json.dumps({name: each for name, each in table.items() if name != "signature"}))
    assert main(["statement", "ledger.json", "--dataset", "people"]) == 2
    assert "Its author writes its statement" in " ".join(capsys.readouterr().err.split())
    assert not (home / "statement.json").exists()


def test_the_total_of_a_data_set_is_stated_as_it_grows(home, capsys):
    dataset = Registry.create(home / "tacit-budget.sqlite").declare("patients", facts={"records": 400})
    assert main(["budget", "statement", "patients"]) == 2
    assert "something was released" in " ".join(capsys.readouterr().err.split())
    for number in (1, 2):
        dataset.reserve(Gaussian(4.0), label="release")
        assert main(["budget", "statement", "patients", "--owner", "Clinic", "--delta", "1e-6"]) == 0
        assert main(["check", "patients.statement.json"]) == 0
        payload = open_envelope((home / "patients.statement.json").read_bytes()).payload
        assert payload["subject"]["sequence"] == number
        assert payload["subject"]["facts"] == ["records: 400"]
        assert [row["delta"] for row in payload["guarantee"]["at"]] == [1e-6, 1e-5]


def test_only_statements_of_known_authors_are_remembered_and_only_by_their_own_authors(home):
    stranger, table = AuthorKey.new(), statement(Subject("people", id="0" * 32, sequence=7), Ledger.of(Gaussian(4.0)))
    (home / "theirs.json").write_bytes(sealed(table, stranger))
    assert main(["check", "theirs.json"]) == 4
    assert not (home / "home" / "seen_statements.json").exists()
    older = statement(Subject("people", id="0" * 32), Ledger.of(Gaussian(4.0)))
    for key, content in (("mine", older), ("other", table)):
        SeenStatements().note(key, content["subject"], "")
    assert SeenStatements().newest("mine", "0" * 32)["sequence"] == 1
    assert SeenStatements().newest("other", "0" * 32)["sequence"] == 7
    SeenStatements().note("other", older["subject"], "")
    assert SeenStatements().newest("other", "0" * 32)["sequence"] == 7


def test_two_statements_with_one_number_are_told(home):
    from tacit.statement import author_key

    key = author_key(make=True)
    for name, owner in (("one", "A"), ("two", "B")):
        table = statement(Subject("people", id="1" * 32, owner=owner), Ledger.of(Gaussian(4.0)))
        (home / f"{name}.json").write_bytes(sealed(table, key))
        assert main(["check", f"{name}.json"]) == 0
    assert "another statement with the number 1" in finding(home / "two.json", "subject.sequence").says


@pytest.mark.parametrize("text", ["a\u202eb", "x" * 2001, "a\nb"])
def test_a_subject_has_no_text_that_hides_or_fills(text):
    with pytest.raises(InvalidInput):
        Subject("people", owner=text)
    with pytest.raises(InvalidInput):
        Subject("people", facts=(text,))


def test_a_subject_is_written_in_one_unicode_form():
    assert Subject("e\u0301").dataset == "\u00e9"


def test_both_public_forms_hold_what_a_statement_states(home, capsys):
    ledger_of("fit", home).save(home / "ledger.json")
    given = ["--dataset", "people", "--owner", "Clinic", "--purpose", "triage", "--date", "2026-02-03"]
    assert main(["statement", "ledger.json", *given]) == 0
    capsys.readouterr()
    assert main(["statement", "statement.json", "--format", "registry"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not list(wrong(found, FIELDS))
    basic = found["deployment"]["basic"]
    assert basic == {"name": "people", "data_curators": "Clinic", "intended_use": "triage"} | {
        "publication_date": "2026-02-03"
    }
    assert main(["statement", "statement.json", "--format", "nist"]) == 0
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert [row["claim"] for row in claims] == [claim for _, claim, _ in FORMS.values() if claim]
    stated = {row["claim"]: row for row in claims}
    assert stated["empirical tests"]["open"]  # No attack was run.
    assert "declared:" in stated["implementation"]["value"]
    assert main(["statement", "statement.json", "--format", "other"]) == 2


def test_a_contradicted_statement_has_no_public_form(home, capsys):
    table = statement(Subject("people"), Ledger.of(Gaussian(4.0)))
    table["guarantee"]["at"][0]["epsilon"] /= 2
    (home / "statement.json").write_bytes(sealed(table, AuthorKey.new()))
    assert main(["statement", "statement.json", "--format", "nist"]) == 2
    assert "guarantee.at[0].epsilon is contradicted" in " ".join(capsys.readouterr().err.split())


def test_an_infinite_epsilon_has_a_public_form():
    table = statement(Subject("people"), Ledger.of(Gaussian(4.0)))
    table["guarantee"]["at"][0]["epsilon"] = "inf"
    assert "epsilon" not in public_form(table, "registry")["deployment"]["privacy_loss"]["privacy_parameters"]
