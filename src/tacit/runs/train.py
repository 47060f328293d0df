"""`train`: data -> private training -> every accountant -> attacks -> card, ledger and model in one folder."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from tacit import check
from tacit.accounting import Account, Ledger, account
from tacit.atomic import write_text
from tacit.audit import AuditResult
from tacit.data import Dataset
from tacit.noise import SeededStream, Stream
from tacit.plain import json_text
from tacit.reports import Card, write_card
from tacit.runs.audit import attack_model, claim_of
from tacit.runs.config import Config
from tacit.runs.pieces import accuracy_on, cross_entropy, dataset_of, network_of, optimizer_of
from tacit.tradeoff import Epsilon
from tacit.training import Fit, Plan, fit, fit_nonprivate, save_model

Progress = Callable[[str, int, int], None]
_PACKAGES = ("tacit", "torch", "numpy", "scipy", "cryptography", "scikit-learn")


@dataclass(frozen=True)
class Run:
    """A finished run: what `tacit train` prints, and the folder with everything else."""

    folder: Path
    card: Card
    account: Account
    audits: tuple[AuditResult, ...]


def train(
    config: Config,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> Run:
    """Run `config` from data to card.

    The folder gets `card.html`, `card.json`, `ledger.json`, `model.safetensors` and `config.json`. The ledger is
    written with the whole planned run before the first step, so a killed run never understates what was spent.

    Args:
        config: see `Config`.
        data_dir: folder of the original data files.
        out: folder to write, made if needed; `runs/NAME-DATE-TIME` by default.
        on_progress: called with (stage, done, total) as the run goes on.

    Raises:
        InvalidInput, MissingData: before any training.
    """
    started = time.perf_counter()
    dataset = dataset_of(config, data_dir)
    records = len(dataset.y_train)
    check.real("batch_size", config.batch_size, low=1, high=records, hint="It is the expected number of records.")
    folder = Path(out) if out is not None else Path("runs") / f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    model = network_of(config, dataset)
    ledger = Ledger(relation=config.relation)
    for sentence in _assumptions(dataset):
        ledger.assume(sentence)
    write_text(folder / "config.json", json_text(config.settings()))
    fitted = _fit_private(config, dataset, model, ledger, folder, on_progress)
    ledger.save(folder / "ledger.json")
    save_model(model, folder / "model.safetensors")
    twin = _fit_twin(config, dataset, on_progress)
    on_progress("accounting", 0, 1)
    answers = account(ledger, delta=config.delta)
    on_progress("accounting", 1, 1)
    audits = attack_model(config, dataset, model, claim_of(ledger), on_progress)
    card = Card(
        dataset=dataset.name,
        model=_described(config, model),
        method=f"{config.method}: {'DP-Adam' if config.optimizer == 'adam' else 'DP-SGD'}",
        records=records,
        metrics={"test": fitted.history[-1]["test"], "nonprivate_test": twin[-1]["test"]},
        account=answers,
        ledger=ledger,
        audits=audits,
        training_curve={
            "private": [row["test"] for row in fitted.history],
            "nonprivate": [row["test"] for row in twin],
        },
        settings=_settings(config, fitted),
        versions=_versions(),
        wall_seconds=time.perf_counter() - started,
    )
    write_card(card, folder)
    return Run(folder, card, answers, audits)


def _fit_private(
    config: Config, dataset: Dataset, model: nn.Module, ledger: Ledger, folder: Path, on_progress: Progress
) -> Fit:
    target = Epsilon(config.epsilon, config.delta) if config.epsilon is not None else None

    def write_ahead(plan: Plan) -> None:
        ahead = Ledger.from_spec(ledger.spec())
        plan.record(ahead, "planned training")
        ahead.save(folder / "ledger.json")

    return fit(
        model,
        dataset.x_train,
        dataset.y_train,
        loss=cross_entropy,
        optimizer=optimizer_of(config, model),
        clip_norm=config.clip_norm,
        noise_multiplier=config.noise_multiplier,
        target=target,
        batch_size=config.batch_size,
        epochs=config.epochs,
        delta=config.delta,
        ledger=ledger,
        stream=_stream(config),
        evaluate=accuracy_on(dataset),
        on_plan=write_ahead,
        on_step=lambda done, total: on_progress("private training", done, total),
    )


def _fit_twin(config: Config, dataset: Dataset, on_progress: Progress) -> list[dict[str, float]]:
    model = network_of(config, dataset)
    return fit_nonprivate(
        model,
        dataset.x_train,
        dataset.y_train,
        loss=cross_entropy,
        optimizer=optimizer_of(config, model),
        batch_size=config.batch_size,
        epochs=config.epochs,
        stream=_stream(config),
        evaluate=accuracy_on(dataset),
        on_step=lambda done, total: on_progress("non-private twin", done, total),
    )


def _stream(config: Config) -> Stream | None:
    return None if config.unsafe_seed is None else SeededStream(config.unsafe_seed)


def _assumptions(dataset: Dataset) -> list[str]:
    return [
        "Each record belongs to one unit, and the number of training records is public.",
        "Accuracies, attacks and any choice of settings made by looking at them are outside the guarantee.",
        *(f"Read from the data without being paid for: {leak}" for leak in dataset.leaks),
    ]


def _described(config: Config, model: nn.Module) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    widths = f" {'-'.join(map(str, config.hidden))}" if config.model == "mlp" else ""
    return f"{config.model}{widths}, {parameters:,} parameters"


def _settings(config: Config, fitted: Fit) -> dict[str, str | int | float | bool | None]:
    plan = fitted.plan
    return {
        "optimizer": config.optimizer,
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "steps": plan.steps,
        "batch_size": config.batch_size,
        "sample_rate": plan.sample_rate,
        "clip_norm": plan.clip_norm,
        "noise_multiplier": plan.noise_at(0),
        "delta": config.delta,
    }


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}
