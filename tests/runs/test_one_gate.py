"""`open_run` is the one reader of a run: what was changed is refused by name, what was received is only stated."""

import ast
import contextlib
import io
import json
import random
import shutil
import time
from pathlib import Path

import pytest

import tacit
from tacit.cli import main
from tacit.errors import Changed, InvalidInput, PrivacyWarning
from tacit.runs import read_config, train
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import CARD, CONFIG, EXECUTION, LEDGER, MODEL, PREPROCESSING, SIGNATURE, TABLES
from tests.runs.reissued import edit, reissue, resign

SETTINGS = {"epochs": 1.0, "batch_size": 200, "noise_multiplier": 2.0, "attacks": (), "delta": 1e-4}
OTHER_KEY = "the key of somebody else, long enough"
ESCAPE = "\x1b[2J\x9b31m"


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """Two small runs on the digits, made once; tests work on copies."""
    home = tmp_path_factory.mktemp("gate")
    for name, noise in (("run", 2.0), ("other", 3.0)):
        train(read_config("digits", SETTINGS | {"noise_multiplier": noise}), out=home / name)
    return home


@pytest.fixture
def run(honest, tmp_path):
    return shutil.copytree(honest / "run", tmp_path / "run")


def said(*arguments):
    """(exit code, everything printed) of a command."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = main([str(each) for each in arguments])
    return code, text.getvalue()


READERS = {
    "card": lambda run: ("card", run),
    "nist": lambda run: ("statement", run, "--format", "nist", "--out", run.parent / "statement.json"),
    "show": lambda run: ("runs", "show", run, "--json"),
    "compare": lambda run: ("runs", "compare", run, run),
    "export": lambda run: ("runs", "export", run, "--out", run.parent / "exported"),
    "account": lambda run: ("account", run / LEDGER, "--accountant", "pld"),
    "verify": lambda run: ("verify", run),
    "predict": lambda run: ("predict", run, run.parent / "rows.npy"),
    "audit": lambda run: ("audit", run, "--attack", "loss_threshold"),
    "claim": lambda run: ("audit", "--scores", run.parent / "scores.csv", "--claim", run / LEDGER),
    "resume": lambda run: ("train", "--resume", run),
}
"""Commands that read one run."""


def read_by(name, run):
    import numpy as np

    np.save(run.parent / "rows.npy", np.zeros((2, 1, 8, 8), np.float32))
    rows = ["member,score", *(f"{k % 2},{k}" for k in range(40))]
    (run.parent / "scores.csv").write_text("\n".join(rows) + "\n")
    shutil.rmtree(run.parent / "exported", ignore_errors=True)
    code, text = said(*READERS[name](run))
    return code, text


CHANGES = {
    "swapped model": (MODEL, lambda run, other: shutil.copy(other / MODEL, run / MODEL)),
    "swapped ledger": (LEDGER, lambda run, other: shutil.copy(other / LEDGER, run / LEDGER)),
    "swapped execution": (EXECUTION, lambda run, other: edit(run / EXECUTION, records=[])),
    "swapped config": (CONFIG, lambda run, other: shutil.copy(other / CONFIG, run / CONFIG)),
    "forged card": (CARD, lambda run, other: forge(run)),
    "rolled back": (SIGNATURE, lambda run, other: roll_back(run)),
}
"""Changes of an own signed run, each with the file that is named."""


def forge(run):
    card = json.loads((run / CARD).read_text())
    card["guarantees"][0] |= {"epsilon": 0.01, "epsilon_lower": 0.01}
    (run / CARD).write_text(json.dumps(card))


def roll_back(run):
    from tacit.runs.run_signature import sign_run

    resign(run)  # Its count is its own: that of the runs that are copied stays.
    before = (run / SIGNATURE).read_bytes()
    sign_run(run, "mlp")
    (run / SIGNATURE).write_bytes(before)


def test_line_12_one_verdict_on_scores_whichever_file_of_a_run_states_the_claim(run):
    import numpy as np

    for shift, refuted in ((0.0, 0), (0.8, 3)):
        values = np.random.default_rng(1).normal(size=6000) + shift * (np.arange(6000) % 2)
        rows = ["member,score", *(f"{k % 2},{value}" for k, value in enumerate(values))]
        (run.parent / "scores.csv").write_text("\n".join(rows) + "\n")
        given = ("audit", "--scores", run.parent / "scores.csv", "--claim")
        for name in (CARD, LEDGER):
            assert said(*given, run / name, "--coins", "--trials", "independent")[0] == refuted, (shift, name)
    assert said(*given, run / LEDGER)[0] == 0


@pytest.mark.parametrize("change", CHANGES)
def test_line_13_no_file_of_another_run_is_shown_as_ones_own(change, run, honest):
    name, apply = CHANGES[change]
    apply(run, honest / "other")
    for reader in READERS:
        code, text = read_by(reader, run)
        assert code == 3, (reader, text)
        assert f"{name} must be" in text or (reader == "verify" and f"{name}: " in text), (reader, text)
        assert "proven" not in text, (reader, text)
    with pytest.raises(Changed, match=f"{name} must be"):
        tacit.load(run)
    code, text = said("runs", "list", run.parent)
    assert code == 0
    assert "changed" in text
    assert "proven" not in text


@pytest.mark.parametrize("signed", [False, True], ids=["received", "trusted key"])
def test_line_14_a_forged_epsilon_is_repeated_by_no_reader(signed, run):
    forge(run)
    if signed:
        resign(run)
    else:
        (run / SIGNATURE).unlink()
    assert [read_by(reader, run)[0] for reader in READERS] == [3] * len(READERS)
    reissue(run, signed=signed)
    for reader in READERS:
        code, text = read_by(reader, run)
        assert code == 3, (reader, text)
        assert "card.json" in text
    assert "0.01" not in said("runs", "list", run.parent, "--json")[1]


@pytest.mark.parametrize("row", [5, 9, 13])
def test_line_14_no_number_of_a_card_differs_from_its_ledger_whoever_signed(row, run):
    card = json.loads((run / CARD).read_text())
    card["guarantees"][row]["epsilon"] *= 1.01
    (run / CARD).write_text(json.dumps(card))
    reissue(run, signed=True)
    for reader in ("card", "show", "compare", "export", "verify"):
        code, text = read_by(reader, run)
        assert code == 3, (reader, text)
        assert card["guarantees"][row]["accountant"] in text


def test_line_15_a_number_of_400_digits_hides_no_other_run(run, honest):
    pytest.importorskip("starlette", reason="the extra is not installed")
    from starlette.testclient import TestClient

    from tacit.workbench import application

    shutil.copytree(honest / "run", run.parent / "fine")
    card = (run / CARD).read_text()
    (run / SIGNATURE).unlink()
    for value in ("9" * 400, "1e400", "NaN", "[" * 10_000):
        (run / CARD).write_text(card.replace('"records": 1438', f'"records": {value}', 1))
        rows = {row["run"]: row for row in json.loads(said("runs", "list", run.parent, "--json")[1])["runs"]}
        assert rows["run"]["state"] == "unreadable"
        assert rows["fine"]["standing"] == "proven"
        with TestClient(application(run.parent, token="t", port=8765), base_url="http://127.0.0.1:8765") as client:
            reply = client.get("/", params={"token": "t"})
            assert reply.status_code == 200
            assert 'value="fine"' in reply.text
            assert client.get("/runs/run/card.html", params={"token": "t"}).status_code == 400


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (EXECUTION, {"threads": 10_000_000}),
        (CONFIG, {"hidden": [10**9]}),
        (CONFIG, {"hidden": [10**6, 10**6]}),
        (PREPROCESSING, {"shape": [10**12]}),
        (PREPROCESSING, {"shape": [10**6, 10**6]}),
        (PREPROCESSING, {"highest": [1e15]}),
    ],
)
@pytest.mark.parametrize("signed", [False, True], ids=["received", "trusted key"])
def test_line_16_sizes_are_bounded_before_anything_is_allocated(name, values, signed, run):
    if name == EXECUTION:
        values = {"records": [each | values for each in json.loads((run / name).read_text())["records"]]}
    edit(run / name, **values)
    reissue(run, signed=signed)
    begun = time.process_time()
    for reader in ("audit", "predict", "card"):
        code, text = read_by(reader, run)
        assert code == 2, text
        assert "must be" in text
    assert time.process_time() - begun < 10


def test_line_17_no_escape_sequence_of_a_run_reaches_the_terminal(run):
    for name in (CARD, CONFIG, PREPROCESSING):
        path = run / name
        table = json.loads(path.read_text())
        key = next(key for key, value in table.items() if isinstance(value, str))
        path.write_text(json.dumps(table | {key: f"x{ESCAPE}"}))
        reissue(run)
        for reader in READERS:
            code, text = read_by(reader, run)
            assert code == 2, (reader, text)
            assert "\x1b" not in text
            assert "\x9b" not in text
        path.write_text(json.dumps(table))


def test_line_17_no_escape_sequence_in_a_name_reaches_the_terminal(tmp_path):
    from rich.text import Text

    from tacit.cli.console import screen

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        screen().print(Text(f"data{ESCAPE}"))
    assert printed.getvalue() == "data\\x1b[2J\\x9b31m\n"
    with pytest.raises(InvalidInput, match="must be a plain name"):
        read_config("digits", {"name": f"x{ESCAPE}"})
    code, text = said("budget", "init", f"x{ESCAPE}", "--registry", tmp_path / "budget")
    assert code == 2
    assert "\x1b" not in text


def test_line_18_a_received_run_is_stated_and_after_verification_consistent(run, monkeypatch):
    monkeypatch.setenv("TACIT_KEY", OTHER_KEY)
    for word in ("stated", "consistent"):
        for reader in ("card", "show", "compare", "account"):
            code, text = read_by(reader, run)
            assert code == 0, text
            assert word in text, (reader, text)
            assert "proven" not in text, (reader, text)
        rows = json.loads(said("runs", "list", run.parent, "--json")[1])["runs"]
        assert [row["standing"] for row in rows] == [word]
        with pytest.warns(PrivacyWarning, match="this run is signed by another key"):
            tacit.load(run)
        code, text = said("verify", run)
        assert code == 0
        assert "all 14 guarantees are those that ledger.json gives" in text
        assert "consistent" in text
        assert "proven" not in text
    # What was verified is this run and no other: a later change is refused, a signature taken away is stated anew.
    (run / SIGNATURE).unlink()
    assert open_run(run).word == "stated"


def test_line_18_an_own_run_that_is_whole_keeps_its_standing(run):
    opened = open_run(run)
    assert (opened.word, opened.state, opened.best["standing"]) == ("", "finished", "proven")
    for reader in set(READERS) - {"resume"}:
        code, text = read_by(reader, run)
        assert code == 0, (reader, text)
    assert said("verify", run / LEDGER)[0] == 0
    assert json.loads(said("account", run, "--accountant", "pld", "--json")[1])["results"][0]["standing"] == "proven"


def test_every_reader_refuses_a_changed_run_and_states_a_received_one(honest, tmp_path):
    from tests.runs.readers_table import table

    for reader, cells in table(honest, tmp_path):
        for kind, cell in cells.items():
            received = kind in ("unsigned", "foreign")
            allowed = ("stated", "consistent", "no number", "refused") if received else ("refused",)
            assert cell.split()[0] in {each.split()[0] for each in allowed}, (reader, kind, cell)


@pytest.fixture(scope="session")
def once_audited(honest, tmp_path_factory):
    run = shutil.copytree(honest / "run", tmp_path_factory.mktemp("audited") / "run")
    for command in (("audit", run, "--attack", "loss_threshold"), ("statement", run)):
        assert said(*command)[0] == 0
    return run


@pytest.fixture
def audited(once_audited, tmp_path):
    return shutil.copytree(once_audited, tmp_path / "run")


LATER = ["audit.json", "audit.html", "statement.json"]


@pytest.mark.parametrize("change", ["changed", "taken away", "of another run", "unsealed", "seal changed"])
@pytest.mark.parametrize("name", LATER)
def test_what_later_commands_added_to_a_run_is_sealed_with_it(name, change, audited, honest, tmp_path):
    assert read_by("card", audited)[0] == 0
    files = {each["file"]: each["is"] for each in json.loads(said("verify", audited, "--json")[1])["files"]}
    assert {files[each] for each in LATER} == {"signed by this user's key"}
    seal = audited / f"{name.split('.')[0]}.{SIGNATURE}"
    named = name
    if change == "changed":
        (audited / name).write_bytes((audited / name).read_bytes() + b" ")
    elif change == "taken away":
        (audited / name).unlink()
    elif change == "of another run":
        run = shutil.copytree(honest / "other", tmp_path / "other")
        for each in audited.glob(f"{name.split('.')[0]}.*"):
            shutil.copy(each, run / each.name)
        audited, named = run, LATER[0] if name.startswith("audit") else name
    elif change == "unsealed":
        seal.unlink()
        named = LATER[0] if name.startswith("audit") else name
    else:
        edit(seal, files={each: [""] for each in LATER})
        named = seal.name
    for reader in READERS:
        code, text = read_by(reader, audited)
        assert code == 3, (reader, text)
        assert f"{named} must be" in text or (reader == "verify" and f"{named}: " in text), (reader, text)
        assert "proven" not in text, (reader, text)


def test_a_command_that_is_killed_while_it_adds_to_a_run_leaves_one_that_can_be_read(audited, monkeypatch):
    import tacit.runs.run_signature as signature

    def killed(path, content):
        if path.name == "audit.html":
            raise KeyboardInterrupt
        (path).write_bytes(content)

    monkeypatch.setattr(signature, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        signature.append(audited, "audit", {"audit.json": b"{}", "audit.html": b"<p>new"})
    assert (audited / "audit.json").read_bytes() == b"{}"
    assert open_run(audited).word == ""
    monkeypatch.undo()
    signature.append(audited, "audit", {"audit.json": b"{}", "audit.html": b"<p>new"})
    assert open_run(audited).word == ""


def test_a_received_run_may_be_audited(run, monkeypatch):
    monkeypatch.setenv("TACIT_KEY", OTHER_KEY)
    assert said("audit", run, "--attack", "loss_threshold")[0] == 0
    assert open_run(run).word == "stated"
    (run / "audit.json").write_text("{}")
    with pytest.raises(Changed, match=r"audit\.json must be"):
        open_run(run)


def test_scores_of_another_model_may_be_written_into_a_run(run):
    rows = ["member,score", *(f"{k % 2},{k}" for k in range(40))]
    (run.parent / "scores.csv").write_text("\n".join(rows) + "\n")
    assert said("audit", "--scores", run.parent / "scores.csv", "--out", run)[0] == 0
    assert open_run(run).word == ""


VALUES = [0, -1, float("nan"), "1e400", 10**400, "", "x" * 100_000, None, [], "deep"]


def fields_of(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from fields_of(item, (*path, key))


def drawn(folder, chance):
    """Replace one field of one JSON file in `folder`; returns what was done."""
    name = chance.choice([name for name in (*TABLES, SIGNATURE) if (folder / name).is_file()])
    table = json.loads((folder / name).read_text())
    path = chance.choice([path for path in fields_of(table) if path])
    value = chance.choice(VALUES)
    inner = table
    for key in path[:-1]:
        inner = inner[key]
    if inner[path[-1]] == value and type(inner[path[-1]]) is type(value):
        return drawn(folder, chance)
    inner[path[-1]] = "PLACE"
    text = {"1e400": "1e400", "deep": "[" * 10_000 + "]" * 10_000}.get(str(value), json.dumps(value))
    (folder / name).write_text(json.dumps(table).replace('"PLACE"', text, 1))
    return name, path, value if len(str(value)) < 20 else str(value)[:20]


def hostile(honest, home, numbers):
    told = {name: read_by(name, shutil.copytree(honest, home / "honest" / "run")) for name in ("verify",)}
    assert told["verify"][0] == 0
    for number in numbers:
        chance, folder = random.Random(number), home / str(number) / "run"
        shutil.copytree(honest, folder)
        change = drawn(folder, chance)
        signed = number % 2 == 0
        if signed:
            resign(folder)
        readers = ["verify", *chance.sample(sorted(READERS), 3)]
        for reader in readers:
            begun = time.process_time()
            code, text = read_by(reader, folder)
            assert time.process_time() - begun < 10, (number, change, reader)
            assert "tacit failed" not in text, (number, change, reader, text)
            assert code in (2, 3) or "proven" not in text or change[0] == SIGNATURE, (number, change, reader, text)
            if signed and change[0] != SIGNATURE:
                assert code in (2, 3), (number, change, reader, text)
            if not (signed and change[0] == SIGNATURE):
                assert "proven" not in text, (number, change, reader, text)
        text = said("runs", "list", folder, "--json")[1]
        assert "proven" not in text or (signed and change[0] == SIGNATURE), (number, change, text)
        shutil.rmtree(folder.parent)


def test_hostile_folders_end_in_a_sentence_and_never_in_proven(honest, tmp_path):
    hostile(honest / "run", tmp_path, range(24))


@pytest.mark.slow
def test_two_hundred_hostile_folders_end_in_a_sentence_and_never_in_proven(honest, tmp_path):
    hostile(honest / "run", tmp_path, range(1000, 1200))


READING = {"json_table", "table_of", "load", "loads", "read_text", "read_bytes", "open", "safe_open", "read_spec"}
GATE = {"runs/open_run.py", "runs/run_signature.py"}
NAMES = {*TABLES, SIGNATURE, "CONFIG", "LEDGER", "CARD", "EXECUTION", "PREPROCESSING", "SIGNATURE"}


def test_no_other_file_reads_the_json_of_a_run():
    home, found = Path(tacit.__file__).parent, []
    for path in home.rglob("*.py"):
        if path.relative_to(home).as_posix() in GATE:
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(name in text for name in NAMES) else ():
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called not in READING:
                continue
            named = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            named |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            named |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            if named & NAMES:
                found.append(f"{path.relative_to(home)}:{node.lineno}")
    assert found == []
