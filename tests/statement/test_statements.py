"""Statements: valid as they are written, contradicted where a field that can be recomputed was changed."""

import copy
import json
import random
import signal
import time
from pathlib import Path

import jsonschema
import pytest

import tacit
from tacit.accounting import Fact, How, Ledger
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.mechanisms import DiscreteGaussian, Exponential, Gaussian, Laplace, RandomizedResponse
from tacit.statement import AuthorKey, Subject, TrustStore, Verdict, check_statement, open_envelope, sealed, statement
from tacit.statement.document import canonical, guarantee, parsed
from tacit.statement.keys import fingerprint, public_pem
from tacit.statement.schema import faults, schema_of

AUDIT = {"attack": "canaries", "confidence": 0.95, "delta": 1e-5, "epsilon_lower": 0.01, "detectable_epsilon": 2.0}


def run_of(*mechanisms):
    """The ledger of a run with every fact declared or enforced."""
    ledger = Ledger()
    ledger.begin(Fact("unit", How.DECLARED, says="one row is one person"), Fact("batches", How.ENFORCED))
    for part, steps in (each for mechanism in mechanisms for each in mechanism.parts()):
        ledger.add(part, steps)
    return ledger


LEDGERS = {
    "dp-sgd": lambda: run_of(Gaussian(1.3).poisson(0.0042667) * 200),
    "gaussian": lambda: run_of(Gaussian(4.0)),
    "laplace": lambda: run_of(Laplace(2.0)),
    "discrete": lambda: run_of(DiscreteGaussian(5.0, sensitivity=1)),
    "choice": lambda: run_of(Exponential(0.5) * 4),
    "response": lambda: run_of(RandomizedResponse(0.8)),
    "spec": lambda: Ledger.of(Gaussian(2.0) * 5),
}


@pytest.fixture(scope="module")
def key():
    return AuthorKey.new()


def verdict(content, key):
    """The verdict on the whole, for whoever asks for this key."""
    return max(finding.verdict for finding in check_statement(content, key=fingerprint(key.public))[1])


@pytest.fixture(scope="module", params=LEDGERS)
def table(request):
    return statement(Subject("people"), LEDGERS[request.param](), audits=[AUDIT], model="0" * 64)


def test_a_statement_as_written_is_valid(table, key):
    assert verdict(sealed(table, key), key) is Verdict.VALID


def test_numbers_of_an_unknown_author_are_valid_and_the_author_is_not_known(table, key):
    findings = check_statement(sealed(table, key))[1]
    assert {finding.field for finding in findings if finding.verdict} == {"author"}
    assert max(finding.verdict for finding in findings) is Verdict.NOT_CHECKABLE


def places(value, path=()):
    """Every leaf of a table."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))
    else:
        yield path


def changed(table, path, value):
    """A copy with another leaf."""
    other = copy.deepcopy(table)
    at = other
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return other


FREE = {"subject", "software", "evidence"}
"""Tables of free text: who, when, what for, and what others measured."""


def moved(value, chance):
    """Another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value * chance.choice([0.5, 0.9, 1.1, 2]) + chance.choice([0, 1])
    return chance.choice([value[:-1], value + "x", "zero_out", "user", "proven", "0" * 64])


@pytest.mark.parametrize("name", ["gaussian", "response"])
def test_every_changed_number_signed_again_is_contradicted_or_looser(name, key):
    """Only a looser bound is let pass, as not tight; no change of anything that is recomputed is valid."""
    chance, table = random.Random(1), statement(Subject("people"), LEDGERS[name](), audits=[AUDIT], model="0" * 64)
    for path in places(table):
        if path[0] in FREE or path == ("digests", "model"):
            continue
        at = table
        for step in path:
            at = at[step]
        value = moved(at, chance)
        if value == at:
            continue
        try:
            found = verdict(sealed(changed(table, path, value), key), key)
        except InvalidInput:
            continue
        looser = path[0] == "guarantee" and path[-1] in ("epsilon", "epsilon_lower", "delta")
        allowed = {Verdict.CONTRADICTED, Verdict.NOT_TIGHT} if looser else {Verdict.CONTRADICTED, Verdict.NOT_CHECKABLE}
        assert found in allowed, (path, value)


@pytest.mark.parametrize("name", ["epsilon", "epsilon_lower"])
def test_a_tighter_bound_is_contradicted_and_a_looser_one_is_not_tight(name, key):
    table = statement(Subject("people"), LEDGERS["gaussian"]())
    value = table["guarantee"]["at"][0][name]
    tighter, looser = (0.99, 1.01) if name == "epsilon" else (1.01, 0.99)
    path = ("guarantee", "at", 0, name)
    assert verdict(sealed(changed(table, path, value * tighter), key), key) is Verdict.CONTRADICTED
    assert verdict(sealed(changed(table, path, value * looser), key), key) is Verdict.NOT_TIGHT
    assert verdict(sealed(changed(table, path, value * (1 + 1e-9)), key), key) is Verdict.VALID


