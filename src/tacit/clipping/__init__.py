"""Gradient clipping: bounds on per-sample gradients, and so on what one record can contribute."""

from tacit.clipping.adaptive import AdaptiveClip
from tacit.clipping.base import Clip
from tacit.clipping.batch_mean import BatchMeanClip
from tacit.clipping.flat import AutomaticClip, FlatClip
from tacit.clipping.groups import GroupClip, PerLayerClip
from tacit.clipping.spec import clip_from_spec, clip_of

__all__ = [
    "AdaptiveClip",
    "AutomaticClip",
    "BatchMeanClip",
    "Clip",
    "FlatClip",
    "GroupClip",
    "PerLayerClip",
    "clip_from_spec",
    "clip_of",
]
