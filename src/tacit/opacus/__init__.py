"""The interface of Opacus: its documented scripts run after their imports are changed to `tacit.opacus`."""

from tacit.opacus.module_validator import (
    DPGRU,
    DPLSTM,
    DPRNN,
    BatchMemoryManager,
    DPMultiheadAttention,
    ModuleValidator,
)
from tacit.opacus.privacy_engine import PrivacyEngine
from tacit.opacus.schedulers import (
    ExponentialGradClip,
    ExponentialNoise,
    LambdaGradClip,
    LambdaNoise,
    StepGradClip,
    StepNoise,
)

__all__ = [
    "DPGRU",
    "DPLSTM",
    "DPRNN",
    "BatchMemoryManager",
    "DPMultiheadAttention",
    "ExponentialGradClip",
    "ExponentialNoise",
    "LambdaGradClip",
    "LambdaNoise",
    "ModuleValidator",
    "PrivacyEngine",
    "StepGradClip",
    "StepNoise",
]
