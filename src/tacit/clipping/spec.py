"""Every clip by name, and the clip that a JSON form or a pair of arguments describes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tacit import check
from tacit.clipping.adaptive import AdaptiveClip
from tacit.clipping.base import Clip
from tacit.clipping.batch_mean import BatchMeanClip
from tacit.clipping.flat import AutomaticClip, FlatClip
from tacit.clipping.groups import GroupClip, PerLayerClip
from tacit.errors import InvalidInput

CLIPS: dict[str, type[Clip]] = {
    kind.type: kind for kind in (FlatClip, PerLayerClip, GroupClip, AutomaticClip, AdaptiveClip, BatchMeanClip)
}


def clip_from_spec(spec: dict[str, Any]) -> Clip:
    """The clip that `Clip.spec` describes.

    Raises:
        InvalidInput: the type or a key is unknown; the nearest name is given.

    Example:
        >>> clip_from_spec({"type": "flat", "clip_norm": 1.0})
        FlatClip(clip_norm=1.0)
    """
    if not isinstance(spec, dict):
        raise check.fail("clip", 'a table such as {"type": "flat", "clip_norm": 1.0}', spec)
    kind = CLIPS[check.choice("type of clip", spec.get("type"), CLIPS)]
    own = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    check.keys(f"a {kind.type} clip", spec.keys() - {"type"}, own)
    if own[0] not in spec and kind is not AutomaticClip:
        raise check.fail(own[0], f"given for a {kind.type} clip", None)
    return kind(**{name: spec[name] for name in own if name in spec})


def clip_of(clip_norm: float | None, clipping: Clip | None) -> Clip:
    """`clipping`, or flat clipping to `clip_norm`; exactly one is given.

    Raises:
        InvalidInput: both or neither are given, or `clipping` is not a clip.

    Example:
        >>> clip_of(1.0, None)
        FlatClip(clip_norm=1.0)
    """
    if clipping is None:
        if clip_norm is None:
            raise InvalidInput("clip_norm must be given unless clipping is; got neither. Use e.g. 1.0.")
        return FlatClip(clip_norm)
    if not isinstance(clipping, Clip):
        raise check.fail("clipping", "a clip such as PerLayerClip(1.0)", clipping)
    if clip_norm is not None:
        raise InvalidInput("clip_norm must be given exactly when clipping is not; got both. Give one of the two.")
    return clipping
