"""Private empirical risk minimisation by objective and gradient perturbation, for scikit-learn."""

from tacit.erm.estimators import DPLinearRegression, DPLinearSVC, DPLogisticRegression, DPRidge
from tacit.erm.gradient import GradientDescent
from tacit.erm.mlp import DPMLPClassifier
from tacit.erm.objective import METHODS, ObjectiveGaussian, PureObjective
from tacit.erm.quantiles import CosineFeatures, PrivateQuantiles, private_histogram, private_median, private_quantiles
from tacit.erm.release import Method, Release
from tacit.erm.transformers import PrivateScaler, PublicImputer, PublicOneHot, PublicScaler, PublicTable
from tacit.erm.trees import DPBoostedTrees

__all__ = [
    "METHODS",
    "CosineFeatures",
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
