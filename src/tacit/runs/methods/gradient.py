"""Gradient perturbation: DP-SGD and its relatives through `tacit.training.fit`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit import training
from tacit.mechanisms import Mechanism
from tacit.runs import builders
from tacit.runs.config import Config
from tacit.runs.held_out import callbacks_of, told_of
from tacit.runs.methods.base import Baseline, Job, Method, Predict, Scalar, Settings, Trained
from tacit.runs.run_signature import CHECKPOINT, MODEL
from tacit.runs.settings import GradientSettings
from tacit.tradeoff import Epsilon
from tacit.training.execution_record import ExecutionRecord
from tacit.training.plan import resolve_steps
from tacit.training.ranks import world_size

Parts = tuple[nn.Module, Optimizer, LRScheduler | None]
_OF_CONFIG = ("batch_size", "public_size", "epochs", "delta", "checkpoint_every")
_ALGORITHMS = {"sgd": "DP-SGD", "adam": "DP-Adam", "adam_bc": "DP-AdamBC", "adagrad": "DP-AdaGrad"}


class Network(Method[Settings]):
    """A method whose model is the network that the configuration names."""

    def units(self, job: Job) -> int:
        """The number of records, or of users where whole users are sampled."""
        return builders.sampling_of(job.config, job.dataset).units(len(job.dataset.y_train))

    def nonprivate_baseline(self, job: Job) -> Baseline:
        """The same training without clipping and noise."""
        dataset = job.dataset
        model, optimizer, scheduler = self._parts(_without_privacy(job))
        watched = training.Functions(on_step=lambda done, total: job.on_progress("non-private baseline", done, total))
        history = training.fit_nonprivate(
            model,
            dataset.x_train,
            builders.targets_of(dataset),
            loss=builders.loss_of(dataset, job.config),
            optimizer=optimizer,
            sample_rate=self._sample_rate(job),
            epochs=job.config.epochs,
            stream=builders.stream_of(job.config),
            evaluate=builders.evaluator(dataset),
            scheduler=scheduler,
            scheduler_per="step",
            precision=job.config.precision,
            callbacks=[watched],
        )
        return history, builders.predictor(model, dataset)

    def load(self, job: Job) -> Predict:
        """The network of the run in `job.folder`."""
        return builders.predictor(self._stored(job), job.dataset)

    def module(self, job: Job) -> nn.Module:
        """The network of the run in `job.folder`, with its last step from scores to answers."""
        return builders.Answers(self._stored(job), job.dataset)

    def _stored(self, job: Job) -> nn.Module:
        model = builders.network_of(job.config, job.dataset)
        training.load_model(model, job.folder / MODEL)
        return model

    def _sample_rate(self, job: Job) -> float:
        return job.config.batch_size / (job.config.public_size or self.units(job))

    def _parts(self, job: Job) -> Parts:
        model = builders.network_of(job.config, job.dataset)
        optimizer = builders.optimizer_of(job.config, model)
        steps = resolve_steps(self._sample_rate(job), None, job.config.epochs)
        return model, optimizer, builders.scheduler_of(job.config, optimizer, steps)


class Gradient(Network[GradientSettings]):
    """DP-SGD: clipped and noised gradients, by the keys of the configuration itself."""

    keeps_checkpoints: ClassVar[bool] = True
    trains_on_ranks: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True  # They enter the loss before its gradient is clipped.

    def train(self, job: Job) -> Trained:
        """Train by DP-SGD, accounting for every step."""
        config, kept = job.config, job.folder / CHECKPOINT
        model, _, scheduler = parts = self._parts(job)
        taken = training.read_checkpoint(kept).step if job.resume and kept.exists() else 0

        execution = ExecutionRecord.of(model, **config.execution, scheduler=scheduler, scheduler_per="step")

        def write_ahead(plan: training.Plan) -> None:
            # With private validation the whole plan is one entry of the ledger already.
            job.write_ahead(*(_remaining(plan, taken) if job.holdout is None else ()))
            builders.store_execution(job.folder, execution)

        watched = training.Functions(write_ahead, lambda done, total: job.on_progress("private training", done, total))
        fitted = self._fitted(job, parts, watched)
        if fitted.execution is not None:
            builders.store_execution(job.folder, fitted.execution)
        training.save_model(model, job.folder / MODEL)
        return Trained(
            predict=builders.predictor(model, job.dataset),
            model=_described(config, model),
            algorithm=_ALGORITHMS[config.optimizer],
            settings=_settings(config, fitted.plan) | ({"stopped": fitted.stopped} if fitted.stopped else {}),
            units=fitted.plan.sampling.units(fitted.plan.records),
            history=fitted.history,
            metrics=told_of(config, job.dataset, fitted.history),
        )

    def follow(self, job: Job) -> None:
        """Take part in the training of rank 0; see `runs.follow`."""
        self._fitted(job, self._parts(job))

    def _fitted(self, job: Job, parts: Parts, *watched: training.Callback) -> training.Fit:
        """The private training, on all ranks where there are several."""
        config, dataset = job.config, job.dataset
        model, optimizer, scheduler = parts
        callbacks = [*watched]
        if config.average is not None:
            callbacks.append(training.AverageModel(model, config.average))
        if job.holdout is not None:
            callbacks += callbacks_of(config, dataset, model)
        return training.fit(
            model,
            dataset.x_train,
            builders.targets_of(dataset),
            loss=builders.loss_of(dataset, config),
            optimizer=optimizer,
            clipping=builders.clip_of(config),
            sampling=builders.sampling_of(config, dataset),
            noise=config.section("noise").correlation,
            noise_multiplier=builders.noise_of(config),
            target=None if config.epsilon is None else Epsilon(config.epsilon, config.delta),
            ledger=job.ledger,
            stream=builders.stream_of(config),
            evaluate=builders.evaluator(dataset) if job.measures_test else None,
            holdout=job.holdout,
            callbacks=callbacks,
            scheduler=scheduler,
            scheduler_per="step",
            checkpoint=job.folder / CHECKPOINT if job.checkpoints else None,
            resume=job.resume,
            # Steps that an interruption lost count: the budget may end before the last planned step.
            stop_at_budget=True,
            **{name: getattr(config, name) for name in _OF_CONFIG},
            **config.execution,
            distributed=world_size() > 1,
        )


def _without_privacy(job: Job) -> Job:
    """The same job with the learning rate and the optimizer of training without noise and clipping."""
    config = job.config
    rate = config.nonprivate_learning_rate or config.learning_rate
    optimizer = "adam" if config.optimizer == "adam_bc" else config.optimizer
    return replace(job, config=replace(config, learning_rate=rate, optimizer=optimizer))


def _remaining(plan: training.Plan, taken: int) -> Iterator[tuple[Mechanism, int]]:
    """The planned steps after the first `taken`, equal ones together."""
    for mechanism, steps in plan.runs:
        left = steps - min(taken, steps)
        taken -= steps - left
        if left:
            yield mechanism, left


def _described(config: Config, model: nn.Module) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    widths = f" {'-'.join(map(str, config.hidden))}" if config.model == "mlp" else ""
    return f"{config.model}{widths}, {parameters:,} parameters"


def _settings(config: Config, plan: training.Plan) -> dict[str, Scalar]:
    noise = plan.noise_multiplier
    names = ("optimizer", "learning_rate", "learning_rate_schedule", "epochs", "batch_size", "clip_norm", "delta")
    left_out = {"features": "none", "average": None}
    return {
        **{name: getattr(config, name) for name in names},
        "steps": plan.steps,
        "sampling": plan.sampling.type,
        "sample_rate": plan.sample_rate,
        "clipping": plan.clip.type,
        "noise_multiplier": f"{noise[0]:g} to {noise[-1]:g}" if isinstance(noise, tuple) else noise,
        **{name: getattr(config, name) for name, usual in left_out.items() if getattr(config, name) != usual},
    }
