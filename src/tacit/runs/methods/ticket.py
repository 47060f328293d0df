"""Differentially private lottery tickets: a sparse network found, chosen and trained with one ledger."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tacit import check
from tacit.data import Dataset, load, made_of, same_records
from tacit.errors import InvalidInput
from tacit.runs.builders import evaluator, network_of, predictor, stream_of
from tacit.runs.methods.base import Job, Scalar, Trained
from tacit.runs.methods.gradient import Network
from tacit.runs.run_signature import MODEL
from tacit.runs.settings import TicketSettings
from tacit.tickets import PrivateTicket, Ticket, TicketPlan, TicketRun, iterative_tickets
from tacit.tickets.iterative_pruning import ORIGINS, data_free_ticket, transferred_ticket
from tacit.training import save_model

_OF_CONFIG = ("epsilon", "delta", "batch_size", "epochs", "clip_norm", "learning_rate")
_OF_SETTINGS = ("mode", "search_epochs", "densities", "penalty", "validation_share", "selection")
"""Fields of a plan by where they are set."""


class TicketMethod(Network[TicketSettings]):
    """A private lottery ticket; see `TicketSettings` for its modes."""

    def train(self, job: Job) -> Trained:
        """Find a ticket and train it privately."""
        run = PrivateTicket(
            lambda: network_of(job.config, job.dataset),
            _tensors(job.dataset)[:2],
            self._plan(job),
            candidates=self._candidates(job),
            ledger=job.ledger,
            stream=stream_of(job.config),
        )
        job.write_ahead((run.spending.mechanism, 1))
        done = run.run(
            evaluate=evaluator(job.dataset) if job.measures_test else None,
            on_step=lambda stage, *at: job.on_progress(f"private {stage}", *at),
        )
        done.ticket.save(job.folder / "ticket.safetensors")
        save_model(done.model, job.folder / MODEL)
        parameters = sum(value.numel() for value in done.ticket.start.values())
        return Trained(
            predict=predictor(done.model, job.dataset),
            model=f"{job.config.model}, {parameters:,} parameters, {done.ticket.density:.1%} of the weights kept",
            algorithm=f"DP lottery ticket, mode {self.settings.mode}",
            settings=_settings(job, done),
            history=done.history,
            metrics={"density": done.ticket.density},
        )

    def untrained(self, job: Job) -> Trained:
        """The dense network at its public start."""
        model = network_of(job.config, job.dataset)
        save_model(model, job.folder / MODEL)
        return Trained(
            predict=predictor(model, job.dataset),
            model=f"{job.config.model}, at its start",
            algorithm=f"DP lottery ticket, mode {self.settings.mode}",
            settings={"delta": job.config.delta},
        )

    def _plan(self, job: Job) -> TicketPlan:
        config = job.config
        if job.dataset.task != "classification":
            raise check.fail("dataset", "one with classes for method ticket", job.dataset.name)
        if config.epsilon is None:
            raise InvalidInput("epsilon must be given for method ticket; got noise_multiplier. Phases share it.")
        shared = {name: getattr(config, name) for name in _OF_CONFIG}
        return TicketPlan(**shared, **{name: getattr(self.settings, name) for name in _OF_SETTINGS})

    def _candidates(self, job: Job) -> Sequence[Ticket]:
        if self.settings.mode == "T1":
            return [self._public(job)]
        return self._published(job) if self.settings.mode == "paper" else ()

    def _public(self, job: Job) -> Ticket:
        seed, shape = job.config.init_seed, job.dataset.x_train.shape[1:]
        if self.settings.origin in ORIGINS:
            model = network_of(job.config, job.dataset)
            return data_free_ticket(model, self.settings.origin, density=self.settings.density, shape=shape, seed=seed)
        source = self._public_data(job)
        return transferred_ticket(
            lambda classes: network_of(job.config, replace(job.dataset, classes=tuple(map(str, range(classes))))),
            _tensors(source),
            shape=shape,
            classes=len(job.dataset.classes),
            name=self.settings.origin,
            largest_density=self.settings.density,
            rounds=self.settings.rounds,
            iterations=self.settings.iterations,
            seed=seed,
            folder=self._folder(job, self.settings.origin, "public"),
            on_progress=lambda done, total: job.on_progress("public ticket", done, total),
        )

    def _public_data(self, job: Job) -> Dataset:
        """The data set that the ticket is of; refused where it is known to hold the protected records."""
        origin, table = self.settings.origin, job.config.table
        same = same_records(origin, job.config.dataset) if table is None else made_of(origin, table.file(job.data_dir))
        if job.dataset.name == origin or same:
            rule, hint = "other data than those that are protected", "A ticket of the private data is not public."
            raise check.fail("origin of [ticket]", rule, origin, hint)
        return load(origin, data_dir=job.data_dir, strict=job.config.strict)

    def _published(self, job: Job) -> Sequence[Ticket]:
        """Tickets of the private data, which nothing protects."""
        x, y, *_ = _tensors(job.dataset)
        return iterative_tickets(
            network_of(job.config, job.dataset),
            x,
            y,
            provenance="paper",
            source=job.dataset.name,
            accuracy=lambda model: evaluator(job.dataset)(model)["test"],
            rounds=self.settings.rounds,
            iterations=self.settings.iterations,
            seed=job.config.init_seed,
            folder=self._folder(job, job.dataset.name, "paper"),
            on_progress=lambda done, total: job.on_progress("tickets", done, total),
        )

    def _folder(self, job: Job, source: str, provenance: str) -> Path:
        """A folder of tickets for every start, source of data and provenance."""
        if not self.settings.folder:
            return job.folder / "tickets"
        inner = list(network_of(job.config, job.dataset).state_dict().values())[:-2]
        digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in inner)).hexdigest()[:12]
        length = f"{self.settings.rounds}x{self.settings.iterations}"
        return Path(self.settings.folder) / f"{source}-{provenance}-{digest}-{length}"


def _tensors(dataset: Dataset) -> tuple:
    return tuple(map(torch.from_numpy, (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)))


def _settings(job: Job, done: TicketRun) -> dict[str, Scalar]:
    spent, named = done.spending, ("search_noise_multiplier", "choice_epsilon", "noise_multiplier")
    noises = dict(zip(named, (spent.search, spent.choice, spent.training), strict=True))
    return {
        **{name: getattr(job.config, name) for name in ("learning_rate", "epochs", "batch_size", "clip_norm", "delta")},
        "ticket": done.ticket.note,
        "density": round(done.ticket.density, 4),
        **{name: value for name, value in noises.items() if value is not None},
    }
