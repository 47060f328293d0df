"""Private training: what was accounted is what was run."""

from tacit.training.callbacks import BestModel, Callback, EarlyStopping
from tacit.training.checkpoint import Checkpoint, read_checkpoint
from tacit.training.display import ProgressBar, TensorBoard
from tacit.training.engine import Private, make_private
from tacit.training.fit import Fit, fit
from tacit.training.model_file import load_model, save_model
from tacit.training.nonprivate import fit_nonprivate
from tacit.training.optimizers import AdamBC
from tacit.training.plan import Plan, PrivateRun
from tacit.training.schedules import CosineNoise, ExponentialNoise, LinearNoise, NoiseSchedule, StepNoise
from tacit.training.step import private_step

__all__ = [
    "AdamBC",
    "BestModel",
    "Callback",
    "Checkpoint",
    "CosineNoise",
    "EarlyStopping",
    "ExponentialNoise",
    "Fit",
    "LinearNoise",
    "NoiseSchedule",
    "Plan",
    "Private",
    "PrivateRun",
    "ProgressBar",
    "StepNoise",
    "TensorBoard",
    "fit",
    "fit_nonprivate",
    "load_model",
    "make_private",
    "private_step",
    "read_checkpoint",
    "save_model",
]
