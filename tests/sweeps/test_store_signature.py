"""Rows of a store that were edited, taken away, put in or put back are visible: they are only what is written."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.signing import Origin
from tacit.sweeps import Result, Store, Task, sweep, table


def tasks(folder, numbers, name="square"):
    return [Task(f"tests.sweeps.chores:{name}", {"x": x, "folder": str(folder)}) for x in numbers]


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "s.sqlite")
    sweep("s", tasks(tmp_path, range(3)), found, workers=1)
    return found


def change(store, *queries):
    """`x = N` in a query stands for the task with that setting."""
    with closing(sqlite3.connect(store.path)) as connection, connection:
        for query in queries:
            connection.execute(query.replace("x =", "json_extract(result, '$.settings.x') ="))


def said(store):
    return [row["of"] for row in table(store.results())]


def test_untouched_rows_are_those_of_runs(store):
    assert said(store) == ["run"] * 3
    assert said(Store(store.path, read_only=True)) == ["run"] * 3
    assert {result.ran for result in store.results()} == {1}


EDITS = {
    "edited": ["update tasks set result = json_set(result, '$.value', 5) where x = 1"],
    "fewer starts": ["update tasks set ran = 7 where x = 0"],
    "swapped": [
        "update tasks set result = (select result from tasks where x = 0), "
        "signature = (select signature from tasks where x = 0) where x = 1"
    ],
    "renamed": ["update tasks set result = json_set(result, '$.sweep', 'other') where x = 1"],
    "deleted": ["delete from tasks where x = 0"],
    "deleted and renumbered": [
        "delete from tasks where x = 0",
        "update tasks set rowid = rowid - 1",
    ],
    "signature of a row": ["update tasks set signature = null where x = 0"],
    "signature of the store": ["delete from whole"],
    "damaged signature": ["update whole set content = '[' where id = 1"],
    "no table at all": ['update whole set content = \'{"whole": true, "signature": 5}\''],
    "put in": ["insert into tasks select key || 'x', ran, owner, result, signature from tasks where x = 0"],
    "a lease taken away": ["insert into tasks values ('k', 1, 'o', null, null)"],
}


@pytest.mark.parametrize("queries", EDITS.values(), ids=EDITS)
def test_every_change_lowers_the_rows_to_what_is_written(store, queries, tmp_path, capsys):
    change(store, *queries)
    assert "spec" in said(store)
    assert main(["results", str(store.path), "--json"]) == 0
    assert "Their numbers are what the store says" in capsys.readouterr().err
    assert main(["results", str(store.path)]) == 0
    assert "spec" in capsys.readouterr().out
    # Nor is it made good by later rows: of those alone the store says "run" no more.
    before = len(store.results())
    sweep("s", tasks(tmp_path, [9]), store, workers=1)
    after = Store(store.path).results()
    assert len(after) > before
    if "edited" not in queries[0]:
        assert any(result.of == "spec" for result in after)


def test_a_deleted_row_stays_visible_after_the_next_one(store, tmp_path):
    change(store, "delete from tasks where x = 0")
    sweep("s", tasks(tmp_path, [9]), store, workers=1)
    assert said(store) == ["spec"] * 3


def test_rows_without_signatures_are_laundered_by_nothing(store, tmp_path):
    change(store, "update tasks set signature = null", "delete from whole")
    sweep("s", tasks(tmp_path, [9]), store, workers=1)
    assert [(row.value["square"], row.origin) for row in store.results()] == [
        *((x * x, Origin.UNSIGNED) for x in range(3)),
        (81, Origin.OWN),
    ]


def test_a_row_of_another_store_is_foreign_to_this_one(store, tmp_path):
    other = Store(tmp_path / "other.sqlite")
    sweep("s", tasks(tmp_path, [7]), other, workers=1)
    change(store, f"attach '{other.path}' as o", "insert into tasks select * from o.tasks")
    assert said(store) == ["spec"] * 4


def test_a_store_of_another_key_is_only_a_statement(store, monkeypatch, capsys):
    monkeypatch.setenv("TACIT_KEY", "the key of somebody else, long enough")
    assert [result.origin for result in store.results()] == [Origin.FOREIGN] * 3
    assert main(["results", str(store.path), "--json"]) == 0
    assert {row["of"] for row in json.loads(capsys.readouterr().out)} == {"spec"}


def test_an_older_store_put_back_is_visible_and_takes_no_task(store, tmp_path):
    kept = shutil.copy(store.path, tmp_path / "kept")
    sweep("s", tasks(tmp_path, [4]), store, workers=1)
    for path in tmp_path.glob("s.sqlite*"):
        path.unlink()
    shutil.copy(kept, store.path)
    assert {result.origin for result in Store(store.path).results()} == {Origin.ROLLED_BACK}
    with pytest.raises(InvalidInput, match="An older one was put back"):
        sweep("s", tasks(tmp_path, [4]), Store(store.path), workers=1)


def test_a_copy_counts_for_itself(store, tmp_path):
    copy = Store(shutil.copy(store.path, tmp_path / "copy.sqlite"))
    sweep("s", tasks(tmp_path, [4, 5]), copy, workers=1)
    assert said(copy) == ["run"] * 5
    sweep("s", tasks(tmp_path, [6]), store, workers=1)
    assert said(store) == ["run"] * 4


def test_an_older_copy_elsewhere_says_that_it_is_one(store, tmp_path):
    kept = shutil.copy(store.path, tmp_path / "kept.sqlite")
    sweep("s", tasks(tmp_path, [4]), store, workers=1)
    assert said(Store(kept)) == ["spec"] * 3
    sweep("s", tasks(tmp_path, [5]), Store(kept), workers=1)
    assert said(Store(kept)) == ["spec"] * 4


def test_without_a_key_nothing_is_signed(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.signing.signing_key", lambda: None)
    found = Store(tmp_path / "s.sqlite")
    sweep("s", tasks(tmp_path, [1]), found, workers=1)
    assert said(found) == ["spec"]


def test_the_bound_of_a_row_that_nobody_vouches_for_is_stated(store):
    value = {"guarantee": {"standing": "proven", "epsilon": 1.0}}
    made = [Result("s", "f", {}, value, 1.0, 0.0, {}, origin=origin) for origin in (Origin.OWN, Origin.FOREIGN)]
    assert [row["guarantee.standing"] for row in table(made)] == ["proven", "stated"]
    change(store, f"update tasks set result = '{'9' * 400}'")
    with pytest.raises(InvalidInput, match="digits"):
        store.results()
