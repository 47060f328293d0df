"""A task of a store runs once, whoever asks for it, or its result says how often it was started."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.sweeps import Store, Task, sweep

ROOT = Path(__file__).parents[2]


def tasks(folder, count, name="slow"):
    return [Task(f"tests.sweeps.chores:{name}", {"x": x, "folder": str(folder)}) for x in range(count)]


def shell(folder, count, name="slow"):
    code = (
        "from tacit.sweeps import Store, sweep; from tests.sweeps.test_leases import tasks;"
        f"sweep('s', tasks({str(folder)!r}, {count}, {name!r}), Store({str(folder / 's.sqlite')!r}), workers=1)"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def ran(folder):
    return sorted(path.name.split("-")[1] for path in folder.glob("ran-*"))


def wait_for(folder, count):
    deadline = time.monotonic() + 120
    while len(list(folder.glob("ran-*"))) < count and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.slow
def test_two_shells_on_one_store_run_every_task_once(tmp_path):
    other = shell(tmp_path, 8)
    wait_for(tmp_path, 1)
    store = Store(tmp_path / "s.sqlite")
    results = sweep("s", tasks(tmp_path, 8), store, workers=1)
    assert other.wait() == 0
    assert ran(tmp_path) == [str(x) for x in range(8)]
    assert [(result.value["square"], result.ran, result.of) for result in results] == [
        (x * x, 1, "run") for x in range(8)
    ]
    assert store.unfinished == 0
    assert not list(tmp_path.glob(".*.lock"))


def test_what_a_killed_shell_had_started_is_taken_over_and_stays_counted(tmp_path, capsys):
    """The task has released something (its file) and is still at work when its process is killed."""
    other = shell(tmp_path, 3, "releasing")
    wait_for(tmp_path, 1)
    other.send_signal(signal.SIGKILL)
    other.wait()
    store = Store(tmp_path / "s.sqlite")
    assert store.unfinished == 1
    assert main(["results", str(store.path)]) == 0
    assert "tasks without a result were started 1 times" in capsys.readouterr().err
    (tmp_path / "quick").touch()
    results = sweep("s", tasks(tmp_path, 3, "releasing"), store, workers=1)
    assert [result.ran for result in results] == [2, 1, 1]
    assert ran(tmp_path) == ["0", "0", "1", "2"]
    assert store.unfinished == 0
    assert not list(tmp_path.glob(".*.lock"))
    assert main(["results", str(store.path)]) == 0
    shown = capsys.readouterr()
    assert "started more than once" in shown.err
    assert "ran" in shown.out.split()


def test_a_task_that_fails_stays_counted(tmp_path):
    store, chores = Store(tmp_path / "s.sqlite"), tasks(tmp_path, 1, "failing")
    with pytest.raises(InvalidInput, match="not yet"):
        sweep("s", chores, store, workers=1)
    assert store.unfinished == 1
    (tmp_path / "quick").touch()
    assert sweep("s", chores, store, workers=1)[0].ran == 2


def test_a_task_that_another_shell_holds_is_neither_run_nor_waited_for_after_the_time(tmp_path):
    store = Store(tmp_path / "s.sqlite")
    (chore,) = tasks(tmp_path, 1)
    with store.owner() as other:
        assert store.claim(chore.key(), other)
        assert not store.claim(chore.key(), other)
        assert sweep("s", [chore], store, workers=1, minutes=0.01) == []
    assert ran(tmp_path) == []
    assert sweep("s", [chore], store, workers=1)[0].ran == 2


def test_a_store_that_breaks_while_a_pool_is_at_work_ends_the_sweep(tmp_path, monkeypatch):
    store = Store(tmp_path / "s.sqlite")

    def claim(key, owner):
        raise InvalidInput("store must be whole.")

    monkeypatch.setattr(store, "claim", claim)
    with pytest.raises(InvalidInput, match="store must be whole"):
        sweep("s", tasks(tmp_path, 3), store, workers=2)


def test_the_owner_of_an_edited_lease_names_no_file_elsewhere(tmp_path):
    store = Store(tmp_path / "folder" / "s.sqlite")
    with store.owner() as owner:
        for name in ("../../up", "/tmp/x", "", "..", "a/../../b"):
            owner.outlives(name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def _raise_counts(id, counts):
    from tacit.signing import raise_count

    for count in counts:
        raise_count(id, count, "s")


def test_two_processes_leave_the_highest_count(tmp_path):
    from tacit.signing import latest_count, new_id

    id, context = new_id(), multiprocessing.get_context("fork")
    parts = [context.Process(target=_raise_counts, args=(id, range(k, 60, 3))) for k in (1, 2, 3)]
    for each in parts:
        each.start()
    for each in parts:
        each.join()
    assert latest_count(id) == 59
