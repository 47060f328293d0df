"""Gradient perturbation: DP-SGD and its relatives through `tacit.training.fit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tacit import check
from tacit.runs.methods.base import CHECKPOINT, Job, Method, Scalar, Trained

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from tacit.mechanisms import Mechanism
    from tacit.runs.config import Config
    from tacit.runs.methods.base import Predict
    from tacit.training import Plan


@dataclass(frozen=True)
class Gradient(Method):
    """Clipped and noised gradients; the settings of the training loop are keys of the configuration itself."""

    resumable: ClassVar[bool] = True

    def check(self, job: Job) -> None:
        hint = "It is the expected number of records."
        check.real("batch_size", job.config.batch_size, low=1, high=_units(job), hint=hint)

    def train(self, job: Job) -> Trained:
        from tacit.runs.builders import loss_of, predictor, stream_of, tested
        from tacit.tradeoff import Epsilon
        from tacit.training import fit, read_checkpoint, save_model

        config, dataset, kept = job.config, job.dataset, job.folder / CHECKPOINT
        model, optimizer, scheduler = _parts(job)
        taken = read_checkpoint(kept).step if job.resume and kept.exists() else 0

        def write_ahead(plan: Plan) -> None:
            job.write_ahead(*_left(plan, taken))

        fitted = fit(
            model,
            dataset.x_train,
            dataset.y_train,
            loss=loss_of(dataset),
            optimizer=optimizer,
            clipping=config.section("clip").build(config.clip_norm),
            sampling=config.section("sampling").build(dataset),
            noise_multiplier=config.section("noise").build(config.noise_multiplier),
            target=None if config.epsilon is None else Epsilon(config.epsilon, config.delta),
            sample_rate=_sample_rate(job),
            epochs=config.epochs,
            delta=config.delta,
            ledger=job.ledger,
            stream=stream_of(config),
            evaluate=tested(dataset),
            scheduler=scheduler,
            scheduler_per="step",
            checkpoint=kept,
            checkpoint_every=config.checkpoint_every,
            resume=job.resume,
            engine=config.engine,
            precision=config.precision,
            max_physical_batch_size=config.max_physical_batch_size,
            on_plan=write_ahead,
            on_step=lambda done, total: job.on_progress("private training", done, total),
        )
        save_model(model, job.folder / "model.safetensors")
        return Trained(
            predict=predictor(model, dataset),
            model=_described(config, model),
            algorithm=_ALGORITHMS[config.optimizer],
            settings=_settings(config, fitted.plan),
            units=fitted.plan.sampling.units(fitted.plan.records),
            history=fitted.history,
        )

    def twin(self, job: Job) -> Sequence[Mapping[str, float]]:
        from tacit.runs.builders import loss_of, stream_of, tested
        from tacit.training import fit_nonprivate

        dataset = job.dataset
        model, optimizer, scheduler = _parts(_as_twin(job))
        return fit_nonprivate(
            model,
            dataset.x_train,
            dataset.y_train,
            loss=loss_of(dataset),
            optimizer=optimizer,
            sample_rate=_sample_rate(job),
            epochs=job.config.epochs,
            stream=stream_of(job.config),
            evaluate=tested(dataset),
            scheduler=scheduler,
            scheduler_per="step",
            precision=job.config.precision,
            on_step=lambda done, total: job.on_progress("non-private twin", done, total),
        )

    def load(self, job: Job) -> Predict:
        from tacit.runs.builders import network_of, predictor
        from tacit.training import load_model

        model = network_of(job.config, job.dataset)
        load_model(model, job.folder / "model.safetensors")
        return predictor(model, job.dataset)


def _parts(job: Job) -> tuple[nn.Module, Optimizer, LRScheduler | None]:
    from tacit.runs.builders import network_of, optimizer_of, scheduler_of
    from tacit.training.resolve_plan import resolve_steps

    model = network_of(job.config, job.dataset)
    optimizer = optimizer_of(job.config, model)
    steps = resolve_steps(_sample_rate(job), None, job.config.epochs)
    return model, optimizer, scheduler_of(job.config, optimizer, steps)


def _as_twin(job: Job) -> Job:
    """The settings without what only noise or clipping calls for."""
    config = job.config
    rate = config.twin_learning_rate or config.learning_rate
    optimizer = "adam" if config.optimizer == "adam_bc" else config.optimizer
    return replace(job, config=replace(config, learning_rate=rate, optimizer=optimizer))


def _sample_rate(job: Job) -> float:
    return job.config.batch_size / _units(job)


def _units(job: Job) -> int:
    """The number of records, or of users where whole users are sampled."""
    from tacit.sampling import sampling_of

    return sampling_of(job.config.section("sampling").build(job.dataset)).units(len(job.dataset.y_train))


def _left(plan: Plan, taken: int) -> Iterator[tuple[Mechanism, int]]:
    """The planned steps after the first `taken`, equal ones together."""
    for mechanism, steps in plan.runs:
        left = steps - min(taken, steps)
        taken -= steps - left
        if left:
            yield mechanism, left


_ALGORITHMS = {"sgd": "DP-SGD", "adam": "DP-Adam", "adam_bc": "DP-AdamBC", "adagrad": "DP-AdaGrad"}


def _described(config: Config, model: nn.Module) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    widths = f" {'-'.join(map(str, config.hidden))}" if config.model == "mlp" else ""
    return f"{config.model}{widths}, {parameters:,} parameters"


def _settings(config: Config, plan: Plan) -> dict[str, Scalar]:
    noise = plan.noise_multiplier
    return {
        "optimizer": config.optimizer,
        "learning_rate": config.learning_rate,
        "learning_rate_schedule": config.learning_rate_schedule,
        "epochs": config.epochs,
        "steps": plan.steps,
        "sampling": plan.sampling.type,
        "batch_size": config.batch_size,
        "sample_rate": plan.sample_rate,
        "clipping": plan.clip.type,
        "clip_norm": config.clip_norm,
        "noise_multiplier": f"{noise[0]:g} to {noise[-1]:g}" if isinstance(noise, tuple) else noise,
        "delta": config.delta,
    }
