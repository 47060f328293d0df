"""Input, objective and output perturbation of logistic regression, by the estimators of `tacit.erm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor, nn

from tacit import check
from tacit.erm import DPLogisticRegression
from tacit.erm.losses import clipped_chance, softmax
from tacit.runs.decision_metrics import metric_of
from tacit.runs.methods.base import Job, Method, Predict, Trained
from tacit.runs.run_signature import MODEL
from tacit.runs.settings import PerturbationSettings
from tacit.serialization import write_bytes


class Perturbation(Method[PerturbationSettings]):
    """One release of a convex model; of the training loop's settings only epsilon, delta and relation are used."""

    saves_releases: ClassVar[bool] = True

    def takes_weights(self) -> bool:
        """True but for input perturbation, which releases records or their sums."""
        return self.settings.family != "input"

    def check(self, job: Job) -> None:
        """Raise `InvalidInput` without an epsilon, or for data that are neither classes nor numbers."""
        config, dataset = job.config, job.dataset
        if config.epsilon is None:
            raise check.fail("epsilon", f"given for method {config.method}", None, "Its noise is calibrated.")
        if dataset.task == "regression" or dataset.x_train.dtype.kind != "f":
            raise check.fail("dataset", f"one of classes and numbers for method {config.method}", dataset.name)

    def train(self, job: Job) -> Trained:
        """Release the coefficients once."""
        estimator = self._estimator(job)
        job.on_progress("private training", 0, 1)
        estimator.fit(_rows(job.dataset.x_train), job.dataset.y_train, job.dataset.weights)
        job.ledger.save(job.folder / "ledger.json")
        slope_bound = np.array([estimator.slope_bound])
        weights = {"coef": estimator.coef_, "intercept": estimator.intercept_, "slope_bound": slope_bound}
        write_bytes(job.folder / MODEL, save(weights))
        job.on_progress("private training", 1, 1)
        local = estimator.local_guarantee_
        found = None if local is None else local.epsilon(job.config.delta)
        return Trained(
            predict=_predictor(**weights),
            model=f"logistic regression, {weights['coef'].size + weights['intercept'].size:,} parameters",
            algorithm=f"{estimator.method_.family} perturbation, {estimator.method_.name}",
            settings={
                "regularization": float(estimator.regularization_),
                "delta": job.config.delta,
                "local epsilon": None if found is None else f"{float(found):.4g} ({found.standing.value})",
                "local mu over central mu": estimator.exchange_rate_,
            },
        )

    def untrained(self, job: Job) -> Trained:
        """The model of zeros, whose classes are all alike."""
        outputs = len(job.dataset.classes) if len(job.dataset.classes) > 2 else 1
        width = _rows(job.dataset.x_train[:1]).shape[1]
        weights = {"coef": np.zeros((outputs, width)), "intercept": np.zeros(outputs), "slope_bound": np.ones(1)}
        write_bytes(job.folder / MODEL, save(weights))
        return Trained(
            predict=_predictor(**weights),
            model=f"logistic regression, {outputs * (width + 1):,} parameters, all 0",
            algorithm=f"{self.settings.family} perturbation",
            settings={"delta": job.config.delta},
        )

    def nonprivate_baseline(self, job: Job) -> Sequence[Mapping[str, float]]:
        """Logistic or ridge regression without privacy."""
        from sklearn.linear_model import LogisticRegression

        dataset = job.dataset
        job.on_progress("non-private baseline", 0, 1)
        model = LogisticRegression(max_iter=300, class_weight=_class_weight(job))
        model.fit(_rows(dataset.x_train), dataset.y_train, dataset.weights)
        job.on_progress("non-private baseline", 1, 1)

        def predict(inputs: np.ndarray) -> np.ndarray:
            return model.predict_proba(_rows(inputs))

        job.keep_baseline(predict)
        return [{"test": metric_of(dataset)(predict(dataset.x_test), dataset.y_test)}]

    def load(self, job: Job) -> Predict:
        """The released model of the run in `job.folder`."""
        return _predictor(**self._stored(job))

    def module(self, job: Job) -> nn.Module:
        """The released model of the run in `job.folder`."""
        return _Released(**self._stored(job))

    def _stored(self, job: Job) -> dict[str, np.ndarray]:
        path = job.folder / MODEL
        try:
            stored = load(path.read_bytes())
            return {name: stored[name] for name in ("coef", "intercept", "slope_bound")}
        except (OSError, SafetensorError, KeyError):
            raise check.fail("RUN", "the folder of a finished run, with model.safetensors in it", str(path)) from None

    def _estimator(self, job: Job) -> Any:
        config, dataset = job.config, job.dataset
        assert config.epsilon is not None, "see check"
        return DPLogisticRegression(
            method=self.settings.family,
            variant=self.settings.variant,
            epsilon=config.epsilon,
            delta=config.delta,
            relation=config.relation,
            classes=range(len(dataset.classes)),
            data_bounds=tuple(_rows(end, like=dataset.x_train) for end in dataset.bounds),
            norm_bound=self.settings.norm_bound,
            regularization="auto" if self.settings.regularization is None else self.settings.regularization,
            class_weight=_class_weight(job),
            ledger=job.ledger,
            strict=config.strict,
            unsafe_seed=config.unsafe_seed,
        )


def _class_weight(job: Job) -> dict[int, float] | None:
    """The weights of [class_weights] by the place of the class."""
    weights, classes = job.config.class_weights, job.dataset.classes
    if not weights:
        return None
    check.keys("class_weights", weights, classes)
    return {classes.index(name): weight for name, weight in weights.items()}


def _rows(values: Any, like: np.ndarray | None = None) -> Any:
    """Rows as flat tables; a bound, a number or an array that broadcasts against one row of `like`, as a flat row."""
    if like is not None:
        return np.broadcast_to(np.asarray(values, dtype=float), like.shape[1:]).reshape(-1)
    return values.reshape(len(values), -1)


class _Released(nn.Module):
    """`_predictor` as a module."""

    def __init__(self, coef: np.ndarray, intercept: np.ndarray, slope_bound: np.ndarray):
        super().__init__()
        self.coef, self.intercept = (nn.Parameter(torch.from_numpy(value)) for value in (coef, intercept))
        self.slope_bound = float(slope_bound[0])

    def forward(self, features: Tensor) -> Tensor:
        scores = features.flatten(1).double() @ self.coef.T + self.intercept
        if scores.shape[1] > 1:
            return torch.softmax(scores, dim=1)
        up, down = (torch.sigmoid(score).clamp(max=self.slope_bound) for score in (scores, -scores))
        return torch.cat([down, up], dim=1) / (up + down)


def _predictor(coef: np.ndarray, intercept: np.ndarray, slope_bound: np.ndarray) -> Predict:
    """Class probabilities of the linear scores."""

    def answer(inputs: np.ndarray) -> np.ndarray:
        scores = _rows(inputs) @ coef.T + intercept
        if scores.shape[1] > 1:
            return softmax(scores)
        chance = clipped_chance(scores, float(slope_bound[0]))
        return np.hstack([1 - chance, chance])

    return answer
