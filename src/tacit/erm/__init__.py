"""Private empirical risk minimisation by input, objective, output and gradient perturbation, for scikit-learn."""

from tacit.erm.boosted import DPBoostedTrees
from tacit.erm.classifiers import DPLinearSVC, DPLogisticRegression
from tacit.erm.cosines import CosineFeatures
from tacit.erm.gradient import GradientDescent
from tacit.erm.input import Aggregate, Local, Shuffled
from tacit.erm.methods import METHODS
from tacit.erm.mlp import DPMLPClassifier
from tacit.erm.objective import ObjectiveGaussian, PureObjective
from tacit.erm.output import GaussianOutput, OutputPerturbation
from tacit.erm.perturbation import InputPerturbation, randomised_labels
from tacit.erm.public_table import PublicImputer, PublicTable
from tacit.erm.quantiles import PrivateQuantiles, private_histogram, private_median, private_quantiles
from tacit.erm.regressors import DPLinearRegression, DPRidge
from tacit.erm.release import Method, Release
from tacit.erm.transformers import PrivateScaler, PublicOneHot, PublicScaler

__all__ = [
    "METHODS",
    "Aggregate",
    "CosineFeatures",
    "DPBoostedTrees",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPMLPClassifier",
    "DPRidge",
    "GaussianOutput",
    "GradientDescent",
    "InputPerturbation",
    "Local",
    "Method",
    "ObjectiveGaussian",
    "OutputPerturbation",
    "PrivateQuantiles",
    "PrivateScaler",
    "PublicImputer",
    "PublicOneHot",
    "PublicScaler",
    "PublicTable",
    "PureObjective",
    "Release",
    "Shuffled",
    "private_histogram",
    "private_median",
    "private_quantiles",
    "randomised_labels",
]
