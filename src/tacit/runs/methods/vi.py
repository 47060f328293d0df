"""Private variational inference of a linear model, by `tacit.variational`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit import check, variational
from tacit.data import Dataset
from tacit.runs.builders import ROWS_AT_ONCE, stream_of
from tacit.runs.methods.base import Baseline, Job, Method, Predict, Trained, baseline_of, store, stored
from tacit.runs.settings import VariationalSettings
from tacit.tradeoff import Epsilon
from tacit.training import Functions

_OWN = ("family", "prior_std", "optimizer")


class Variational(Method[VariationalSettings]):
    """Variational inference with clipped and noised gradients."""

    def check(self, job: Job) -> None:
        """Raise `InvalidInput` for data that it does not take."""
        super().check(job)
        if job.dataset.task == "ratings" or job.dataset.x_train.dtype.kind != "f":
            rule = "one of numbers, with classes or values as answers, for method vi"
            raise check.fail("dataset", rule, job.dataset.name)

    def train(self, job: Job) -> Trained:
        """Infer a posterior privately."""
        config, own = job.config, self.settings
        likelihood = self._likelihood(job.dataset)

        def told(done: int, total: int) -> None:
            job.on_progress("private inference", done, total)

        found = variational.infer(
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
            callbacks=[Functions(lambda plan: job.write_ahead(*plan.runs), told)],
            stream=stream_of(config),
            **self._common(job),
        )
        posterior = found.posterior
        store(job, {"mean": posterior.mean, "factor": posterior.factor})
        return Trained(
            predict=_predictor(posterior),
            model=f"{type(likelihood).__name__}, {own.family} posterior of {len(posterior.mean):,} parameters",
            algorithm="DPVI",
            settings={
                **{name: getattr(own, name) for name in (*_OWN, "learning_rate")},
                **{name: getattr(config, name) for name in ("epochs", "batch_size", "clip_norm")},
                "noise_multiplier": found.noise_multiplier,
                "delta": config.delta,
            },
        )

    def untrained(self, job: Job) -> Trained:
        """The variational distribution before the first step."""
        x, _ = _tensors(job.dataset.x_train[:1], job.dataset.y_train[:1])
        likelihood, own = self._likelihood(job.dataset), self.settings
        settings = {"family": own.family, "prior_std": own.prior_std}
        start = variational.VariationalModel(likelihood, x.shape[1], **settings).posterior()
        store(job, {"mean": start.mean, "factor": start.factor})
        return Trained(
            predict=_predictor(start),
            model=f"{type(likelihood).__name__}, before the first step",
            algorithm="VI",
            settings={"delta": job.config.delta},
        )

    def nonprivate_baseline(self, job: Job) -> Baseline:
        """The same inference without privacy."""
        return baseline_of(job, self._without_privacy)

    def _without_privacy(self, job: Job) -> Predict:
        given = job.config.nonprivate_learning_rate
        found = variational.infer_nonprivate(
            self._likelihood(job.dataset),
            *_tensors(job.dataset.x_train, job.dataset.y_train),
            learning_rate=self.settings.learning_rate if given is None else given,
            stream=stream_of(job.config),
            **self._common(job),
        )
        return _predictor(found.posterior)

    def load(self, job: Job) -> Predict:
        """The posterior prediction of the run in `job.folder`."""
        likelihood = self._likelihood(job.dataset)
        return stored(job, lambda found: _predictor(variational.Posterior(found["mean"], found["factor"], likelihood)))

    def _likelihood(self, dataset: Dataset) -> variational.Likelihood:
        if dataset.task == "regression":
            return variational.LinearLikelihood(self.settings.noise_std)
        classes = len(dataset.classes)
        return variational.LogisticLikelihood() if classes == 2 else variational.SoftmaxLikelihood(classes)

    def _common(self, job: Job) -> dict[str, Any]:
        """Arguments that private and non-private inference share: settings, how long it is, and the public seed."""
        rate = job.config.batch_size / len(job.dataset.y_train)
        length = {"sample_rate": rate, "steps": max(1, round(job.config.epochs / rate)), "seed": job.config.init_seed}
        return length | {name: getattr(self.settings, name) for name in _OWN}


def _tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    return _rows(x), torch.from_numpy(y)


def _rows(inputs: np.ndarray) -> Tensor:
    """Flat rows with a last column of ones, for the intercept."""
    flat = torch.from_numpy(inputs).reshape(len(inputs), -1)
    return torch.cat([flat, torch.ones(len(flat), 1)], dim=1)


def _predictor(posterior: variational.Posterior) -> Predict:
    """Predictive class probabilities, or means, averaged over the posterior."""

    def answer(inputs: np.ndarray) -> np.ndarray:
        chunks = _rows(inputs).split(ROWS_AT_ONCE)
        return torch.cat([posterior.predict_proba(chunk) for chunk in chunks]).double().numpy()

    return answer
