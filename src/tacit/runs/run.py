"""`train`: data -> private training -> every accountant -> attacks -> card, ledger and model in one folder."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from tacit import check
from tacit.accounting import PUBLIC_SIZE, Account, Ledger, account, unpaid
from tacit.audit import AuditResult
from tacit.data import Dataset
from tacit.reports import Card, coarse_seconds, write_card
from tacit.runs.attacks import attack_model, claim_of
from tacit.runs.builders import dataset_of
from tacit.runs.config import Config
from tacit.runs.methods import Job, method_of
from tacit.runs.methods.base import CHECKPOINT, MODEL, Progress
from tacit.runs.metrics import constant_test, metric_of
from tacit.runs.run_signature import sign_run
from tacit.runs.stored_run import stored_config
from tacit.serialization import json_text, write_text

_PACKAGES = ("tacit", "torch", "numpy", "scipy", "cryptography", "scikit-learn")


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: with everything that the run wrote.
        card: what `tacit train` prints.
        account: every accountant's answer.
        audits: what the attacks found.
    """

    folder: Path
    card: Card
    account: Account
    audits: tuple[AuditResult, ...]


def train(
    config: Config,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> Run:
    """Run `config` from data to card, by the method that it names.

    The folder gets `card.html`, `card.json`, `ledger.json`, `model.safetensors` and `config.json`. The ledger is
    written with the whole planned run before the first step, so a killed run never understates what was spent.

    Args:
        config: see `Config`.
        data_dir: folder of the original data files.
        out: folder to write, made if needed; `runs/NAME-DATE-TIME` by default.
        resume: go on with the run in `out`, which was stopped; see `resume`.
        on_progress: called with (stage, done, total) as the run goes on.

    Raises:
        InvalidInput, MissingData: before any training; also where `out` holds a run, whose ledger would be lost.
    """
    started = time.perf_counter()
    dataset = dataset_of(config, data_dir, on_progress)
    records = len(dataset.y_train)
    folder = Path(out) if out is not None else Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    method = method_of(config)
    if resume and not method.resumable:
        raise check.fail("method", "one that can be resumed", config.method, "Start the run anew.")
    job = Job(config, dataset, _fresh_ledger(config, dataset), folder, resume, on_progress, data_dir)
    method.check(job)
    if not resume:
        _check_free(folder)
    write_text(folder / "config.json", json_text(config.settings()))
    sign_run(folder, config.model)
    trained = method.train(job)
    job.ledger.save(folder / "ledger.json")
    baseline = method.nonprivate_baseline(job)
    on_progress("accounting", 0, 1)
    answers = account(job.ledger, delta=config.delta)
    on_progress("accounting", 1, 1)
    audits = attack_model(config, dataset, trained.predict, claim_of(job.ledger), on_progress)
    metric = metric_of(dataset)
    card = Card(
        dataset=dataset.name,
        model=trained.model,
        method=f"{config.method}: {trained.algorithm}",
        records=trained.units or records,
        measure=metric.name,
        metrics={
            "test": metric(trained.predict(dataset.x_test), dataset.y_test),
            "nonprivate_test": baseline[-1]["test"] if baseline else None,
            "constant_test": constant_test(dataset),
            **trained.metrics,
        },
        account=answers,
        ledger=job.ledger,
        leaks=dataset.leaks,
        audits=audits,
        training_curve={
            "private": [row["test"] for row in trained.history],
            "nonprivate": [row["test"] for row in baseline],
        },
        settings=trained.settings,
        versions=_versions(),
        wall_seconds=coarse_seconds(time.perf_counter() - started),
    )
    write_card(card, folder)
    sign_run(folder, config.model)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return Run(folder, card, answers, audits)


def resume(
    run: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    unsafe_seed: int | None = None,
    trust_code: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> Run:
    """Go on with the run in the folder `run`, which was stopped, from its last checkpoint to the card.

    The settings are those it began with. Steps that may have been taken after the checkpoint count as spent, beside
    those that are taken again.

    Args:
        run: folder of the run.
        data_dir: folder of the data files.
        unsafe_seed: of a seeded run, whose seed is kept nowhere.
        trust_code: run the code that a received run names as its model; its file and hash are shown.
        on_progress: called with (stage, done, total).

    Raises:
        InvalidInput: the folder is no run, one that is finished, or one whose checkpoint is gone.
    """
    folder = Path(run)
    config = stored_config(folder, {"unsafe_seed": unsafe_seed}, trust_code=trust_code, stopped=True)
    if (folder / "card.json").exists():
        raise check.fail("RUN", "the folder of a run that was stopped", str(folder), "This one is finished.")
    if method_of(config).resumable and not (folder / CHECKPOINT).exists():
        hint = "Without it nothing tells what was spent. Start anew in another folder."
        raise check.fail("RUN", f"the folder of a run with its {CHECKPOINT}", str(folder), hint)
    return train(config, data_dir=data_dir, out=folder, resume=True, on_progress=on_progress)


def _check_free(folder: Path) -> None:
    """A run writes over no other: half of each would be left if it were killed."""
    if any((folder / name).exists() for name in ("ledger.json", MODEL, "card.json", CHECKPOINT)):
        hint = "Give another one, or go on with a run that was stopped by --resume."
        raise check.fail("out", "a folder without a run", str(folder), hint)


def _fresh_ledger(config: Config, dataset: Dataset) -> Ledger:
    ledger = Ledger(relation=config.relation)
    ledger.assume(PUBLIC_SIZE)
    ledger.assume("Test results, attacks and any choice of settings made by looking at them are outside the guarantee.")
    # A registered data set was prepared before it was published; whoever reads an own table can declare the rest.
    for leak in dataset.leaks:
        if config.table is None:
            ledger.assume(unpaid(leak))
        else:
            ledger.read_from_data(leak)
    return ledger


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}
