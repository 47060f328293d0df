"""What a run has to do with the registry of a project: found before the data are read, reserved, settled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import Ledger
from tacit.budget import DatasetBudget, Registry, Reservation, find_registry
from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Mechanism
from tacit.runs.config import Config
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import BUDGET
from tacit.serialization import json_text, write_text
from tacit.signing import Origin, origin_of, signature_of
from tacit.tradeoff import Epsilon
from tacit.training.plan import resolve_steps

DATASET = "TACIT_BUDGET_DATASET"
"""Environment variable with the data set that runs are charged to; NONE charges none."""
NONE = "-"
"""The name that stands for no data set."""
UNTRACKED = (
    "The total over runs on these records is not tracked: what this run states is of this run alone, and only claimed "
    "across runs"
)
"""The assumption of a run that no registry is charged for."""
Planned = Callable[[int | None], Mechanism | None]
_KIND = "run budget"
_LOOP = {"clip", "noise", "sampling", "validation"}


@dataclass
class RunBudget:
    """Where a run is charged, if anywhere.

    Attributes:
        registry: of the project; None without one.
        dataset: that is charged; None where none is.
        off: whether the user asked for no charge.
        planned: the run on so many records, None where only the data tell; that of the configuration by default.
        reservation: of the run, once it is reserved.
        recognised: whether the records were looked at.
        goes_on: whether the run was reserved before it was stopped; what it needs beyond that is checked then.
    """

    registry: Registry | None
    dataset: DatasetBudget | None
    off: bool
    planned: Planned | None = None
    reservation: Reservation | None = field(default=None)
    recognised: bool = False
    goes_on: bool = False

    @classmethod
    def find(
        cls, config: Config, name: str | None, planned: Planned | None = None, *, goes_on: bool = False
    ) -> RunBudget:
        """The registry and the data set called `name`, checked before any data are read.

        Args:
            config: of the run.
            name: of the data set; `NONE` charges none, None the one that the records are recognised as.
            planned: as in the attribute.
            goes_on: as in the attribute.

        Raises:
            BudgetExceeded: the run would cross a cap.
            InvalidInput: the name or the relation is not that of a declared data set.
        """
        name = name if name is not None else os.environ.get(DATASET) or None
        registry = find_registry()
        if name in (None, NONE):
            return cls(registry, None, name == NONE, planned, goes_on=goes_on)
        if registry is None:
            raise check.fail("budget", "the name of a data set in a registry", name, "Run tacit budget init NAME.")
        found = cls(registry, registry.dataset(name), False, planned, goes_on=goes_on)
        found._check(config)
        return found

    def recognise(self, config: Config, data: Dataset) -> None:
        """Find the data set that holds these records, whatever they are called.

        Raises:
            InvalidInput: they are those of another data set than the one that was named, or of several.
        """
        if self.registry is None or self.recognised:
            return
        self.recognised = True
        known = self.registry.recognise(data.x_train, data.y_train)
        if self.off:
            for name in known:
                self.registry.dataset(name).note_untracked(config.name)
            return
        if self.dataset is None and known:
            check.that(len(known) <= 1, "budget", f"given: these records are those of {', '.join(known)}", None)
            self.dataset = self.registry.dataset(known[0])
            self._check(config)
        if self.dataset is None:
            return
        others = [name for name in known if name != self.dataset.name]
        if others:
            hint = f"Use --budget {others[0]}: the same people cannot be charged under two names."
            raise check.fail("budget", f"{others[0]}, which holds these records", self.dataset.name, hint)
        self.dataset.register(data.x_train, data.y_train)

    def _check(self, config: Config) -> None:
        """Refuse before the data are read what their public size shows to be too much."""
        assert self.dataset is not None
        known = self.dataset.known
        rule = f"{known.relation}, that of data set {self.dataset.name!r}"
        check.that(known.relation == config.relation, "relation", rule, config.relation)
        if self.goes_on:
            return
        records = known.facts.get("records")
        planned = planned_run(config, records) if self.planned is None else self.planned(records)
        if planned is not None:
            self.dataset.check(planned, config.name)
        else:
            self.dataset.check_left(config.name)

    def cover(self, ledger: Ledger) -> None:
        """Reserve what `ledger` holds, before any of it runs; nothing without a data set."""
        if self.reservation is not None:
            self.reservation.cover(ledger)

    @contextmanager
    def reserved(self, folder: Path, ledger: Ledger, *, resume: bool) -> Iterator[None]:
        """Context of the run in `folder`, which is settled at its end; one that charged nothing is given back."""
        if self.dataset is None:
            yield
            return
        self.reservation = self._stored(folder) if resume else None
        if self.reservation is None:
            self.reservation = self.dataset.reserve(label=folder.name)
            table = {"dataset": self.dataset.name, "id": self.reservation.id, "block": self.reservation.block}
            write_text(folder / BUDGET, json_text({"budget": table, "signature": signature_of(_KIND, table)}))
        try:
            yield
        except BaseException:
            if not resume and not ledger.entries:
                self.reservation.abandon(ledger)
            raise
        self.reservation.settle(ledger)

    def _stored(self, folder: Path) -> Reservation | None:
        found = read_budget(folder)
        if found is None:
            return None
        assert self.dataset is not None
        if found["dataset"] != self.dataset.name:
            raise check.fail("budget", f"{found['dataset']}, which the run began with", self.dataset.name)
        return Reservation(self.dataset, found["id"], found["block"])


def read_budget(folder: Path) -> dict[str, Any] | None:
    """Data set, reservation and block of the run in `folder`; None for one that was not charged."""
    if not (folder / BUDGET).exists():
        return None
    content = open_run(folder).table(BUDGET)
    table = check.instance("budget", content.get("budget"), dict, "a table")
    if origin_of(_KIND, table, content.get("signature")) is not Origin.OWN:
        raise InvalidInput(f"{BUDGET} must be as the run wrote it; it was edited. Start anew in another folder.")
    return table


def note_audit(folder: Path) -> None:
    """Write into the registry that models were trained for an audit of the run in `folder`, and not released."""
    table, registry = read_budget(folder), find_registry()
    if table is not None and registry is not None:
        registry.dataset(table["dataset"]).note_audit(folder.name)


def planned_run(config: Config, records: int | None) -> Mechanism | None:
    """The run of `config` on so many records; None where only the data tell."""
    records = config.public_size or records
    if records is None or config.method != "gradient" or config.sections.keys() & _LOOP or config.batch_size > records:
        return None
    rate = config.batch_size / records
    steps = resolve_steps(rate, None, config.epochs)
    noise = config.noise_multiplier

    def run(noise: float) -> Mechanism:
        return Gaussian(noise).poisson(rate) * steps

    if noise is None and config.epsilon is not None:
        target = Epsilon(config.epsilon, config.delta)
        noise = smallest("noise_multiplier", run, target, relation=config.relation).value
    return None if noise is None else run(noise)
