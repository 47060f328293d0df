"""Objective perturbation of logistic regression, by the estimators of `tacit.erm`."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit import check
from tacit.data import Dataset
from tacit.erm import DPLogisticRegression
from tacit.runs.methods.base import Job, OneRelease, Predict, Released, Trained, outputs_of
from tacit.runs.settings import ObjectiveSettings


class LinearScores(Released):
    """Coefficients (k, columns) and intercepts (k,) of raw rows, and the bound on the slope of a logistic loss."""

    coef: Tensor
    intercept: Tensor
    slope_bound: Tensor

    def __init__(self, **tensors: Tensor):
        super().__init__(**tensors)
        self._bound = float(self.slope_bound[0])

    def forward(self, features: Tensor) -> Tensor:
        """Class probabilities, float64 (batch, classes)."""
        scores = features.flatten(1).double() @ self.coef.T + self.intercept
        if scores.shape[1] > 1:
            return torch.softmax(scores, dim=1)
        up, down = (torch.sigmoid(score).clamp(max=self._bound) for score in (scores, -scores))
        return torch.cat([down, up], dim=1) / (up + down)


class Perturbation(OneRelease[ObjectiveSettings]):
    """One release of a convex model; of the training loop's settings only epsilon, delta and relation are used."""

    kind: ClassVar[type[Released]] = LinearScores
    takes_weights: ClassVar[bool] = True  # A weight is a share of the record's loss.

    def refusal(self, dataset: Dataset) -> str:
        """What it takes where that is not classes and numbers."""
        fits = dataset.task != "regression" and dataset.x_train.dtype.kind == "f"
        return "" if fits else "one of classes and numbers"

    def release(self, job: Job) -> Trained:
        """Release the coefficients once."""
        estimator: Any = DPLogisticRegression(
            method="objective",
            data_bounds=tuple(_rows(end, like=job.dataset.x_train) for end in job.dataset.bounds),
            norm_bound=self.settings.norm_bound,
            regularization="auto" if self.settings.regularization is None else self.settings.regularization,
            class_weight=_class_weight(job),
            **self.given(job),
        )
        estimator.fit(_rows(job.dataset.x_train), job.dataset.y_train, job.dataset.weights)
        job.ledger.save(job.folder / "ledger.json")
        slope_bound = np.array([estimator.slope_bound])
        arrays = {"coef": estimator.coef_, "intercept": estimator.intercept_, "slope_bound": slope_bound}
        model = LinearScores(**{name: torch.from_numpy(each) for name, each in arrays.items()})
        return self.kept(
            job,
            model,
            model=f"logistic regression, {model.coef.numel() + model.intercept.numel():,} parameters",
            algorithm=f"objective perturbation, {estimator.method_.name}",
            settings={"regularization": float(estimator.regularization_), "delta": job.config.delta},
        )

    def untrained(self, job: Job) -> Trained:
        """The model of zeros, whose classes are all alike."""
        outputs, width = outputs_of(job.dataset), _rows(job.dataset.x_train[:1]).shape[1]
        zeros = {"coef": torch.zeros(outputs, width), "intercept": torch.zeros(outputs), "slope_bound": torch.ones(1)}
        return self.kept(
            job,
            LinearScores(**{name: each.double() for name, each in zeros.items()}),
            model=f"logistic regression, {outputs * (width + 1):,} parameters, all 0",
            algorithm="objective perturbation",
            settings={"delta": job.config.delta},
        )

    def unprotected(self, job: Job) -> Predict:
        """Logistic regression."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=300, class_weight=_class_weight(job))
        model.fit(_rows(job.dataset.x_train), job.dataset.y_train, job.dataset.weights)
        return lambda inputs: model.predict_proba(_rows(inputs))


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
