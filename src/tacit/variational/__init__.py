"""Private Bayesian learning: variational inference and noise-aware regression."""

from tacit.variational.dpvi import (
    Inference,
    Posterior,
    Reliability,
    VariationalModel,
    calibration_error,
    infer,
    infer_nonprivate,
    reliability,
)
from tacit.variational.likelihoods import (
    Likelihood,
    LinearLikelihood,
    LogisticLikelihood,
    LogJoint,
    SoftmaxLikelihood,
)
from tacit.variational.linear import DPBayesianLinearRegression, DPBayesianLogisticRegression

__all__ = [
    "DPBayesianLinearRegression",
    "DPBayesianLogisticRegression",
    "Inference",
    "Likelihood",
    "LinearLikelihood",
    "LogJoint",
    "LogisticLikelihood",
    "Posterior",
    "Reliability",
    "SoftmaxLikelihood",
    "VariationalModel",
    "calibration_error",
    "infer",
    "infer_nonprivate",
    "reliability",
]