def test_infinity_is_near_no_number(key):
    table = statement(Subject("people"), run_of(Gaussian(4.0)), deltas=[0.0])
    first = table["guarantee"]["at"][0]
    assert first["epsilon"] == first["epsilon_lower"] == "inf"
    assert verdict(sealed(table, key), key) is Verdict.VALID
    first["epsilon_lower"] = 3.0
    assert verdict(sealed(table, key), key) is Verdict.NOT_TIGHT
    first["epsilon"] = 5.0
    assert verdict(sealed(table, key), key) is Verdict.CONTRADICTED


def test_a_measured_bound_above_the_claim_is_contradicted(key):
    ledger = LEDGERS["gaussian"]()
    table = statement(Subject("people"), ledger, audits=[AUDIT | {"epsilon_lower": 3.0}])
    assert verdict(sealed(table, key), key) is Verdict.CONTRADICTED


def test_a_changed_payload_or_signature_is_contradicted(key):
    content = json.loads(sealed(statement(Subject("people"), LEDGERS["gaussian"]()), key))
    other = json.loads(sealed(statement(Subject("persons"), LEDGERS["gaussian"]()), key))
    assert verdict(json.dumps(content | {"payload": other["payload"]}).encode(), key) is Verdict.CONTRADICTED
    assert verdict(json.dumps(content | {"signatures": other["signatures"]}).encode(), key) is Verdict.CONTRADICTED


def test_another_model_is_contradicted(tmp_path, key):
    (tmp_path / "model").write_bytes(b"weights")
    content = sealed(statement(Subject("people"), LEDGERS["gaussian"](), model="0" * 64), key)
    found = check_statement(content, model=tmp_path / "model")[1]
    assert next(f.verdict for f in found if f.field == "digests.model") is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": ' + "1" * 400 + "}",
        "[" * 102 + "]" * 102,
        '"e\\u0301"',
        '"\\u001b[31m"',
        '"\\u202e"',
        "{} {}",
        "",
        '{"a": 1',
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(text):
    with pytest.raises(InvalidInput):
        parsed(text.encode())


def test_canonical_json_is_that_of_rfc_8785():
    assert canonical({"b": [1e30, 4.50, 2e-3, 1e-27], "a": "€", "": 1}) == (
        b'{"":1,"a":"\xe2\x82\xac","b":[1e+30,4.5,0.002,1e-27]}'
    )


@pytest.mark.parametrize(
    "change",
    [
        {"payloadType": "application/json"},
        {"signatures": []},
        {"signatures": [{}, {}]},
        {"payload": "e30"},
        {"payload": "e30="},
        {"more": 1},
    ],
)
def test_other_envelopes_are_refused(change, key):
    content = json.loads(sealed(statement(Subject("people"), LEDGERS["gaussian"]()), key))
    with pytest.raises(InvalidInput):
        open_envelope(json.dumps(content | change).encode())


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.signing.platformdirs.user_config_path", lambda *a, **k: tmp_path / "home")
    return tmp_path


def test_a_key_is_made_shown_trusted_and_revoked(home, capsys, monkeypatch):
    assert main(["key", "new", "--out", str(home / "mine.pub")]) == 0
    assert "PRIVATE" not in capsys.readouterr().out
    assert (home / "home" / "author.pem").stat().st_mode & 0o777 == 0o600
    assert main(["key", "new"]) == 2
    from tacit.statement import author_key

    file = home / "statement.json"
    file.write_bytes(sealed(statement(Subject("people"), LEDGERS["gaussian"]()), author_key()))
    assert main(["check", str(file)]) == 0
    assert main(["key", "revoke", "--out", str(home / "revocation.json")]) == 0
    (home / "home" / "author.pem").unlink()  # Now as somebody else.
    assert main(["check", str(file)]) == 4
    assert main(["key", "trust", str(home / "mine.pub"), "--name", "Ada"]) == 0
    assert main(["key", "trust", str(home / "mine.pub"), "--name", "Eve"]) == 2
    assert main(["check", str(file)]) == 0
    assert main(["check", str(file), "--key", str(home / "mine.pub")]) == 0
    assert main(["check", str(file), "--key", "0" * 64]) == 3
    assert main(["key", "revoke", str(home / "revocation.json")]) == 0
    assert TrustStore().keys[0].revoked
    capsys.readouterr()
    assert main(["check", str(file)]) == 4
    assert "its signer's word" in " ".join(capsys.readouterr().out.split())


def test_a_page_holds_no_text_of_a_statement_as_markup(home, key):
    file, page = home / "statement.json", home / "page.html"
    file.write_bytes(sealed(statement(Subject("<script>alert(1)</script>"), LEDGERS["gaussian"]()), key))
    assert main(["check", str(file), "--html", str(page)]) == 4
    assert "<script>" not in page.read_text()
    assert "&lt;script&gt;" in page.read_text()


