"""Gradient clipping: bounds on per-sample gradients, and so on what one record can contribute."""

from tacit.clipping.base import AutomaticClip, BatchMeanClip, Clip, FlatClip
from tacit.clipping.spec import AdaptiveClip, GroupClip, PerLayerClip, clip_from_spec, clip_of

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
