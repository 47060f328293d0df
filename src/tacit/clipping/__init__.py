"""Bounds on what one record can contribute."""

from tacit.clipping.flat import FlatClip

__all__ = ["FlatClip"]
