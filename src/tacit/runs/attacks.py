"""Attacks on a run's model: right after training, or later on its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.attacks import LossThreshold, Scores, attack_named
from tacit.audit import AuditResult, audit_scores
from tacit.data import Dataset
from tacit.errors import InvalidInput, Refused
from tacit.runs.builders import dataset_of
from tacit.runs.config import Config
from tacit.runs.features import featured
from tacit.runs.methods import Job, method_of
from tacit.runs.methods.base import Predict, Progress
from tacit.runs.open_run import open_run
from tacit.runs.validation import trained_on
from tacit.tradeoff import TradeOff


def attack_model(
    config: Config,
    dataset: Dataset,
    predict: Predict,
    claim: TradeOff | None,
    on_progress: Progress = lambda stage, done, total: None,
) -> tuple[AuditResult, ...]:
    """Every attack of `config`: training records are the members, held-out records the non-members.

    Args:
        config: names the attacks, delta, relation and confidence.
        dataset: its training records are the members.
        predict: inputs -> class probabilities.
        claim: trade-off function that the ledger proves; None without one.
        on_progress: called with (stage, done, total).
    """
    results = []
    for done, name in enumerate(config.attacks):
        on_progress("attacks", done, len(config.attacks))
        results.append(audit_result(scores_of(name, dataset, predict), config, claim))
        on_progress("attacks", done + 1, len(config.attacks))
    return tuple(results)


def audit_result(scores: Scores, config: Config, claim: TradeOff | None, *, trials: str = "records") -> AuditResult:
    """The bounds that `scores` give, at the delta, relation and confidence of `config`.

    Args:
        scores: of members and non-members.
        config: gives delta, relation and confidence.
        claim: trade-off function that the ledger proves; None without one.
        trials: what one score is of, e.g. "records".
    """
    return audit_scores(
        scores,
        delta=config.delta,
        trials=trials,
        relation=config.relation,
        confidence=config.confidence,
        claim=claim,
    )


def scores_of(name: str, dataset: Dataset, predict: Predict) -> Scores:
    """Scores of a black-box attack: training records are the members, held-out records the non-members."""
    attack = attack_named(name)
    members, non_members = (dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test)
    if dataset.task != "regression":
        return attack(predict, members=members, non_members=non_members)
    if not isinstance(attack, LossThreshold):
        raise needs_classes(name)
    losses = [(predict(x) - y) ** 2 for x, y in (members, non_members)]
    return attack.from_losses(*losses)


def needs_classes(attack: str) -> InvalidInput:
    """The error for an attack on a regression that reads class probabilities."""
    return check.fail("attack", "loss_threshold for a regression", attack, "The others need class probabilities.")


def claim_of(ledger: Ledger) -> TradeOff | None:
    """The exact accountant's trade-off function, which an audit tests; None where that accountant does not apply."""
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
    trust_code: bool = False,
) -> tuple[AuditResult, ...]:
    """Attack the model in the folder of an earlier `train`.

    Args:
        run: folder of an earlier `train`.
        data_dir: folder of the data files.
        attacks: names of the attacks; those of the run's settings by default.
        confidence: of every bound, in (0, 1); that of the run's settings by default.
        trust_code: run the code that a received run names as its model; its file and hash are shown.

    Raises:
        InvalidInput: the folder is not a complete run, or an attack is unknown.
    """
    opened = open_run(run)
    given = {"attacks": None if attacks is None else list(attacks), "confidence": confidence}
    config = opened.config(given, trust_code=trust_code)
    dataset = trained_on(config, featured(config, dataset_of(config, data_dir), opened.folder), opened.folder)
    predict = method_of(config).load(Job(config, dataset, opened.ledger, opened.folder))
    opened.warn()
    return attack_model(config, dataset, predict, claim_of(opened.ledger))
