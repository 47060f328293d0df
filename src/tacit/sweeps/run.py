"""Running the tasks of a sweep: stored tasks are skipped, an engine runs the others."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tacit import check
from tacit.errors import TacitError
from tacit.sweeps.store import Owner, Result, Store
from tacit.sweeps.task import Task

Progress = Callable[[int, int], None]
ENGINES = ("local", "ray")
_POLL = 0.2  # seconds between two looks at what another process is at work on; a task takes longer than that

Finished = tuple[str, Any, float]
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
    check.that(minutes is None or engine == "local", "minutes", "left out unless the engine is local", minutes)
    deadline = math.inf if minutes is None else time.monotonic() + 60 * check.real("minutes", minutes, low=0.0)
    keys = [task.key(data_dir) for task in tasks]
    found, total = dict[str, Result](), len(set(keys))
    ended: list[TacitError | None] = []

    def look() -> None:
        found.update({key: result for key in keys if key not in found and (result := store.find(key)) is not None})

    look()
    on_progress(len(found), total)
    run = _ray if engine == "ray" else _local
    with store.owner() as owner:
        while missing := {key: task for key, task in zip(keys, tasks, strict=True) if key not in found}:
            leased = _leased(missing, store, owner, deadline, ended)
            for key, value, seconds in run(leased, min(workers, len(missing)), data_dir):
                found[key] = store.add(key, name, missing[key], value, seconds)
                on_progress(len(found), total)
            for error in ended:
                if error is not None:
                    raise error
            if ended:
                break
            look()
            if len(found) < total:
                time.sleep(_POLL)
    return [found[key] for key in keys if key in found]


Tasks = Iterator[tuple[str, Task]]


def _leased(
    tasks: Mapping[str, Task], store: Store, owner: Owner, deadline: float, ended: list[TacitError | None]
) -> Tasks:
    """The tasks that this sweep may run now, each leased the moment before it starts.

    Why no further one starts goes into `ended`: an error, or None for the time. A pool takes the next task in a thread
    of its own, where an error that is raised would be lost.
    """
    for key, task in tasks.items():
        if time.monotonic() >= deadline:
            ended.append(None)
            return
        try:
            mine = store.claim(key, owner)
        except TacitError as error:
            ended.append(error)
            return
        if mine:
            yield key, task


def stored(tasks: Sequence[Task], store: Store, *, data_dir: Folder = None) -> list[Result | None]:
    """Look up tasks in the store: one result or None for each, in their order.

    Args:
        tasks: to look up.
        store: where finished tasks are kept.
        data_dir: folder of the data files, whose fingerprint is part of the keys.
    """
    return [store.find(task.key(data_dir)) for task in tasks]


def _local(tasks: Tasks, workers: int, data_dir: Folder) -> Iterator[Finished]:
    if workers == 1:
        yield from (_timed(key, task, data_dir) for key, task in tasks)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="n_jobs")
        yield from pool(delayed(_alone)(key, task, data_dir) for key, task in tasks)  # type: ignore[misc]


def _ray(tasks: Tasks, workers: int, data_dir: Folder) -> Iterator[Finished]:
    try:
        import ray  # type: ignore[import-not-found]
    except ImportError:
        raise check.fail("engine", "local unless ray is installed", "ray", "pip install 'tacit[ray]'.") from None

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(_alone)
    waiting = [remote.remote(key, task, data_dir) for key, task in tasks]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield ray.get(done[0])


def _alone(key: str, task: Task, data_dir: Folder) -> Finished:
    """Run in a worker process, where several torch threads would only fight for the cores."""
    import torch

    torch.set_num_threads(1)
    return _timed(key, task, data_dir)


def _timed(key: str, task: Task, data_dir: Folder) -> Finished:
    start = time.perf_counter()
    try:
        value = task.call(data_dir)
    except TacitError as error:
        raise type(error)(f"{task}: {error}") from None
    return key, value, time.perf_counter() - start
