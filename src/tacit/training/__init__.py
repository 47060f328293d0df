"""Private training by DP-SGD: the ledger accounts for the steps that ran.

A logical batch passes through memory in microbatches of `max_physical_batch_size`. With a target and a noise
multiplier, training is stopped as by a privacy filter: the step that would cross the target is not taken.
"""

from tacit.training.callbacks import (
    AverageModel,
    BestModel,
    Callback,
    EarlyStopping,
    Functions,
    ProgressBar,
    TensorBoard,
)
from tacit.training.checkpoint import Checkpoint, load_model, read_checkpoint, save_model
from tacit.training.fit import Fit, fit
from tacit.training.holdout import Accuracy, ClippedSquaredError, PrivateHoldout, WithinTolerance
from tacit.training.loop import fit_nonprivate
from tacit.training.make_private import Private, make_private
from tacit.training.optimizers import AdamBC
from tacit.training.plan import Plan
from tacit.training.plan_options import ExponentialNoise, NoiseSchedule, PlanOptions, StepNoise
from tacit.training.private_outputs import GradScaler
from tacit.training.private_run import PrivateRun
from tacit.training.private_step import private_step
from tacit.training.recommendation import Recommendation, recommend
from tacit.training.records import Records, StreamedRecords

__all__ = [
    "Accuracy",
    "AdamBC",
    "AverageModel",
    "BestModel",
    "Callback",
    "Checkpoint",
    "ClippedSquaredError",
    "EarlyStopping",
    "ExponentialNoise",
    "Fit",
    "Functions",
    "GradScaler",
    "NoiseSchedule",
    "Plan",
    "PlanOptions",
    "Private",
    "PrivateHoldout",
    "PrivateRun",
    "ProgressBar",
    "Recommendation",
    "Records",
    "StepNoise",
    "StreamedRecords",
    "TensorBoard",
    "WithinTolerance",
    "fit",
    "fit_nonprivate",
    "load_model",
    "make_private",
    "private_step",
    "read_checkpoint",
    "recommend",
    "save_model",
]
