"""The registry: what is reserved counts, caps hold, edits and rollbacks are noticed."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit import BudgetExceeded, Epsilon, InvalidInput
from tacit.accounting import Ledger, accountant
from tacit.budget import Registry
from tacit.mechanisms import Gaussian, Laplace
from tacit.standing import Standing

DELTA = 1e-5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "budget.sqlite"
    Registry.create(path).declare("patients", facts={"records": 100})
    return path


def epsilon(*mechanisms) -> float:
    ledger = Ledger()
    for each in mechanisms:
        ledger.add(each)
    return float(accountant("pld")(ledger).epsilon(DELTA))


def test_total_is_the_exact_composition_of_every_reservation(file):
    dataset = Registry(file).dataset("patients")
    dataset.reserve(Gaussian(2.0), label="one")
    dataset.reserve(Laplace(3.0), label="two").settle(Ledger.of(Laplace(3.0)))
    assert float(Registry(file).dataset("patients").spent().epsilon(DELTA)) == epsilon(Gaussian(2.0), Laplace(3.0))


def test_total_over_runs_is_conditional_unless_their_settings_are_declared_fixed(file):
    dataset = Registry(file).dataset("patients")
    dataset.reserve(Gaussian(2.0), label="one")
    assert dataset.spent().standing is Standing.PROVEN
    dataset.reserve(Gaussian(2.0), label="two", scope="fixed")
    assert dataset.spent().standing is Standing.PROVEN
    dataset.reserve(Gaussian(2.0), label="three")
    assert dataset.spent().standing is Standing.CONDITIONAL
    dataset.note_untracked("four")
    assert dataset.spent().standing is Standing.CLAIMED


def test_a_cap_refuses_before_anything_is_reserved_and_says_what_is_left(file):
    dataset = Registry(file).dataset("patients")
    dataset.cap(Epsilon(3.0, DELTA))
    dataset.reserve(Gaussian(2.0), label="one")
    with pytest.raises(BudgetExceeded, match=r"'patients'.*epsilon 3 .*'two'.*from 1\.993 .*Left: one Gaussian"):
        dataset.reserve(Gaussian(1.2), label="two")
    assert list(dataset.known.held) == [held.id for held in dataset.known.held.values() if held.label == "one"]


def test_a_reservation_without_a_charge_is_given_back_and_one_with_a_charge_is_not(file):
    dataset = Registry(file).dataset("patients")
    with pytest.raises(ZeroDivisionError), dataset.reserve(Gaussian(2.0)):
        _ = 1 / 0
    assert float(dataset.spent().epsilon(DELTA)) == 0.0
    reservation = dataset.reserve()
    with pytest.raises(ZeroDivisionError), reservation:
        _ = reservation.cover(Ledger.of(Gaussian(2.0))) or 1 / 0
    assert float(dataset.spent().epsilon(DELTA)) == epsilon(Gaussian(2.0))
    with pytest.raises(InvalidInput, match="charged"):
        reservation.abandon()


def test_settling_pays_nothing_back_and_covers_an_excess(file):
    dataset = Registry(file).dataset("patients")
    dataset.reserve(Gaussian(2.0) * 4).settle(Ledger.of(Gaussian(2.0)))
    assert dataset.total().steps == 4
    dataset.reserve(Gaussian(3.0)).settle(Ledger.of(Gaussian(3.0) * 2))
    assert dataset.total().steps == 6


@pytest.mark.parametrize("kind", ["relation", "unit"])
def test_ledgers_of_another_relation_or_unit_are_refused(file, kind):
    other = Ledger(relation="replace_one") if kind == "relation" else Ledger(unit="user")
    other.add(Gaussian(1.0))
    with pytest.raises(InvalidInput, match="ledger must be one for add_remove"):
        Registry(file).dataset("patients").reserve(other)


def edit(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for name in ("entries_update", "entries_delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE number = 2"],
        ["UPDATE entries SET dataset = 'others' WHERE number = 2"],
        ["UPDATE entries SET time = '2020-01-01T00:00:00Z' WHERE number = 2"],
        ["DELETE FROM entries WHERE number = 2", "UPDATE entries SET number = 2 WHERE number = 3"],
        [
            "DELETE FROM entries WHERE number = 3",
            "UPDATE head SET counter = 2, link = (SELECT link FROM entries WHERE number = 2)",
        ],
        ["DELETE FROM entries WHERE number = 3"],
        ["UPDATE head SET counter = 2"],
        ["DELETE FROM entries", "UPDATE head SET counter = 0, link = ''"],
        ["UPDATE entries SET body = '{' WHERE number = 2"],
        ["DELETE FROM head"],
        ["DROP TABLE entries"],
    ],
)
def test_an_edited_registry_is_refused(file, statements):
    dataset = Registry(file).dataset("patients")
    dataset.reserve(Gaussian(2.0))
    dataset.reserve(Gaussian(2.0))
    edit(file, *statements)
    with pytest.raises(InvalidInput, match="registry must"):
        Registry(file)
    with pytest.raises(InvalidInput, match="registry must"):
        Registry(file).dataset("patients").reserve(Gaussian(2.0))


def test_rows_cannot_be_changed_by_mistake(file):
    with sqlite3.connect(file) as connection, pytest.raises(sqlite3.IntegrityError, match="only appended"):
        connection.execute("UPDATE entries SET body = '{}'")
    connection.close()


def test_an_older_copy_and_a_removed_file_are_noticed(file, tmp_path):
    dataset = Registry(file).dataset("patients")
    shutil.copy(file, tmp_path / "copy")
    dataset.reserve(Gaussian(2.0))
    dataset.store._engine.dispose()
    shutil.copy(tmp_path / "copy", file)
    with pytest.raises(InvalidInput, match="1 entries are missing"):
        Registry(file)
    file.unlink()
    with pytest.raises(InvalidInput, match="was removed"):
        Registry.create(file)


def test_another_key_is_refused(file, monkeypatch):
    monkeypatch.setenv("TACIT_KEY", "0123456789abcdef" * 4)
    with pytest.raises(InvalidInput, match=r"the key .* that signed it"):
        Registry(file)


def test_no_file_tells_a_value_or_the_number_of_records(file):
    registry = Registry(file)
    registry.dataset("patients").register(np.full((37, 2), 4242.4242), np.arange(37))
    content = b"".join(path.read_bytes() for path in file.parent.glob("budget.sqlite*"))
    assert b"4242" not in content
    assert not any("37" in str(row.body) for row in registry.dataset("patients").history() if row.kind != "fingerprint")


def test_the_same_records_are_recognised_in_a_subset_a_fold_and_another_order(file):
    registry = Registry(file)
    x, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    registry.declare("others").register(x + 1.0, y)
    registry.dataset("patients").register(x, y)
    assert registry.recognise(x[::-1].astype(np.float64), y[::-1]) == ["patients"]
    assert registry.recognise(x[:20], y[:20]) == ["patients"]
    assert registry.recognise(x + 2.0, y) == []
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE fingerprints SET hashes = x'00'")
    connection.close()
    with pytest.raises(InvalidInput, match="fingerprint"):
        registry.verify()


WRITER = """
import sys
from tacit import BudgetExceeded
from tacit.budget import Registry
from tacit.mechanisms import Gaussian
dataset = Registry(sys.argv[1]).dataset("patients")
made = 0
for _ in range(12):
    try:
        dataset.reserve(Gaussian(8.0))
        made += 1
    except BudgetExceeded:
        pass
print(made)
"""


@pytest.mark.slow
def test_processes_at_once_stay_within_the_cap_together(file):
    dataset = Registry(file).dataset("patients")
    dataset.cap(Epsilon(1.4, DELTA))
    shells = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    made = sum(int(shell.communicate()[0]) for shell in shells)
    assert dataset.total().steps == made
    allowed = max(n for n in range(1, 24) if epsilon(*[Gaussian(8.0)] * n) <= 1.4)
    assert made == allowed
