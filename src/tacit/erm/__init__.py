"""Private empirical risk minimisation by input, objective, output and gradient perturbation, for scikit-learn."""

from tacit.erm.classifiers import DPLinearSVC, DPLogisticRegression
from tacit.erm.gradient import GradientDescent
from tacit.erm.gradient_sampled import NoisySGD
from tacit.erm.gradient_svrg import Svrg
from tacit.erm.input import Aggregate, Local, Shuffled
from tacit.erm.input_fukuchi import Fukuchi
from tacit.erm.input_paper import PaperInput
from tacit.erm.methods import METHODS
from tacit.erm.mlp import DPMLPClassifier
from tacit.erm.objective import ObjectiveGaussian
from tacit.erm.objective_amp import ApproximateMinima
from tacit.erm.objective_kifer import KiferObjective
from tacit.erm.objective_pure import ChaudhuriObjective, KiferPureObjective, PureObjective
from tacit.erm.output import GaussianOutput, OutputPerturbation
from tacit.erm.output_descent import GradientDescentOutput
from tacit.erm.perturbation import InputPerturbation, randomised_labels
from tacit.erm.regressors import DPLinearRegression, DPRidge
from tacit.erm.release import Method, Release
from tacit.erm.scaling import PrivateScaler
from tacit.erm.transformers import PublicOneHot, PublicScaler

__all__ = [
    "METHODS",
    "Aggregate",
    "ApproximateMinima",
    "ChaudhuriObjective",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPMLPClassifier",
    "DPRidge",
    "Fukuchi",
    "GaussianOutput",
    "GradientDescent",
    "GradientDescentOutput",
    "InputPerturbation",
    "KiferObjective",
    "KiferPureObjective",
    "Local",
    "Method",
    "NoisySGD",
    "ObjectiveGaussian",
    "OutputPerturbation",
    "PaperInput",
    "PrivateScaler",
    "PublicOneHot",
    "PublicScaler",
    "PureObjective",
    "Release",
    "Shuffled",
    "Svrg",
    "randomised_labels",
]
