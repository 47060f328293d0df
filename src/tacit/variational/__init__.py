"""Private Bayesian learning: variational inference and noise-aware regression."""

from tacit.variational.dpvi import Inference, Posterior, VariationalModel, infer, infer_nonprivate
from tacit.variational.likelihoods import Likelihood, LinearLikelihood, LogisticLikelihood, LogJoint, SoftmaxLikelihood
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
    "SoftmaxLikelihood",
    "VariationalModel",
    "infer",
    "infer_nonprivate",
]
