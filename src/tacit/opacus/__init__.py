"""The habits of Opacus: a script in its documented style runs after its import lines are changed to `tacit.opacus`."""

from tacit.opacus.engine import PrivacyEngine
from tacit.opacus.memory import BatchMemoryManager
from tacit.opacus.schedulers import (
    ExponentialGradClip,
    ExponentialNoise,
    LambdaGradClip,
    LambdaNoise,
    StepGradClip,
    StepNoise,
)
from tacit.opacus.validator import ModuleValidator

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
