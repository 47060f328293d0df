"""What dependants rely on: public names, the JSON form of mechanisms, and the keys of the command line's answers.

`python -m tests.test_stability` writes the stored list anew, before a release: additions only, unless the changelog
announces more.
"""

import contextlib
import importlib
import io
import json
import sys
import tomllib
from pathlib import Path

import tacit
from tacit.accounting import Ledger
from tacit.cli import main
from tests.conformance.test_mechanisms import MECHANISMS

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "stable.json"
ROOMS = ("accounting", "calibration", "mechanisms", "relation", "standing", "tradeoff")
INTEGRATIONS = {"opacus": ["Accountant", "register"], "dp_accounting": ["Accountant", "from_event", "to_event"]}


def names():
    """Public names of the rooms of the accountant."""
    rooms = {room: importlib.import_module(f"tacit.{room}") for room in ROOMS}
    own = {room: [*getattr(module, "__all__", ())] or _own(module) for room, module in rooms.items()}
    return {"tacit": sorted(tacit._NAMES)} | {room: sorted(found) for room, found in own.items()}


def _own(module):
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def specs():
    """JSON form of a ledger of every kind of mechanism."""
    return {str(each): Ledger.of(each).spec() for each in MECHANISMS}


def account_keys():
    """Keys of `tacit account --json`, one level down where there are tables."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main(["account", "--noise-multiplier", "1.1", "--sample-rate", "0.01", "--steps", "10", "--json"])
    answer = json.loads(said.getvalue())
    rows = {key: value[0] for key, value in answer.items() if isinstance(value, list) and value}
    return {"": sorted(answer)} | {key: sorted(row) for key, row in rows.items() if isinstance(row, dict)}


def test_no_public_name_is_gone():
    stored, now = json.loads(STORED.read_text(encoding="utf-8"))["names"], names()
    for room, found in stored.items():
        assert set(found) <= set(now[room]), room
    for name, kept in INTEGRATIONS.items():
        module = ROOT / "src" / "tacit" / "integrations" / f"{name}.py"
        text = module.read_text(encoding="utf-8")
        assert all(f"\nclass {each}(" in text or f"\ndef {each}(" in text for each in kept)


def test_every_stored_ledger_is_read_as_what_it_was():
    stored, by_text = json.loads(STORED.read_text(encoding="utf-8"))["specs"], {str(each): each for each in MECHANISMS}
    assert len(stored) >= 47
    for text, spec in stored.items():
        read = Ledger.from_spec(spec)
        assert read.mechanism == Ledger.of(by_text[text]).mechanism, text
        assert read.spec() == spec


def test_answers_of_the_command_line_keep_their_keys():
    stored, now = json.loads(STORED.read_text(encoding="utf-8"))["account"], account_keys()
    for place, keys in stored.items():
        assert set(keys) <= set(now[place])


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert project["version"] == tacit.__version__
    assert f"\nversion: {tacit.__version__}\n" in citation
    assert f"\n## {tacit.__version__} " in changelog


if __name__ == "__main__":
    rows = {"names": names(), "specs": specs(), "account": account_keys()}
    text = json.dumps(rows, indent=1, sort_keys=True)
    STORED.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows['specs'])} kinds of mechanism\n")