def test_the_published_schema_holds_for_statements_and_not_for_others(table):
    schema = json.loads((Path(tacit.__file__).parent / "statement" / "statement.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    payload = open_envelope(sealed(table, AuthorKey.new())).payload
    validator.validate(payload)
    for name in payload:
        assert not validator.is_valid({key: value for key, value in payload.items() if key != name})
    assert not validator.is_valid(payload | {"more": 1})
    assert not validator.is_valid(payload | {"schema": "tacit-statement/2"})


def test_a_file_that_is_no_statement_is_refused_with_a_sentence(home, capsys):
    for content in (b"", b"{}", b"\xff", b"[" * 10**6):
        (home / "x.json").write_bytes(content)
        assert main(["check", str(home / "x.json")]) == 2
        assert "Traceback" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def one():
    return statement(Subject("people"), LEDGERS["gaussian"](), audits=[AUDIT])


def changed_tables():
    """(place, another value) of a statement, of which the published schema allows none."""
    return [
        (("subject", "sequence"), -1),
        (("subject", "sequence"), True),
        (("subject", "facts"), "x"),
        (("subject", "date"), "20260101"),
        (("subject", "more"), "x"),
        (("subject", "owner"), None),
        (("guarantee", "at"), []),
        (("guarantee", "tradeoff", 0, "delta"), 1.5),
        (("evidence", "audits"), [{"attack": "x"}]),
        (("evidence", "checked"), {}),
        (("mechanism", "mechanisms", 0, "note"), 1),
        (("mechanism", "mechanisms", 0, "unsafe_no_noise"), {}),
    ]


@pytest.mark.parametrize(("place", "value"), changed_tables(), ids=str)
def test_a_signed_statement_that_is_not_as_its_schema_says_is_refused(place, value, one, key):
    """Free text included: what a page or a public form prints is of its type."""
    other = copy.deepcopy(one)
    at = other
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    if place[0] == "mechanism":
        assert verdict(sealed(other, key), key) is Verdict.CONTRADICTED
    else:
        with pytest.raises(InvalidInput, match="as its schema says"):
            verdict(sealed(other, key), key)


def test_the_schema_is_read_as_a_library_reads_it(one):
    own = schema_of("tacit.statement", "statement.schema.json")
    library = jsonschema.Draft202012Validator(own)
    payload = open_envelope(sealed(one, AuthorKey.new())).payload
    assert not list(faults(payload, own))
    for place, value in changed_tables():
        other = copy.deepcopy(payload)
        at = other
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = value
        if place[-1] != "date" and place[0] != "mechanism":  # The library takes formats for remarks.
            assert bool(list(faults(other, own))) is not library.is_valid(other), place


def test_an_author_is_asked_for_by_file_name_or_fingerprint(home, one, capsys):
    key, path = AuthorKey.new(), home / "statement.json"
    path.write_bytes(sealed(one, key))
    (home / "x.pub").write_text(public_pem(key.public))
    assert main(["key", "trust", str(home / "x.pub"), "--name", "Office"]) == 0
    for asked in (str(home / "x.pub"), "Office", fingerprint(key.public)[:16].upper()):
        assert main(["check", str(path), "--key", asked]) == 0
    assert main(["check", str(path), "--key", fingerprint(AuthorKey.new().public)]) == 3
    capsys.readouterr()
    assert main(["check", str(path), "--key", str(home / "no.pub")]) == 2
    assert "name of a trusted key" in capsys.readouterr().err
    TrustStore().revoke(key.public, "2026-01-01T00:00:00+00:00")
    assert main(["check", str(path), "--key", fingerprint(key.public)]) == 4


def test_numbers_that_take_long_are_not_checked_unless_asked_for(key, monkeypatch):
    """Whoever wrote the file does not decide how long a check takes."""
    ledger = Ledger.of(Gaussian(1.37).poisson(0.0123) * 457)
    content = sealed(statement(Subject("people"), ledger), key)
    monkeypatch.setattr("tacit.statement.checking._SECONDS", 1e-3)
    slow = guarantee

    def computed(*given):
        ends = time.process_time() + 0.05
        while time.process_time() < ends:
            pass
        return slow(*given)

    monkeypatch.setattr("tacit.statement.document.guarantee", computed)
    found = check_statement(content, key=fingerprint(key.public))[1]
    assert max(found, key=lambda each: each.verdict).field == "guarantee"
    assert "--slow" in max(found, key=lambda each: each.verdict).says
    assert max(each.verdict for each in check_statement(content, key=fingerprint(key.public), slow=True)[1]) == 0
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL


def test_no_key_is_trusted_under_the_fingerprint_of_another(home):
    with pytest.raises(InvalidInput, match="other than a fingerprint"):
        TrustStore().trust(fingerprint(AuthorKey.new().public), AuthorKey.new().public)
