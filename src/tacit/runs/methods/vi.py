"""Private variational inference of a linear model, by `tacit.variational`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from tacit import check
from tacit.data import Dataset
from tacit.runs.builders import ROWS_AT_ONCE, stream_of
from tacit.runs.decision_metrics import metric_of
from tacit.runs.methods.base import Job, Method, Predict, Trained
from tacit.runs.run_signature import MODEL
from tacit.runs.settings import VariationalSettings
from tacit.serialization import write_bytes
from tacit.tradeoff import Epsilon
from tacit.training import Functions
from tacit.variational import (
    Likelihood,
    LinearLikelihood,
    LogisticLikelihood,
    Posterior,
    SoftmaxLikelihood,
    VariationalModel,
    infer,
    infer_nonprivate,
)


class Variational(Method[VariationalSettings]):
    """Variational inference with clipped and noised gradients."""

    def check(self, job: Job) -> None:
        """Raise `InvalidInput` for data that it does not take."""
        super().check(job)
        if job.dataset.task == "ratings" or job.dataset.x_train.dtype.kind != "f":
            raise check.fail(
                "dataset", "one of numbers, with classes or values as answers, for method vi", job.dataset.name
            )

    def train(self, job: Job) -> Trained:
        """Infer a posterior privately."""
        config, own = job.config, self.settings
        likelihood = self._likelihood(job.dataset)
        found = infer(
            likelihood,
            *_tensors(job.dataset.x_train, job.dataset.y_train),
            # Public by the assumption of every run.
            public_size=len(job.dataset.y_train),
            clip_norm=config.clip_norm,
            noise_multiplier=config.noise_multiplier,
            learning_rate=own.learning_rate,
            target=None if config.epsilon is None else Epsilon(config.epsilon, config.delta),
            delta=config.delta,
            ledger=job.ledger,
            callbacks=[
                Functions(
                    lambda plan: job.write_ahead(*plan.runs),
                    lambda done, total: job.on_progress("private inference", done, total),
                )
            ],
            stream=stream_of(config),
            **self._common(job),
        )
        posterior = found.posterior
        weights = {"mean": posterior.mean.contiguous(), "factor": posterior.factor.contiguous()}
        write_bytes(job.folder / MODEL, save(weights))
        return Trained(
            predict=_predictor(posterior),
            model=f"{type(likelihood).__name__}, {own.family} posterior of {len(posterior.mean):,} parameters",
            algorithm="DPVI",
            settings={
                "family": own.family,
                "prior_std": own.prior_std,
                "optimizer": own.optimizer,
                "learning_rate": own.learning_rate,
                **{name: getattr(config, name) for name in ("epochs", "batch_size", "clip_norm")},
                "noise_multiplier": found.noise_multiplier,
                "delta": config.delta,
            },
        )

    def untrained(self, job: Job) -> Trained:
        """The variational distribution before the first step."""
        x, _ = _tensors(job.dataset.x_train[:1], job.dataset.y_train[:1])
        likelihood, own = self._likelihood(job.dataset), self.settings
        settings = {"family": own.family, "prior_std": own.prior_std, "seed": job.config.init_seed}
        start = VariationalModel(likelihood, x.shape[1], **settings).posterior()
        write_bytes(job.folder / MODEL, save({"mean": start.mean.contiguous(), "factor": start.factor.contiguous()}))
        return Trained(
            predict=_predictor(start),
            model=f"{type(likelihood).__name__}, before the first step",
            algorithm="VI",
            settings={"delta": job.config.delta},
        )

    def nonprivate_baseline(self, job: Job) -> Sequence[Mapping[str, float]]:
        """The same inference without privacy."""
        dataset, rate = job.dataset, job.config.nonprivate_learning_rate
        if rate is None:
            rate = self.settings.learning_rate
        job.on_progress("non-private baseline", 0, 1)
        found = infer_nonprivate(
            self._likelihood(dataset),
            *_tensors(dataset.x_train, dataset.y_train),
            learning_rate=rate,
            stream=stream_of(job.config),
            **self._common(job),
        )
        job.on_progress("non-private baseline", 1, 1)
        predict = _predictor(found.posterior)
        job.keep_baseline(predict)
        return [{"test": metric_of(dataset)(predict(dataset.x_test), dataset.y_test)}]

    def load(self, job: Job) -> Predict:
        """The posterior prediction of the run in `job.folder`."""
        path = job.folder / MODEL
        try:
            weights = load(path.read_bytes())
            return _predictor(Posterior(weights["mean"], weights["factor"], self._likelihood(job.dataset)))
        except (OSError, SafetensorError, KeyError):
            raise check.fail("RUN", "the folder of a finished run, with model.safetensors in it", str(path)) from None

    def _likelihood(self, dataset: Dataset) -> Likelihood:
        if dataset.task == "regression":
            return LinearLikelihood(self.settings.noise_std)
        classes = len(dataset.classes)
        return LogisticLikelihood() if classes == 2 else SoftmaxLikelihood(classes)

    def _common(self, job: Job) -> dict[str, Any]:
        """Arguments that private and non-private inference share."""
        return _length(job) | {
            "family": self.settings.family,
            "prior_std": self.settings.prior_std,
            "optimizer": self.settings.optimizer,
        }


def _length(job: Job) -> dict[str, Any]:
    """How long inference is, and the public seed."""
    rate = job.config.batch_size / len(job.dataset.y_train)
    return {
        "sample_rate": rate,
        "steps": max(1, round(job.config.epochs / rate)),
        "seed": job.config.init_seed,
    }


def _tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    return _rows(x), torch.from_numpy(y)


def _rows(inputs: np.ndarray) -> Tensor:
    """Flat rows with a last column of ones, for the intercept."""
    flat = torch.from_numpy(inputs).reshape(len(inputs), -1)
    return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)


def _predictor(posterior: Posterior) -> Predict:
    """Predictive class probabilities, or means, averaged over the posterior."""

    def answer(inputs: np.ndarray) -> np.ndarray:
        chunks = _rows(inputs).split(ROWS_AT_ONCE)
        return torch.cat([posterior.predict_proba(chunk) for chunk in chunks]).double().numpy()

    return answer
