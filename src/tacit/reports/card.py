"""The privacy card: everything a run promises and everything that was found against it, on one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit import check
from tacit.accounting import Account, Ledger
from tacit.audit import AuditResult
from tacit.reports import words
from tacit.serialization import plain_values

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Card:
    """What a card shows; `tacit.reports.write_card` formats it and computes nothing about privacy.

    A card is read by people who must not see the training data: it holds no record, no per-record loss or score, and
    no seed. Its audits and accuracies are statistics of private data that the guarantee does not cover; the page
    says so.

    Attributes:
        dataset: what it was trained on, in a few words.
        model: what was trained, in a few words.
        method: how it was trained, in a few words.
        records: how many units (ledger.unit) the training data holds.
        metrics: `test` and `nonprivate_test` by `measure` (None when not measured), and any others.
        account: every accountant's answer at one delta, and the refusals.
        ledger: what ran.
        leaks: what was read from the data without a privacy cost, named beside every guarantee.
        audits: what attacks found.
        measure: "accuracy", in [0, 1], or "rmse", in the units of the answers.
        calibration: of two classes: a row for each bin of the second one's predicted chance: `start` and `end` of the
            bin, mean chance `predicted`, `share` of the class with the band `low` to `high`, and `rows`.
        training_curve: `measure` after each epoch under `private` and `nonprivate`.
        held_out: how the test records were measured: `records` "public" or "private", `test` "exact", "noisy" or "not
            measured", what they paid, and one sentence that `says` so.
        settings: what the run was configured with, single values only.
        versions: of the programs that ran.
        wall_seconds: from start to card, by `coarse_seconds`.

    Raises:
        InvalidInput: no `test` metric, unknown training curves, a setting that is not a single value or is a seed.
    """

    dataset: str
    model: str
    method: str
    records: int
    metrics: Mapping[str, float | None]
    account: Account
    ledger: Ledger
    wall_seconds: float
    leaks: Sequence[str] = ()
    audits: Sequence[AuditResult] = ()
    calibration: Sequence[Mapping[str, float]] = ()
    training_curve: Mapping[str, Sequence[float]] = field(default_factory=dict)
    held_out: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    title: str = "Privacy card"
    measure: str = "accuracy"

    def __post_init__(self) -> None:
        check.choice("measure", self.measure, words.MEASURES)
        check.count("records", self.records)
        check.real("wall_seconds", self.wall_seconds, low=0.0)
        if "test" not in self.metrics:
            raise check.fail("metrics", "a table with the key test", sorted(self.metrics))
        check.keys("training_curve", self.training_curve, ("private", "nonprivate"))
        for name, value in self.settings.items():
            if "seed" in name.lower():
                raise check.fail("settings", "free of seeds", name, "A seed would let a reader redraw the noise.")
            if not isinstance(value, Scalar):
                raise check.fail(f"settings.{name}", "a single value", type(value).__name__)


def coarse_seconds(seconds: float) -> float:
    """`seconds` rounded up to a power of two, at least 1.

    Steps take longer for larger batches, whose sizes are private. Rounded, the time tells only its order of magnitude;
    the rest of the dependence is outside of the guarantee, as timing is in all of differential privacy's theorems.

    Example:
        >>> coarse_seconds(0.3), coarse_seconds(70.0), coarse_seconds(128.0)
        (1.0, 128.0, 128.0)
    """
    return 2.0 ** math.ceil(math.log2(max(seconds, 1.0)))


def card_table(card: Card) -> dict[str, Any]:
    """The content of `card.json`: plain values, infinity spelled "inf"."""
    return plain_values(
        {
            "title": card.title,
            "dataset": card.dataset,
            "records": card.records,
            "model": card.model,
            "method": card.method,
            "measure": card.measure,
            "metrics": {"nonprivate_test": None} | dict(card.metrics),
            "held_out": dict(card.held_out),
            "calibration": [dict(row) for row in card.calibration],
            "guarantees": [result.row() for result in card.account.results],
            "refused": [{"accountant": name, "why": why} for name, why in card.account.refused],
            "checked": None if card.account.checked is None else card.account.checked.row(),
            "audits": [_audit_row(card, audit) for audit in card.audits],
            "leaks": list(card.leaks),
            "training_curve": {name: list(values) for name, values in card.training_curve.items()},
            "settings": dict(card.settings),
            "versions": dict(card.versions),
            "wall_seconds": card.wall_seconds,
        }
        | ledger_table(card.ledger)
    )


def ledger_table(ledger: Ledger) -> dict[str, Any]:
    """What a card repeats of its ledger, by which one that belongs to another ledger is known."""
    return {
        "unit": ledger.unit,
        "relation": ledger.relation.value,
        "scope": ledger.scope,
        "mechanisms": ledger.spec()["mechanisms"],
        "ledger_hash": ledger.hash,
        "facts": ledger.facts.spec(),
        "assumptions": list(ledger.assumptions),
        "unsafe": list(ledger.unsafe),
    }


def refuted(card: Card, audit: AuditResult) -> list[str]:
    """The accountants whose curve `audit` is incompatible with."""
    return [result.tradeoff.source for result in card.account.results if audit.refutes(result.tradeoff)]


def _audit_row(card: Card, audit: AuditResult) -> dict[str, Any]:
    return audit.row() | {
        "estimator": audit.estimator,
        "trials": audit.trials.value,
        "statement": audit.statement,
        "advantage_interval": list(audit.advantage_interval),
        "delta": audit.delta,
        "members": audit.members,
        "non_members": audit.non_members,
        "detectable_epsilon": audit.detectable_epsilon,
        "refutes": refuted(card, audit),
    }
