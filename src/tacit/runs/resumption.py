"""Going on with a run that was stopped: every run ends in a card, and what may have been lost counts as spent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.runs.methods.base import Job, Method, Predict, Trained
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import LEDGER, MODEL, TRAINED
from tacit.serialization import json_text, write_text
from tacit.signing import Origin, origin_of, signature_of
from tacit.training.resume import LOST


class SavedLedger(Ledger):
    """A ledger that is on disk before `add` returns, for methods of few releases.

    Args:
        path: the file.
        relation: as in `Ledger`.
        on_saved: called once it is on disk and before the release, so that the file cannot be taken away unnoticed.
        reserve: called with the ledger as it will stand, before anything is recorded.
    """

    def __init__(
        self,
        path: Path,
        *,
        relation: Relation | str,
        on_saved: Callable[[], None],
        reserve: Callable[[Ledger], None] = lambda ledger: None,
    ):
        super().__init__(relation=relation)
        self._path: Path | None = path
        self._on_saved, self._reserve = on_saved, reserve

    def add(self, mechanism: Mechanism, steps: int = 1, note: str = "") -> None:
        """Record that `mechanism` runs now, in the file first of all."""
        ahead = self.copy()
        ahead.add(mechanism, steps, note)
        self._reserve(ahead)
        super().add(mechanism, steps, note)
        if self._path is not None:
            self.save(self._path)
            self._on_saved()

    def absorb(self, other: Ledger, note: str = "") -> None:
        """Record what ran under `other`; the file is replaced once, so that it never holds a part of it."""
        path, self._path = self._path, None
        super().absorb(other, note)
        self._path = path
        if path is not None:
            self.save(path)
            self._on_saved()


def trained_model(job: Job, method: Method) -> Trained:
    """The private model of the run: trained, taken from an earlier attempt that finished, or what the budget leaves.

    A method without checkpoints begins anew after an interruption; what the earlier attempt may have released counts as
    lost beside it. Where the run had a target epsilon, that leaves nothing to train with.
    """
    if not job.resume or method.keeps_checkpoints:
        return method.train(job)
    kept = _kept(job, method)
    if kept is not None:
        job.ledger.absorb(open_run(job.folder).ledger)
        return kept
    if not (job.folder / LEDGER).exists():
        return method.train(job)
    lost = open_run(job.folder).ledger
    job.ledger.absorb(_lost(lost))
    if job.config.epsilon is None or not lost.entries:
        return method.train(job)
    left = method.untrained(job)
    why = "an interruption lost what the whole budget was spent on"
    return replace(left, settings={**left.settings, "stopped": why})


def keep_trained(job: Job, method: Method, trained: Trained) -> None:
    """Write down what the card will say, so that a kill from here on costs nothing; not where checkpoints do that."""
    if method.keeps_checkpoints:
        return
    table = trained_table(trained)
    write_text(job.folder / TRAINED, json_text({"trained": table, "signature": signature_of(TRAINED, table)}))
    job.sign()


def _kept(job: Job, method: Method) -> Trained | None:
    """What an earlier attempt wrote down once it had trained; None where it did not come so far."""
    path = job.folder / TRAINED
    if not path.exists() or not (job.folder / MODEL).exists():
        return None
    content = open_run(job.folder).table(TRAINED)
    table = check.instance(f"trained of {TRAINED}", content.get("trained"), dict, "a table")
    if origin_of(TRAINED, table, content.get("signature")) is Origin.EDITED:
        raise InvalidInput(f"{TRAINED} must be as the run wrote it; it was edited. Start anew in another folder.")
    return trained_from(table, method.load(job))


def trained_table(trained: Trained) -> dict[str, Any]:
    """What a card says of `trained`, as plain values."""
    named = {
        each.name: getattr(trained, each.name) for each in fields(trained) if each.name not in ("predict", "config")
    }
    plain = {key: dict(value) if isinstance(value, Mapping) else value for key, value in named.items()}
    return json.loads(json_text(plain))


def trained_from(table: Mapping[str, Any], predict: Predict) -> Trained:
    """The model of a `trained_table` with its predictions."""
    metrics = {name: None if value is None else float(value) for name, value in table["metrics"].items()}
    history = [{name: float(value) for name, value in row.items()} for row in table["history"]]
    rest = {name: value for name, value in table.items() if name not in ("metrics", "history")}
    return Trained(predict=predict, history=history, metrics=metrics, **rest)


def _lost(ledger: Ledger) -> Ledger:
    """The same ledger, every entry of it marked as lost."""
    marked = ledger.copy()
    marked._entries = []
    for entry in ledger.entries:
        marked.add(entry.mechanism, entry.steps, LOST)
    return marked
