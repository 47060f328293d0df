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
    from tacit.variational import Likelihood, Posterior, Samples

_ROWS_AT_ONCE = 4096
_PAIRS = 64


@dataclass(frozen=True)
class Variational(Method):
    """The [vi] section; the noise, batch_size, epochs, clip_norm and delta are the run's own."""

    mode: str = setting("dpvi", "dpvi, or concealed: only samples are released, accounted as claimed and as proven.")
    samples: int = setting(10, "Of mode concealed: samples released for predictions.")
    family: str = setting("mean_field", "mean_field or full_rank.")
    prior_std: float = setting(1.0, "Of every parameter, > 0.")
    noise_std: float = setting(1.0, "Of a regression's answers given the inputs, in their units, > 0.")
    optimizer: str = setting("adam", "adam or adagrad.")
    learning_rate: float = setting(0.05, "Step size of the variational parameters.")

    def __post_init__(self) -> None:
        check.choice("mode of [vi]", self.mode, ("dpvi", "concealed"))
        check.count("samples of [vi]", self.samples)
        check.choice("family of [vi]", self.family, ("mean_field", "full_rank"))
        check.positive("prior_std of [vi]", self.prior_std)
        check.positive("noise_std of [vi]", self.noise_std)
        check.choice("optimizer of [vi]", self.optimizer, ("adam", "adagrad"))
        check.positive("learning_rate of [vi]", self.learning_rate)

    def check(self, job: Job) -> None:
        super().check(job)
        if job.dataset.task == "ratings" or job.dataset.x_train.dtype.kind != "f":
            raise check.fail(
                "dataset", "one of numbers, with classes or values as answers, for method vi", job.dataset.name
            )
        if self.mode == "concealed" and job.config.noise_multiplier is None:
            hint = "It is the std of a sample over what one record moves the concealed mean in a step."
            raise check.fail("noise_multiplier", "given for mode concealed", None, hint)

    def train(self, job: Job) -> Trained:
        return self._concealed(job) if self.mode == "concealed" else self._private(job)

    def _private(self, job: Job) -> Trained:
        from safetensors.torch import save

        from tacit import serialization as atomic
        from tacit.runs.builders import stream_of
        from tacit.tradeoff import Epsilon
        from tacit.variational import infer

        config = job.config
        likelihood = self._likelihood(job.dataset)
        found = infer(
            likelihood,
            *_tensors(job.dataset.x_train, job.dataset.y_train),
            clip_norm=config.clip_norm,
            noise_multiplier=config.noise_multiplier,
            learning_rate=self.learning_rate,
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

    def _concealed(self, job: Job) -> Trained:
        from safetensors.torch import save

        from tacit import serialization as atomic
        from tacit.runs.builders import stream_of
        from tacit.variational import infer_concealed

        config, (x_test, y_test) = job.config, _tensors(job.dataset.x_test, job.dataset.y_test)
        pairs = min(_PAIRS, len(y_test) // 2)
        likelihood = self._likelihood(job.dataset)
        found = infer_concealed(
            likelihood,
            *_tensors(job.dataset.x_train, job.dataset.y_train),
            clip_norm=config.clip_norm,
            noise_multiplier=config.noise_multiplier or 0.0,
            learning_rate=self.learning_rate,
            prior_std=self.prior_std,
            samples=self.samples,
            held_out=(x_test, y_test) if pairs >= 3 else None,
            pairs=max(pairs, 3),
            ledger=job.ledger,
            stream=stream_of(config),
            on_plan=lambda cost: job.write_ahead(*cost.parts()),
            on_step=lambda done, total: job.on_progress("private inference", done, total),
            **_length(job),
        )
        atomic.write_bytes(job.folder / "model.safetensors", save({"samples": found.drawn.values.contiguous()}))
        bayesian = None if found.bayesian is None else float(found.bayesian.epsilon(config.delta))
        return Trained(
            predict=_predictor(found.drawn),
            model=f"{type(likelihood).__name__}, {self.samples} samples of {found.drawn.values.shape[1]:,} parameters",
            algorithm="VI with concealed parameters",
            settings={
                "mode": self.mode,
                "samples": self.samples,
                "prior_std": self.prior_std,
                "learning_rate": self.learning_rate,
                "sample_std": found.std,
                "epochs": config.epochs,
                "batch_size": config.batch_size,
                "clip_norm": config.clip_norm,
                "noise_multiplier": config.noise_multiplier,
                "delta": config.delta,
            },
            metrics={
                "claimed_epsilon": float(found.claimed.epsilon(config.delta)),
                "bayesian_epsilon": bayesian,
            },
        )

    def twin(self, job: Job) -> Sequence[Mapping[str, float]]:
        from tacit.runs.builders import stream_of
        from tacit.runs.metrics import measure_of
        from tacit.variational import infer_nonprivate

        dataset, rate = job.dataset, job.config.twin_learning_rate
        if rate is None:
            # A step of concealed inference is one of plain descent, no step of Adam.
            rate = self.learning_rate if self.mode == "dpvi" else Variational.learning_rate
        job.on_progress("non-private twin", 0, 1)
        found = infer_nonprivate(
            self._likelihood(dataset),
            *_tensors(dataset.x_train, dataset.y_train),
            learning_rate=rate,
            stream=stream_of(job.config),
            **self._common(job),
        )
        job.on_progress("non-private twin", 1, 1)
        return [{"test": measure_of(dataset)(_predictor(found.posterior)(dataset.x_test), dataset.y_test)}]

    def load(self, job: Job) -> Predict:
        from safetensors import SafetensorError
        from safetensors.torch import load

        from tacit.variational import Posterior, Samples

        path = job.folder / "model.safetensors"
        try:
            weights = load(path.read_bytes())
            if self.mode == "concealed":
                return _predictor(Samples(weights["samples"], self._likelihood(job.dataset)))
            return _predictor(Posterior(weights["mean"], weights["factor"], self._likelihood(job.dataset)))
        except (OSError, SafetensorError, KeyError):
            raise check.fail("RUN", "the folder of a finished run, with model.safetensors in it", str(path)) from None

    def _likelihood(self, dataset: Dataset) -> Likelihood:
        from tacit.variational import LinearLikelihood, LogisticLikelihood, SoftmaxLikelihood

        if dataset.task == "regression":
            return LinearLikelihood(self.noise_std)
        classes = len(dataset.classes)
        return LogisticLikelihood() if classes == 2 else SoftmaxLikelihood(classes)

    def _common(self, job: Job) -> dict[str, Any]:
        """What the private inference and its twin share."""
        return _length(job) | {"family": self.family, "prior_std": self.prior_std, "optimizer": self.optimizer}


def _length(job: Job) -> dict[str, Any]:
    """How long inference is, and the public seed."""
    rate = job.config.batch_size / len(job.dataset.y_train)
    return {
        "sample_rate": rate,
        "steps": max(1, round(job.config.epochs / rate)),
        "seed": job.config.init_seed,
    }


def _tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    import torch

    return _rows(x), torch.from_numpy(y)


def _rows(inputs: np.ndarray) -> Tensor:
    """Flat rows with a last column of ones, for the intercept."""
    import torch

    flat = torch.from_numpy(inputs).reshape(len(inputs), -1)
    return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)


def _predictor(posterior: Posterior | Samples) -> Predict:
    """Predictive class probabilities, or means, averaged over the posterior."""
    import torch

    def answer(inputs: np.ndarray) -> np.ndarray:
        chunks = _rows(inputs).split(_ROWS_AT_ONCE)
        return torch.cat([posterior.predict_proba(chunk) for chunk in chunks]).double().numpy()

    return answer
