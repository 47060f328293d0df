"""Private empirical risk minimisation by objective and gradient perturbation, for scikit-learn."""

from tacit.erm.estimators import DPLinearRegression, DPLinearSVC, DPLogisticRegression, DPRidge
from tacit.erm.gradient import GradientDescent
from tacit.erm.methods import METHODS
from tacit.erm.mlp import DPMLPClassifier
from tacit.erm.objective import ObjectiveGaussian, PureObjective
from tacit.erm.public_table import PublicImputer, PublicTable
from tacit.erm.quantiles import PrivateQuantiles, private_histogram, private_median, private_quantiles
from tacit.erm.release import Method, Release
from tacit.erm.transformers import PrivateScaler, PublicOneHot, PublicScaler
from tacit.erm.trees import DPBoostedTrees

__all__ = [
    "METHODS",
    "DPBoostedTrees",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPMLPClassifier",
    "DPRidge",
    "GradientDescent",
    "Method",
    "ObjectiveGaussian",
    "PrivateQuantiles",
    "PrivateScaler",
    "PublicImputer",
    "PublicOneHot",
    "PublicScaler",
    "PublicTable",
    "PureObjective",
    "Release",
    "private_histogram",
    "private_median",
    "private_quantiles",
]
