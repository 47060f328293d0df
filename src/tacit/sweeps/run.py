"""Running the tasks of a sweep: stored tasks are skipped, an engine runs the others."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tacit import check
from tacit.errors import TacitError
from tacit.sweeps.store import Owner, Result, Store, Task

Progress = Callable[[int, int], None]
ENGINES = ("local", "ray")
_POLL = 0.2  # seconds between two looks at what another process is at work on; a task takes longer than that

Finished = tuple[int, Any, float]
Folder = str | os.PathLike[str] | None


def sweep(
    name: str,
    tasks: Sequence[Task],
    store: Store,
    *,
    data_dir: Folder = None,
    workers: int | None = None,
    engine: str = "local",
    minutes: float | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Result]:
    """The results of all tasks, in their order; each is stored the moment it is finished.

    Args:
        name: of the sweep, kept beside every result.
        tasks: what to run. Equal tasks run once.
        store: where finished tasks are looked up and kept. A task counts as finished only for the same settings, code
            or version, and data, so a killed sweep that is started again runs what is missing and nothing else. What
            another process is at work on is waited for, and taken over where that process ends without a result.
        data_dir: folder of the data files, for the tasks that read them; a fingerprint of it is part of their keys.
        workers: processes (the number of cores by default), each with one torch thread.
        engine: "local" (joblib) or "ray" (needs the extra `ray`; uses the cluster that ray finds, or starts a local
            one).
        minutes: after that long (0: at once) no further task starts, and only those that ran are returned; for the
            engine "local".
        on_progress: called with (done, total).

    Raises:
        InvalidInput: the engine is unknown, a number is outside its range, or `minutes` is given for "ray".
    """
    check.text("name", name)
    check.choice("engine", engine, ENGINES)
    workers = check.count("workers", workers if workers is not None else os.cpu_count() or 1)
    if minutes is not None and engine != "local":
        raise check.fail("minutes", "left out unless the engine is local", minutes)
    deadline = math.inf if minutes is None else time.monotonic() + 60 * check.real("minutes", minutes, low=0.0)
    keys = [task.key(data_dir) for task in tasks]
    before = stored(tasks, store, data_dir=data_dir)
    found = {key: result for key, result in zip(keys, before, strict=True) if result is not None}
    missing = {key: task for key, task in zip(keys, tasks, strict=True) if key not in found}
    total = len(found) + len(missing)
    on_progress(len(found), total)
    run = _ray if engine == "ray" else _local
    with store.owner() as owner:
        while missing:
            leased = _Leased(missing, store, owner, deadline)
            for index, value, seconds in run(leased, workers, data_dir):
                key, task = leased.order[index], missing[leased.order[index]]
                found[key] = store.add(key, name, task, value, seconds)
                on_progress(len(found), total)
            if leased.fault is not None:
                raise leased.fault
            if leased.over:
                break
            missing = {key: task for key, task in missing.items() if key not in found}
            of_others = {key: store.find(key) for key in missing}
            found |= {key: result for key, result in of_others.items() if result is not None}
            missing = {key: task for key, task in missing.items() if key not in found}
            if missing:
                time.sleep(_POLL)
    return [found[key] for key in keys if key in found]


class _Leased:
    """The tasks that this sweep may run now, each leased the moment before it starts.

    Args:
        tasks: those without a result, by key.
        store: that keeps the leases.
        owner: of the leases.
        deadline: after which no task starts.
    """

    def __init__(self, tasks: Mapping[str, Task], store: Store, owner: Owner, deadline: float):
        self._tasks, self._store, self._owner, self._deadline = tasks, store, owner, deadline
        self.order = list(tasks)
        self.over = False
        # Kept for the sweep to raise: a pool takes the next task in a thread of its own, where an error would be lost.
        self.fault: TacitError | None = None

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[tuple[int, Task]]:
        for index, key in enumerate(self.order):
            if time.monotonic() >= self._deadline:
                self.over = True
                return
            try:
                mine = self._store.claim(key, self._owner)
            except TacitError as error:
                self.fault = error
                return
            if mine:
                yield index, self._tasks[key]


def stored(tasks: Sequence[Task], store: Store, *, data_dir: Folder = None) -> list[Result | None]:
    """Look up tasks in the store: one result or None for each, in their order.

    Args:
        tasks: to look up.
        store: where finished tasks are kept.
        data_dir: folder of the data files, whose fingerprint is part of the keys.
    """
    return [store.find(task.key(data_dir)) for task in tasks]


def expected_seconds(tasks: Sequence[Task], workers: int) -> float:
    """Until the last of `tasks` ends, by their own estimates."""
    return max(sum(task.seconds for task in tasks) / workers, max((task.seconds for task in tasks), default=0.0))


def _local(tasks: _Leased, workers: int, data_dir: Folder) -> Iterator[Finished]:
    if workers == 1 or len(tasks) <= 1:
        yield from (_timed(index, task, data_dir) for index, task in tasks)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=min(workers, len(tasks)), return_as="generator_unordered", pre_dispatch="n_jobs")
        yield from pool(delayed(_alone)(index, task, data_dir) for index, task in tasks)  # type: ignore[misc]


def _ray(tasks: _Leased, workers: int, data_dir: Folder) -> Iterator[Finished]:
    try:
        import ray  # type: ignore[import-not-found]
    except ImportError:
        raise check.fail("engine", "local unless ray is installed", "ray", "pip install 'tacit[ray]'.") from None

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(_alone)
    waiting = [remote.remote(index, task, data_dir) for index, task in tasks]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield ray.get(done[0])


def _alone(index: int, task: Task, data_dir: Folder) -> Finished:
    """Run in a worker process, where several torch threads would only fight for the cores."""
    import torch

    torch.set_num_threads(1)
    return _timed(index, task, data_dir)


def _timed(index: int, task: Task, data_dir: Folder) -> Finished:
    start = time.perf_counter()
    try:
        value = task.call(data_dir)
    except TacitError as error:
        raise type(error)(f"{task}: {error}") from None
    return index, value, time.perf_counter() - start
