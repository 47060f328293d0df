"""Sweeps: every task once, results kept as they come, nothing run twice."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.sweeps import Store, Task, export, stored, sweep, table

ROOT = Path(__file__).parents[2]


def tasks(folder, count=4, name="square"):
    return [Task(f"tests.sweeps.chores:{name}", {"x": x, "folder": str(folder)}) for x in range(count)]


def runs(folder):
    return sorted(path.name.split("-")[1] for path in folder.glob("ran-*"))


def test_results_come_in_the_order_of_the_tasks_and_are_not_run_again(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    first = sweep("squares", tasks(tmp_path), store, workers=1)
    assert [result.value for result in first] == [{"square": x * x} for x in range(4)]
    again = sweep("squares", tasks(tmp_path, 6), Store(store.path), workers=1)
    assert [result.value["square"] for result in again] == [0, 1, 4, 9, 16, 25]
    assert runs(tmp_path) == ["0", "1", "2", "3", "4", "5"]


def test_equal_tasks_run_once(tmp_path):
    results = sweep("squares", [*tasks(tmp_path, 2), *tasks(tmp_path, 2)], Store(tmp_path / "s.sqlite"), workers=1)
    assert [result.value["square"] for result in results] == [0, 1, 0, 1]
    assert runs(tmp_path) == ["0", "1"]


@pytest.mark.slow
def test_worker_processes_have_one_torch_thread(tmp_path):
    chores = [Task("tests.sweeps.chores:threads", {}), *tasks(tmp_path, 1)]
    value = sweep("threads", chores, Store(tmp_path / "s.sqlite"), workers=2)[0].value
    assert value["threads"] == 1
    assert value["process"] != os.getpid()


@pytest.mark.slow
def test_a_killed_sweep_continues_where_it_was(tmp_path):
    code = (
        "from tacit.sweeps import Store, sweep; from tests.sweeps.test_sweep import tasks;"
        f"sweep('s', tasks({str(tmp_path)!r}, 20, 'slow'), Store({str(tmp_path / 's.sqlite')!r}), workers=1)"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    deadline = time.monotonic() + 60
    while len(runs(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(Store(tmp_path / "s.sqlite").results("s"))
    assert 1 <= kept < 20
    before = len(runs(tmp_path))
    results = sweep("s", tasks(tmp_path, 20, "slow"), Store(tmp_path / "s.sqlite"), workers=2)
    assert len(results) == 20
    assert len(runs(tmp_path)) == before + 20 - kept


def test_results_are_kept_by_the_source_or_by_the_version_of_their_task(tmp_path, monkeypatch):
    store, versioned = Store(tmp_path / "s.sqlite"), [replace(task, version="1") for task in tasks(tmp_path, 2)]
    sweep("s", [*tasks(tmp_path, 2), *versioned], store, workers=1)
    monkeypatch.setattr("tacit.sweeps.task.code_fingerprint", lambda: "changed")
    assert stored(tasks(tmp_path, 2), store) == [None, None]
    assert [result and result.value["square"] for result in stored(versioned, store)] == [0, 1]
    assert stored([replace(task, version="2") for task in versioned], store) == [None, None]
    assert stored([replace(task, settings=task.settings | {"x": 7}) for task in versioned], store) == [None, None]


def test_no_task_starts_after_the_time_is_over(tmp_path, monkeypatch):
    store, clock = Store(tmp_path / "s.sqlite"), iter([0.0, 0.0, 50.0, 100.0])
    sweep("s", tasks(tmp_path, 1), store, workers=1)
    assert len(sweep("s", tasks(tmp_path, 9), store, workers=1, minutes=0)) == 1
    monkeypatch.setattr("tacit.sweeps.run.time.monotonic", lambda: next(clock))
    assert len(sweep("s", tasks(tmp_path, 9), store, workers=1, minutes=1)) == 3


def test_data_are_part_of_what_a_task_is(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_text("1")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b").write_text("22")
    store, task = Store(tmp_path / "s.sqlite"), Task("tests.sweeps.chores:listing", reads_data=True)
    assert sweep("d", [task], store, data_dir=data)[0].value == ["a"]
    assert sweep("d", [task], store, data_dir=other)[0].value == ["b"]
    assert len(store.results()) == 2


def test_progress_counts_what_is_stored(tmp_path):
    seen = []
    store = Store(tmp_path / "s.sqlite")
    sweep("s", tasks(tmp_path, 2), store, workers=1)
    sweep("s", tasks(tmp_path, 4), store, workers=1, on_progress=lambda *given: seen.append(given))
    assert seen == [(2, 4), (3, 4), (4, 4)]


def test_a_refusal_names_the_task(tmp_path):
    with pytest.raises(InvalidInput, match=r"chores:refuse with \{'x': 3\}: x must be other"):
        sweep("s", [Task("tests.sweeps.chores:refuse", {"x": 3})], Store(tmp_path / "s.sqlite"), workers=1)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_results_are_exported(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    unbounded = Task("tests.sweeps.chores:unbounded", {"x": 3})
    results = sweep("squares", [*tasks(tmp_path, 3), unbounded], Store(tmp_path / "s.sqlite"), workers=1)
    path = tmp_path / f"out{suffix}"
    export(results, path)
    frame = pandas.read_csv(path) if suffix == ".csv" else pandas.read_parquet(path)
    assert frame["square"].tolist() == [0, 1, 4, math.inf]
    assert frame["x"].tolist() == [0, 1, 2, 3]
    assert table(results)[2]["sweep"] == "squares"


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda folder: Task("no-colon"), "function must be given as package.module:name"),
        (lambda folder: Task("a:b", {"x": object()}), "settings must be plain values"),
        (lambda folder: sweep("s", [], Store(folder / "s"), engine="slurm"), "engine must be one of local, ray"),
        (lambda folder: sweep("", [], Store(folder / "s")), "name must be a text"),
        (lambda folder: sweep("s", [], Store(folder / "s"), workers=0), "workers must be an integer >= 1"),
        (lambda folder: sweep("s", [], Store(folder / "s"), minutes=-1), "minutes must be"),
        (lambda folder: sweep("s", [], Store(folder / "s"), minutes=1, engine="ray"), "minutes must be left out"),
        (lambda folder: export([], folder / "x.xlsx"), "path must be a .csv or .parquet file"),
    ],
)
def test_bad_input(tmp_path, act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act(tmp_path)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "text.sqlite"
    path.write_text("not a database at all, but some text that is long enough to be read as one" * 20)
    with pytest.raises(InvalidInput, match="store must be a file of results"):
        Store(path)


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path, capsys):
    foreign, zero, text = (tmp_path / name for name in ("foreign.sqlite", "zero.sqlite", "text.sqlite"))
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("create table tasks (key text, other text)")
    zero.touch()
    text.write_text("no database")
    before = [path.read_bytes() for path in (foreign, zero, text)]
    for path in (foreign, zero, text):
        assert main(["results", str(path)]) == 2
        assert "store must be a file of results" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="Its tables are not those of a store"):
        Store(foreign)
    assert [path.read_bytes() for path in (foreign, zero, text)] == before
    assert len(list(tmp_path.iterdir())) == 3


def test_looking_at_a_store_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "s?#%20.sqlite"
    sweep("s", tasks(tmp_path, 2), Store(path), workers=1)
    before = path.read_bytes(), sorted(tmp_path.iterdir())
    assert len(Store(path, read_only=True).results()) == 2
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == before


@pytest.mark.parametrize(
    "damage",
    [
        "'{'",
        *(f"json_set(result, '$.{change})" for change in ("settings', null", "versions', 5", "seconds', 'x'")),
        *(f"json_set(result, '$.{change})" for change in ("seconds', null", "sweep', null", "unknown', 1")),
        "json_remove(result, '$.value')",
    ],
)
def test_a_damaged_row_is_bad_input(tmp_path, damage):
    store = Store(tmp_path / "s.sqlite")
    sweep("s", tasks(tmp_path, 1), store, workers=1)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(f"update tasks set result = {damage}")
    for look in (store.results, lambda: stored(tasks(tmp_path, 1), store)):
        with pytest.raises(InvalidInput, match=r"store must be a file of results; got .*A row of it is damaged"):
            look()


def test_a_damaged_page_is_bad_input(tmp_path):
    store = Store(tmp_path / "s.sqlite")
    sweep("s", tasks(tmp_path, 1), store, workers=1)
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.path.write_bytes(content)
    for look in (store.results, lambda: sweep("s", tasks(tmp_path, 1), Store(store.path), workers=1)):
        with pytest.raises(InvalidInput, match="store must be a file of results"):
            look()


def test_a_store_that_is_being_written_can_be_looked_at(tmp_path):
    store = Store(tmp_path / "s.sqlite")
    sweep("s", tasks(tmp_path, 1), store, workers=1)
    with closing(sqlite3.connect(store.path)) as writer, writer:
        writer.execute("update tasks set result = json_set(result, '$.sweep', 'later')")
        writer.commit()
        assert [each.sweep for each in Store(store.path, read_only=True).results()] == ["later"]


def test_rows_of_other_functions_say_that_they_have_no_standing(tmp_path, capsys):
    sweep("[/x]", tasks(tmp_path, 2), Store(tmp_path / "s.sqlite"), workers=1)
    assert main(["results", str(tmp_path / "s.sqlite")]) == 0
    shown = capsys.readouterr().out
    assert "[/x]" in shown
    assert "without standing" in " ".join(shown.split())


@pytest.mark.slow
def test_two_ray_workers(tmp_path):
    ray = pytest.importorskip("ray")
    try:
        results = sweep("ray", tasks(tmp_path, 4), Store(tmp_path / "s.sqlite"), workers=2, engine="ray")
    finally:
        ray.shutdown()
    assert [result.value["square"] for result in results] == [0, 1, 4, 9]
