"""Gradient perturbation: DP-SGD and its relatives through `tacit.training.fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.runs.methods.base import Job, Method, Scalar, Trained

if TYPE_CHECKING:
    from torch import nn

    from tacit.runs.config import Config
    from tacit.runs.methods.base import Predict
    from tacit.training import Plan


@dataclass(frozen=True)
class Gradient(Method):
    """Clipped and noised gradients; the settings of the training loop are keys of the configuration itself."""

    def train(self, job: Job) -> Trained:
        from tacit.runs.pieces import loss_of, network_of, optimizer_of, predictor, stream_of, tested
        from tacit.tradeoff import Epsilon
        from tacit.training import fit, save_model

        config, dataset = job.config, job.dataset
        model = network_of(config, dataset)

        def write_ahead(plan: Plan) -> None:
            job.ledger.unit = plan.sampling.unit
            job.write_ahead(*plan.runs)

        fitted = fit(
            model,
            dataset.x_train,
            dataset.y_train,
            loss=loss_of(dataset),
            optimizer=optimizer_of(config, model),
            clipping=config.section("clip").build(config.clip_norm),
            sampling=config.section("sampling").build(dataset),
            noise_multiplier=config.section("noise").build(config.noise_multiplier),
            target=None if config.epsilon is None else Epsilon(config.epsilon, config.delta),
            batch_size=config.batch_size,
            epochs=config.epochs,
            delta=config.delta,
            ledger=job.ledger,
            stream=stream_of(config),
            evaluate=tested(dataset),
            engine=config.engine,
            max_physical_batch=config.max_physical_batch,
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
        from tacit.runs.pieces import loss_of, network_of, optimizer_of, stream_of, tested
        from tacit.training import fit_nonprivate

        config, dataset = job.config, job.dataset
        model = network_of(config, dataset)
        return fit_nonprivate(
            model,
            dataset.x_train,
            dataset.y_train,
            loss=loss_of(dataset),
            optimizer=optimizer_of(config, model),
            batch_size=config.batch_size,
            epochs=config.epochs,
            stream=stream_of(config),
            evaluate=tested(dataset),
            on_step=lambda done, total: job.on_progress("non-private twin", done, total),
        )

    def load(self, job: Job) -> Predict:
        from tacit.runs.pieces import network_of, predictor
        from tacit.training import load_model

        model = network_of(job.config, job.dataset)
        load_model(model, job.folder / "model.safetensors")
        return predictor(model, job.dataset)


_ALGORITHMS = {"sgd": "DP-SGD", "adam": "DP-Adam", "adagrad": "DP-AdaGrad"}


def _described(config: Config, model: nn.Module) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    widths = f" {'-'.join(map(str, config.hidden))}" if config.model == "mlp" else ""
    return f"{config.model}{widths}, {parameters:,} parameters"


def _settings(config: Config, plan: Plan) -> dict[str, Scalar]:
    noise = plan.noise_multiplier
    return {
        "optimizer": config.optimizer,
        "learning_rate": config.learning_rate,
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
