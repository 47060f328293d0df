"""Attacks on a run's model: right after training, or later on its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import nn

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.attacks import attack_named
from tacit.audit import AuditResult, audit_scores
from tacit.data import Dataset
from tacit.errors import InvalidInput, Refused
from tacit.runs.config import Config, config_from_table
from tacit.runs.pieces import dataset_of, network_of, probabilities
from tacit.tradeoff import TradeOff
from tacit.training import load_model


def attack_model(
    config: Config,
    dataset: Dataset,
    model: nn.Module,
    claim: TradeOff | None,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> tuple[AuditResult, ...]:
    """Every attack of `config`: training records are the members, held-out records the non-members."""
    results = []
    for done, name in enumerate(config.attacks):
        on_progress("attacks", done, len(config.attacks))
        scores = attack_named(name)(
            probabilities(model),
            members=(dataset.x_train, dataset.y_train),
            non_members=(dataset.x_test, dataset.y_test),
        )
        results.append(
            audit_scores(
                scores,
                delta=config.delta,
                relation=config.relation,
                confidence=config.confidence,
                claim=claim,
            )
        )
        on_progress("attacks", done + 1, len(config.attacks))
    return tuple(results)


def claim_of(ledger: Ledger) -> TradeOff | None:
    """The exact accountant's curve, the claim that an audit is held against; None where it refuses."""
    try:
        return accountant("pld")(ledger)
    except Refused:
        return None


def audit(
    run: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    attacks: Iterable[str] | None = None,
    confidence: float | None = None,
) -> tuple[AuditResult, ...]:
    """Attack the model in the folder of an earlier `train`.

    Raises `InvalidInput` when the folder is not a complete run or an attack is unknown.
    """
    folder = Path(run)
    for name in ("config.json", "ledger.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise check.fail("RUN", f"the folder of a finished `tacit train`, with {name} in it", str(folder))
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"config.json must be JSON; got a damaged file. {error}") from None
    if attacks is not None:
        settings["attacks"] = list(attacks)
    if confidence is not None:
        settings["confidence"] = confidence
    config = config_from_table(settings)
    dataset = dataset_of(config, data_dir)
    model = network_of(config, dataset)
    load_model(model, folder / "model.safetensors")
    return attack_model(config, dataset, model, claim_of(Ledger.load(folder / "ledger.json")))
