"""Private variational inference of a linear model, by `tacit.variational`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.runs.methods.base import Job, Method, Trained
from tacit.runs.settings import setting

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from tacit.data import Dataset
    from tacit.runs.methods.base import Predict
    from tacit.variational import Likelihood, Posterior

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Variational(Method):
    """The [vi] section; the noise, batch_size, epochs, clip_norm and delta are the run's own."""

    family: str = setting("mean_field", "mean_field or full_rank.")
    prior_std: float = setting(1.0, "Of every parameter, > 0.")
    optimizer: str = setting("adam", "adam or adagrad.")
    learning_rate: float = setting(0.05, "Step size of the variational parameters.")

    def __post_init__(self) -> None:
        check.choice("family of [vi]", self.family, ("mean_field", "full_rank"))
        check.positive("prior_std of [vi]", self.prior_std)
        check.choice("optimizer of [vi]", self.optimizer, ("adam", "adagrad"))
        check.positive("learning_rate of [vi]", self.learning_rate)

    def check(self, job: Job) -> None:
        super().check(job)
        if job.dataset.task != "classification" or job.dataset.x_train.dtype.kind != "f":
            raise check.fail("dataset", "one of classes and numbers for method vi", job.dataset.name)

    def train(self, job: Job) -> Trained:
        from safetensors.torch import save

        from tacit import atomic
        from tacit.runs.pieces import stream_of
        from tacit.tradeoff import Epsilon
        from tacit.variational import infer

        config = job.config
        likelihood = _likelihood(job.dataset)
        found = infer(
            likelihood,
            *_tensors(job.dataset),
            clip_norm=config.clip_norm,
            noise_multiplier=config.noise_multiplier,
            target=None if config.epsilon is None else Epsilon(config.epsilon, config.delta),
            delta=config.delta,
            ledger=job.ledger,
            on_plan=lambda plan: job.write_ahead(*plan.runs),
            on_step=lambda done, total: job.on_progress("private inference", done, total),
            stream=stream_of(config),
            **self._common(job),
        )
        posterior = found.posterior
        weights = {"mean": posterior.mean.contiguous(), "factor": posterior.factor.contiguous()}
        atomic.write_bytes(job.folder / "model.safetensors", save(weights))
        return Trained(
            predict=_predictor(posterior),
            model=f"{type(likelihood).__name__}, {self.family} posterior of {len(posterior.mean):,} parameters",
            algorithm="DPVI",
            settings={
                "family": self.family,
                "prior_std": self.prior_std,
                "optimizer": self.optimizer,
                "learning_rate": self.learning_rate,
                "epochs": config.epochs,
                "batch_size": config.batch_size,
                "clip_norm": config.clip_norm,
                "noise_multiplier": found.noise_multiplier,
                "delta": config.delta,
            },
        )

    def twin(self, job: Job) -> Sequence[Mapping[str, float]]:
        from tacit.runs.measure import measure_of
        from tacit.runs.pieces import stream_of
        from tacit.variational import infer_nonprivate

        dataset = job.dataset
        job.on_progress("non-private twin", 0, 1)
        found = infer_nonprivate(
            _likelihood(dataset), *_tensors(dataset), stream=stream_of(job.config), **self._common(job)
        )
        job.on_progress("non-private twin", 1, 1)
        return [{"test": measure_of(dataset)(_predictor(found.posterior)(dataset.x_test), dataset.y_test)}]

    def load(self, job: Job) -> Predict:
        from safetensors import SafetensorError
        from safetensors.torch import load

        from tacit.variational import Posterior

        path = job.folder / "model.safetensors"
        try:
            weights = load(path.read_bytes())
            return _predictor(Posterior(weights["mean"], weights["factor"], _likelihood(job.dataset)))
        except (OSError, SafetensorError, KeyError):
            raise check.fail("RUN", "the folder of a finished run, with model.safetensors in it", str(path)) from None

    def _common(self, job: Job) -> dict[str, Any]:
        """What the private inference and its twin share."""
        rate = job.config.batch_size / len(job.dataset.y_train)
        return {
            "family": self.family,
            "prior_std": self.prior_std,
            "optimizer": self.optimizer,
            "learning_rate": self.learning_rate,
            "sample_rate": rate,
            "steps": max(1, round(job.config.epochs / rate)),
            "seed": job.config.init_seed,
        }


def _likelihood(dataset: Dataset) -> Likelihood:
    from tacit.variational import LogisticLikelihood, SoftmaxLikelihood

    classes = len(dataset.classes)
    return LogisticLikelihood() if classes == 2 else SoftmaxLikelihood(classes)


def _tensors(dataset: Dataset) -> tuple[Tensor, Tensor]:
    import torch

    return _rows(dataset.x_train), torch.from_numpy(dataset.y_train)


def _rows(inputs: np.ndarray) -> Tensor:
    """Flat rows with a last column of ones, for the intercept."""
    import torch

    flat = torch.from_numpy(inputs).reshape(len(inputs), -1)
    return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)


def _predictor(posterior: Posterior) -> Predict:
    """Predictive class probabilities, averaged over the posterior."""
    import torch

    def answer(inputs: np.ndarray) -> np.ndarray:
        chunks = _rows(inputs).split(_ROWS_AT_ONCE)
        return torch.cat([posterior.predict_proba(chunk) for chunk in chunks]).double().numpy()

    return answer
