"""Differentially private lottery tickets: a sparse network found, chosen and trained with one ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import check
from tacit.errors import InvalidInput
from tacit.runs.methods.base import Job, Method, Scalar, Trained
from tacit.runs.settings import setting

if TYPE_CHECKING:
    from torch import nn

    from tacit.data import Dataset
    from tacit.runs.methods.base import Predict
    from tacit.tickets import Ticket, TicketPlan, TicketRun

MODES = ("paper", "T1", "T2", "T3", "T4")
DATA_FREE = ("random", "start_magnitude", "synflow")


@dataclass(frozen=True)
class TicketMethod(Method):
    """The [ticket] section; epsilon, delta, epochs, batch_size, clip_norm and learning_rate are the run's own.

    Modes: "T1", a ticket of public origin; "T2", pruned from a privately trained dense network; "T3", the same, chosen
    on a private validation part; "T4", that with parallel composition; "paper", as published, which is only claimed.
    """

    mode: str = setting("T2", "paper, T1, T2, T3 or T4.")
    origin: str = setting("random", "Of T1: random, start_magnitude, synflow, or a public data set.")
    density: float = setting(0.1, "Of T1: share of weights that survives; the largest, where a data set gives it.")
    densities: tuple[float, ...] = setting((0.5, 0.25, 0.1, 0.05, 0.02), "Of T2 to T4: a density to choose from.")
    search_epochs: float = setting(10.0, "Of T2 to T4: epochs of the dense private network.")
    penalty: float = setting(0.0, "Points of accuracy (of 1) that a ticket with all its weights loses.")
    validation_share: float = setting(0.2, "Of T3 and T4: probability that a record is kept for the choice.")
    selection: str = setting("exponential", "exponential or permute_and_flip.")
    rounds: int = setting(12, "Prunings by magnitude (paper, and T1 with a data set).")
    iterations: int = setting(5000, "SGD steps of a round.")
    stop_epsilon: float | None = setting(
        None, "Ends the training where all has cost this; the noise is that of epsilon."
    )
    stop_accuracy: float | None = setting(None, "Ends the training at the first epoch of this accuracy.")
    stop_on: str = setting("public", "Where that is measured: public (the test data) or private, which costs epsilon.")
    folder: str = setting("", "Keeps tickets for other runs at this start and these data; the run's own by default.")

    def __post_init__(self) -> None:
        check.choice("mode of [ticket]", self.mode, MODES)
        check.choice("selection of [ticket]", self.selection, ("exponential", "permute_and_flip"))
        check.count("rounds of [ticket]", self.rounds)
        check.count("iterations of [ticket]", self.iterations)
        check.probability("density of [ticket]", self.density, open_low=True)
        if not isinstance(self.densities, tuple) or not self.densities:
            raise check.fail("densities of [ticket]", "a list with at least one value", self.densities)

    def train(self, job: Job) -> Trained:
        from tacit.runs.builders import predictor, stream_of, tested
        from tacit.tickets import PrivateTicket
        from tacit.training import save_model

        run = PrivateTicket(
            lambda: _network(job, job.dataset),
            _tensors(job.dataset)[:2],
            self._plan(job),
            candidates=self._candidates(job),
            ledger=job.ledger,
            stream=stream_of(job.config),
        )
        job.write_ahead((run.spending.mechanism, 1))
        done = run.run(
            evaluate=tested(job.dataset), on_step=lambda stage, *at: job.on_progress(f"private {stage}", *at)
        )
        done.ticket.save(job.folder / "ticket.safetensors")
        save_model(done.model, job.folder / "model.safetensors")
        parameters = sum(value.numel() for value in done.ticket.start.values())
        return Trained(
            predict=predictor(done.model, job.dataset),
            model=f"{job.config.model}, {parameters:,} parameters, {done.ticket.density:.1%} of the weights kept",
            algorithm=f"DP lottery ticket, mode {self.mode}",
            settings=_settings(job, done),
            history=done.history,
            metrics={"density": done.ticket.density},
        )

    def twin(self, job: Job) -> Sequence[Mapping[str, float]]:
        """The dense network without privacy."""
        from tacit.runs.methods.gradient import Gradient

        return Gradient().twin(job)

    def load(self, job: Job) -> Predict:
        from tacit.runs.methods.gradient import Gradient

        return Gradient().load(job)

    def _plan(self, job: Job) -> TicketPlan:
        from tacit.tickets import TicketPlan

        config = job.config
        if job.dataset.task != "classification":
            raise check.fail("dataset", "one with classes for method ticket", job.dataset.name)
        if config.epsilon is None:
            raise InvalidInput("epsilon must be given for method ticket; got noise_multiplier. Phases share it.")
        return TicketPlan(
            mode=self.mode,
            epsilon=config.epsilon,
            delta=config.delta,
            batch_size=config.batch_size,
            epochs=config.epochs,
            search_epochs=self.search_epochs,
            clip_norm=config.clip_norm,
            learning_rate=config.learning_rate,
            densities=self.densities,
            penalty=self.penalty,
            validation_share=self.validation_share,
            selection=self.selection,
            stop_epsilon=self.stop_epsilon,
            stop_accuracy=self.stop_accuracy,
            stop_on=self.stop_on,
        )

    def _candidates(self, job: Job) -> Sequence[Ticket]:
        if self.mode == "T1":
            return [self._public(job)]
        return self._published(job) if self.mode == "paper" else ()

    def _public(self, job: Job) -> Ticket:
        from tacit.tickets.public import data_free_ticket, transferred_ticket

        seed, shape = job.config.init_seed, job.dataset.x_train.shape[1:]
        if self.origin in DATA_FREE:
            model = _network(job, job.dataset)
            return data_free_ticket(model, self.origin, density=self.density, shape=shape, seed=seed)
        source = self._public_data(job)
        return transferred_ticket(
            lambda classes: _network(job, replace(job.dataset, classes=tuple(map(str, range(classes))))),
            _tensors(source),
            shape=shape,
            classes=len(job.dataset.classes),
            name=self.origin,
            largest_density=self.density,
            rounds=self.rounds,
            iterations=self.iterations,
            seed=seed,
            folder=self._folder(job, self.origin, "public"),
            on_progress=lambda done, total: job.on_progress("public ticket", done, total),
        )

    def _public_data(self, job: Job) -> Dataset:
        """The data set that the ticket is of; refused where it is known to hold the protected records."""
        from tacit.data import load

        if job.dataset.name == self.origin or _same_records(job, self.origin):
            hint = "A ticket of the private data is not public."
            raise check.fail("origin of [ticket]", "other data than those that are protected", self.origin, hint)
        return load(self.origin, data_dir=job.data_dir, strict=job.config.strict)

    def _published(self, job: Job) -> Sequence[Ticket]:
        """Tickets of the private data, which nothing protects."""
        from tacit.runs.builders import tested
        from tacit.tickets import iterative_tickets

        x, y, *_ = _tensors(job.dataset)
        return iterative_tickets(
            _network(job, job.dataset),
            x,
            y,
            provenance="paper",
            source=job.dataset.name,
            accuracy=lambda model: tested(job.dataset)(model)["test"],
            rounds=self.rounds,
            iterations=self.iterations,
            seed=job.config.init_seed,
            folder=self._folder(job, job.dataset.name, "paper"),
            on_progress=lambda done, total: job.on_progress("tickets", done, total),
        )

    def _folder(self, job: Job, source: str, provenance: str) -> Path:
        """A folder of tickets for every start, source of data and provenance."""
        if not self.folder:
            return job.folder / "tickets"
        start = _network(job, job.dataset).state_dict()
        inner = dict(list(start.items())[:-2])
        digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in inner.values()))
        return Path(self.folder) / f"{source}-{provenance}-{digest.hexdigest()[:12]}-{self.rounds}x{self.iterations}"


def _network(job: Job, dataset: Dataset) -> nn.Module:
    from tacit.runs.builders import network_of

    return network_of(job.config, dataset)


def _same_records(job: Job, name: str) -> bool:
    from tacit.data import made_of, same_records
    from tacit.runs.builders import table_path

    section = job.config.table
    if section is None:
        return same_records(name, job.config.dataset)
    return made_of(name, table_path(section, job.data_dir))


def _tensors(dataset: Dataset) -> tuple:
    import torch

    return tuple(map(torch.from_numpy, (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)))


def _settings(job: Job, done: TicketRun) -> dict[str, Scalar]:
    config, spent = job.config, done.spending
    noises = {
        "search_noise_multiplier": spent.search,
        "choice_epsilon": spent.choice,
        "stopping_epsilon": spent.stopping,
        "noise_multiplier": spent.training,
    }
    return {
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "clip_norm": config.clip_norm,
        "delta": config.delta,
        "ticket": done.ticket.note,
        "density": round(done.ticket.density, 4),
        **{name: value for name, value in noises.items() if value is not None},
        **({"stopped": done.stopped} if done.stopped else {}),
    }
