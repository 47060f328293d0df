"""Private Bayesian learning: variational inference, posterior sampling, Langevin dynamics."""

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
from tacit.variational.posterior_sampling import Chain, Sampled, Schedule, posterior_samples, sgld

__all__ = [
    "BayesianObserver",
    "Chain",
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
    "Sampled",
    "Samples",
    "Schedule",
    "SoftmaxLikelihood",
    "VariationalModel",
    "calibration_error",
    "infer",
    "infer_concealed",
    "infer_nonprivate",
    "path_cost",
    "posterior_samples",
    "reliability",
    "sgld",
]
