"""Private Bayesian learning: variational inference and noise-aware regression."""

from tacit.variational.bayesian_observer import BayesianObserver
from tacit.variational.concealed import Concealed, PathCost, infer_concealed, path_cost
from tacit.variational.dpvi import Inference, VariationalModel, infer, infer_nonprivate
from tacit.variational.likelihoods import (
    Likelihood,
    LinearLikelihood,
    LogisticLikelihood,
    LogJoint,
    SoftmaxLikelihood,
)
from tacit.variational.linear import DPBayesianLinearRegression, DPBayesianLogisticRegression
from tacit.variational.posterior import Posterior, Reliability, Samples, calibration_error, reliability

__all__ = [
    "BayesianObserver",
    "Concealed",
    "DPBayesianLinearRegression",
    "DPBayesianLogisticRegression",
    "Inference",
    "Likelihood",
    "LinearLikelihood",
    "LogJoint",
    "LogisticLikelihood",
    "PathCost",
    "Posterior",
    "Reliability",
    "Samples",
    "SoftmaxLikelihood",
    "VariationalModel",
    "calibration_error",
    "infer",
    "infer_concealed",
    "infer_nonprivate",
    "path_cost",
    "reliability",
]
