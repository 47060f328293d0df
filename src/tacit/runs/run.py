"""`train`: data -> private training -> every accountant -> attacks -> card, ledger and model in one folder.

A run on several processes: rank 0 runs `train`, the others follow its private training and write nothing.
"""

import os
import shlex
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch import distributed as dist

from tacit import check
from tacit.accounting import DECLARED_SIZE, PUBLIC_SIZE, Account, Ledger, account, unpaid
from tacit.accounting.claims import claim_of
from tacit.audit import AuditResult
from tacit.budget import DatasetBudget
from tacit.data import Dataset
from tacit.errors import Refused, TacitError, TrainingMisuse
from tacit.locking import locked, remove_lock
from tacit.noise import compiled
from tacit.reports import Card, coarse_seconds, write_card
from tacit.reports.words import least_epsilon
from tacit.runs import held_out, run_signature
from tacit.runs.audits import attack_model
from tacit.runs.builders import dataset_of, featured, no_progress
from tacit.runs.config import Config
from tacit.runs.decision_metrics import calibration_of, constant_test, decision_metrics, measure_of, metric_on_test
from tacit.runs.default_evidence import StepClock, canary_evidence, record_power
from tacit.runs.folders import write_statement
from tacit.runs.methods import Job, choose_method, method_of
from tacit.runs.methods.base import Method, Progress, SavedLedger, keep_trained, trained_model
from tacit.runs.open_run import open_run
from tacit.runs.prediction import write_preprocessing
from tacit.runs.run_budget import NONE, UNTRACKED, RunBudget, read_budget
from tacit.runs.run_signature import CHECKPOINT, check_texts
from tacit.runs.settings import Folder
from tacit.serialization import json_text, remove_parts, versions_of, write_text
from tacit.signing import Origin
from tacit.standing import Standing
from tacit.training import save_model
from tacit.training.ranks import check_processes, world_size


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: with everything that the run wrote.
        card: what `tacit train` prints.
        account: every accountant's answer.
        audits: what the attacks found.
        budget: the data set that was charged; None where no registry was.
    """

    folder: Path
    card: Card
    account: Account
    audits: tuple[AuditResult, ...]
    budget: DatasetBudget | None = None


def train(
    config: Config,
    *,
    data_dir: Folder | None = None,
    out: Folder | None = None,
    resume: bool = False,
    budget: str | None = None,
    on_progress: Progress = no_progress,
) -> Run:
    """Run `config` from data to card, by the method that it names.

    The folder gets `card.html`, `card.json`, `ledger.json`, `model.safetensors` and `config.json`. The ledger is
    written with the whole planned run before the first step, so a killed run never understates what was spent.

    Args:
        config: see `Config`.
        data_dir: folder of the original data files.
        out: folder to write, made if needed; `runs/NAME-DATE-TIME` by default.
        resume: go on with the run in `out`, which was stopped; see `resume`.
        budget: data set of the registry (`tacit budget`) that is charged; "-" for none. By default the one that the
            records are recognised as, where the project has a registry.
        on_progress: called with (stage, done, total) as the run goes on.

    Raises:
        BudgetExceeded: before anything is released; a cap of the data set would be crossed.
        InvalidInput, MissingData: before any training; also where `out` holds a run, whose ledger would be lost.
        KeyboardInterrupt: with the command that goes on as its message.
    """
    charged = RunBudget.find(config, budget, goes_on=resume)
    dataset = dataset_of(config, data_dir, on_progress)
    config = choose_method(config, dataset)
    given = {"data_dir": data_dir, "out": out, "resume": resume, "on_progress": on_progress}
    return train_by(method_of(config), config, dataset, charged=charged, **given)


def train_by(
    method: Method,
    config: Config,
    dataset: Dataset,
    *,
    charged: RunBudget | None = None,
    data_dir: Folder | None = None,
    out: Folder | None = None,
    resume: bool = False,
    on_progress: Progress = no_progress,
) -> Run:
    """`train` with a method and data that are given as objects.

    Args:
        method: what trains.
        config: settings of the run.
        dataset: what to train and test on.
        charged: where the run is charged; the data set that its records are recognised as by default.
        data_dir: folder of the original data files.
        out: folder to write; `runs/NAME-DATE-TIME` by default.
        resume: go on with the run in `out`.
        on_progress: called with (stage, done, total).

    Raises:
        BudgetExceeded, InvalidInput, KeyboardInterrupt: as `train`.
        TrainingMisuse: this is another of several processes than rank 0.
    """
    started = time.perf_counter()
    if join(config):
        raise TrainingMisuse("train must run at rank 0; got another rank. Call tacit.runs.follow(config) on it.")
    charged = charged if charged is not None else RunBudget.find(config, None, goes_on=resume)
    charged.recognise(config, dataset)
    folder = Path(out) if out is not None else Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    unsigned = run_signature.check_resumable(folder) if resume else ""
    dataset = featured(config, dataset, folder, on_progress)
    sign = partial(run_signature.sign_run, folder, config.model)
    ledger = Ledger(relation=config.relation)
    if method.saves_releases:
        path = folder / "ledger.json"
        ledger = SavedLedger(path, relation=config.relation, on_saved=sign, reserve=charged.cover)
    _begin(ledger, config, dataset, charged)
    if unsigned:
        ledger.mark_unsafe(f"unsafe_run: {unsigned}", Standing.CLAIMED)
    aside = None if method.is_search else held_out.set_aside_of(config, dataset, folder, again=resume)
    given: dict[str, Any] = {"measures_test": held_out.measured_exactly(config)}
    if aside is not None:
        dataset, given["holdout"] = aside.training, aside.holdout
    job = Job(config, dataset, ledger, folder, resume, on_progress, data_dir, sign, charged.cover, **given)
    method.check(job)
    if not method.takes_weights and (config.class_weights or dataset.weights is not None):
        hint = "It would train without the weights."
        raise check.fail("method", "gradient or objective for weighted records or classes", config.method, hint)
    held_out.check_declared(config)
    # What no reader of the run would take.
    check_texts("the configuration", config.settings())
    check_texts("the data set", {"name": dataset.name, "classes": dataset.classes, "features": dataset.feature_names})
    _check_delta(config, config.public_size or len(dataset.y_train))
    folder.mkdir(parents=True, exist_ok=True)
    with locked("out", folder):
        if not resume:
            _check_free(folder)
        if aside is not None:
            aside.write(folder)
        try:
            with charged.reserved(folder, ledger, resume=resume):
                return _run(job, method, started, charged)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"Go on with: {method.resumed_by} {shlex.quote(str(folder))}") from None


def _check_delta(config: Config, records: int) -> None:
    """Refuse delta >= 1/n, at which a mechanism that publishes one random record is private, unless asked for."""
    if config.delta * records >= 1.0 and not config.unsafe_delta:
        rule = f"below 1/n = {1 / records:.2g} for the {records} records of {config.dataset}"
        raise check.fail("delta", rule, config.delta, "To train with it all the same pass --set unsafe_delta=true.")


def _run(job: Job, method: Method, started: float, charged: RunBudget) -> Run:
    """The run from training to card, in a folder that no other process works on."""
    config, dataset, folder, on_progress = job.config, job.dataset, job.folder, job.on_progress
    remove_parts(folder)
    seen = job.resume and (folder / "card.json").exists()
    planned = held_out.planned_cost(config, dataset, "record" if dataset.units is None else "user")
    if planned is not None:
        charged.cover(planned)
    # Of an attempt that was killed before it signed its card: another attempt must not sign it as the run's.
    for name in (run_signature.CARD, run_signature.PAGE):
        (folder / name).unlink(missing_ok=True)
    if not job.resume:
        write_text(folder / "config.json", json_text(config.settings()))
        if dataset.features is not None:
            save_model(dataset.features, folder / run_signature.FEATURES)
        job.sign()
    with job.ledger.planned():  # The configuration was there before the first release.
        clock, began = StepClock(on_progress), time.perf_counter()
        trained = trained_model(replace(job, on_progress=clock), method)
        trained_in = max(time.perf_counter() - began, clock.per_step * job.ledger.steps)
    job.ledger.save(folder / "ledger.json")
    config = trained.config or config
    if trained.config is not None:
        write_text(folder / "config.json", json_text(config.settings()))
        job.sign()  # What follows may take minutes: killed in them, the search goes on.
    keep_trained(job, method, trained)
    baseline, nonprivate = method.nonprivate_baseline(job) if job.measures_test else ((), None)
    on_progress("accounting", 0, 1)
    answers = account(job.ledger, delta=config.delta, check_brackets=find_spec("flint") is not None)
    on_progress("accounting", 1, 1)
    claim = claim_of(job.ledger)
    evidence = canary_evidence(config, dataset, job.ledger, clock.per_step, on_progress)
    audits = attack_model(config, dataset, trained.predict, claim, on_progress)
    power = record_power(job, method, least_epsilon(answers.results), nonprivate, trained_in)
    predicted = trained.predict(dataset.x_test)
    found, told = _test_metrics(job, predicted, answers, charged=charged, seen=seen)
    without = baseline[-1]["test"] if baseline else None
    beside = {"chosen": config.chosen, "budget": charged.dataset and charged.dataset.name}
    versions = versions_of("tacit", "torch", "numpy", "scipy", "cryptography", "scikit-learn")
    card = Card(
        dataset=dataset.name,
        model=trained.model,
        method=f"{config.method}: {trained.algorithm}",
        records=config.public_size or trained.units or len(dataset.y_train),
        measure=measure_of(dataset),
        metrics={"test": None, "nonprivate_test": without} | found | dict(trained.metrics),
        held_out=told,
        calibration=calibration_of(dataset, predicted) if job.measures_test else (),
        account=answers,
        ledger=job.ledger,
        leaks=dataset.leaks,
        audits=audits,
        evidence=evidence,
        power=power,
        training_curve={
            "private": [row["test"] for row in trained.history if job.measures_test],
            "nonprivate": [row["test"] for row in baseline],
        },
        settings=dict(trained.settings) | {name: value for name, value in beside.items() if value},
        versions=versions | {"noise": compiled.engine()},
        # How long a search took would tell how many trials it made.
        wall_seconds=0.0 if method.is_search else coarse_seconds(time.perf_counter() - started),
        training_seconds=0.0 if method.is_search else coarse_seconds(trained_in),
        about=config.section("statement").about(dataset.name),
    )
    write_preprocessing(folder, config, dataset)
    write_card(card, folder, digests=run_signature.digests_of(folder))
    run_signature.sign_run(folder, config.model)
    _remove_states(folder)
    if "statement" in config.sections:
        _state(folder)
    return Run(folder, card, answers, audits, charged.dataset)


def _state(folder: Path) -> None:
    """Write the statement of a run that is finished; it stays finished where that fails."""
    try:
        write_statement(folder)
    except (TacitError, OSError) as error:
        warnings.warn(f"no statement was written: {error} `tacit statement {folder}` writes it.", RuntimeWarning, 2)


def _test_metrics(
    job: Job, predicted: np.ndarray, answers: Account, *, charged: RunBudget, seen: bool
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """What the card says of the test records: (metrics, how they were measured).

    Args:
        job: of the run.
        predicted: for the test records.
        answers: of the accountants for the training.
        charged: where the run is charged; what test records pay by themselves is charged nowhere unless planned.
        seen: whether an earlier attempt made a card, so that a second result with noise would tell more.
    """
    config, dataset = job.config, job.dataset
    if job.measures_test:
        exact = metric_on_test(dataset, predicted)
        further = {"constant_test": constant_test(dataset), **decision_metrics(dataset, predicted)}
        return {"test": exact, **further}, held_out.told_exactly(config)
    try:
        if charged.dataset is not None and config.test_epsilon is None:
            raise Refused("a run that a registry is charged for measures them at a test_epsilon only")
        if seen:
            raise Refused("an earlier attempt of this run may have shown their result")
        value, told = held_out.noisy_result(config, dataset, predicted, answers, job.ledger)
    except Refused as why:
        return {"test": None}, held_out.not_measured(str(why))
    return {"test": value}, told


def resume(
    run: Folder,
    *,
    data_dir: Folder | None = None,
    unsafe_seed: int | None = None,
    trust_code: bool = False,
    on_progress: Progress = no_progress,
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
    opened = open_run(run)
    folder, config = opened.folder, opened.config({"unsafe_seed": unsafe_seed}, trust_code=trust_code)
    if opened.state == "finished":
        if opened.seal.signature is Origin.OWN:  # It may have been killed right after it signed its card.
            with locked("RUN", folder):
                remove_parts(folder)
                _remove_states(folder)
        raise check.fail("RUN", "the folder of a run that was stopped", str(folder), "This one is finished.")
    written = (folder / run_signature.LEDGER).exists() or run_signature.LEDGER in opened.seal.files
    needed = run_signature.CHECKPOINT if method_of(config).keeps_checkpoints else run_signature.LEDGER
    if written and not any((folder / name).exists() for name in (needed, run_signature.CHECKPOINT)):
        hint = "Without it nothing tells what was spent. Start anew in another folder."
        raise check.fail("RUN", f"the folder of a run with its {needed}", str(folder), hint)
    charged = read_budget(folder)
    name = NONE if charged is None else charged["dataset"]
    return train(config, data_dir=data_dir, out=folder, resume=True, budget=name, on_progress=on_progress)


def _remove_states(folder: Path) -> None:
    for name in (run_signature.CHECKPOINT, run_signature.TRAINED, run_signature.SEARCH):
        (folder / name).unlink(missing_ok=True)
    remove_lock(folder / run_signature.CHECKPOINT)


def _check_free(folder: Path) -> None:
    """A run writes over no other: half of each would be left if it were killed."""
    files = ("ledger.json", run_signature.MODEL, "card.json", CHECKPOINT, run_signature.SEARCH)
    hint = "Give another one, or go on with a run that was stopped by --resume."
    check.that(not any((folder / name).exists() for name in files), "out", "a folder without a run", str(folder), hint)


def _begin(ledger: Ledger, config: Config, dataset: Dataset, charged: RunBudget) -> None:
    """Write what is known before the first release."""
    ledger.assume(PUBLIC_SIZE if config.public_size is None else DECLARED_SIZE)
    if config.public_size is None:
        ledger.leave_places()
    if charged.dataset is None:
        ledger.assume(UNTRACKED)
    if dataset.features is not None:
        ledger.assume(dataset.features.sentence)
    if config.unsafe_delta:
        ledger.mark_unsafe("unsafe_delta")
    if config.unsafe_test_metrics and not held_out.public_test(config):
        ledger.mark_unsafe(held_out.SWITCH)
    ledger.assume("Test results, attacks and any choice of settings made by looking at them are outside the guarantee.")
    # A registered data set was prepared before it was published; whoever reads an own table can declare the rest.
    for leak in dataset.leaks:
        if config.table is None:
            ledger.assume(unpaid(leak))
        else:
            ledger.read_from_data(leak)


def join(config: Config) -> int:
    """The rank of this process among those that a launcher such as torchrun started; 0 where it is alone.

    Initialises the process group (gloo) where no one has.

    Args:
        config: of the run; every rank has the same.

    Raises:
        InvalidInput: the method or the private validation of `config` is of one process only.
        TrainingMisuse: there are several processes, and neither a process group nor torchrun that tells of it.

    Example:
        >>> join(Config(noise_multiplier=1.0))
        0
    """
    if world_size() == 1:
        return 0
    if not method_of(config).trains_on_ranks:
        raise check.fail("method", "gradient on several processes", config.method, "Start one process (WORLD_SIZE=1).")
    if (kind := config.section("validation").type) != "none":
        raise check.fail("validation", "none on several processes", kind, "Start one process (WORLD_SIZE=1).")
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            check_processes()
        dist.init_process_group("gloo")
    return dist.get_rank()


def leave() -> None:
    """End the process group of a run that is over, where there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def follow(config: Config, *, data_dir: Folder | None = None, resumed: Folder | None = None) -> None:
    """Take part in the private training that rank 0 runs with the same `config`; call it on every other rank.

    Nothing is written, charged or measured here; the ledger is a copy of rank 0's.

    Args:
        config: settings of the run, those of rank 0.
        data_dir: folder of the original data files.
        resumed: folder of the run that rank 0 goes on with; None for a new one.

    Raises:
        TrainingMisuse: ranks differ in data, model or plan.
    """
    folder = Path(resumed) if resumed is not None else Path(os.devnull)
    dataset = featured(config, dataset_of(config, data_dir), folder)
    kept = resumed is not None and (folder / CHECKPOINT).exists()
    ledger = Ledger(relation=config.relation)
    method_of(config).follow(Job(config, dataset, ledger, folder, resume=kept, checkpoints=kept))
