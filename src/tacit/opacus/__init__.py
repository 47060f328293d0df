"""The habits of Opacus: a script in its documented style runs after its import lines are changed to `tacit.opacus`."""

from tacit.opacus.batch_memory_manager import BatchMemoryManager
from tacit.opacus.module_validator import ModuleValidator
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
    "BatchMemoryManager",
    "ExponentialGradClip",
    "ExponentialNoise",
    "LambdaGradClip",
    "LambdaNoise",
    "ModuleValidator",
    "PrivacyEngine",
    "StepGradClip",
    "StepNoise",
]
