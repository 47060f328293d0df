"""Clipping by groups of parameters: every group of a per-sample gradient has a bound of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

from tacit import check
from tacit.clipping.base import Clip, NormClip, capped, check_bound
from tacit.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PerLayerClip(NormClip):
    """Clip every layer's gradient to `clip_norm` / sqrt(layers), and so the whole gradient to `clip_norm`.

        sensitivity = sqrt(sum over layers of clip_norm^2 / layers) = clip_norm

    A layer is a module that holds parameters of its own: the name of a parameter up to its last dot. For bounds that
    differ see `GroupClip`.

    Args:
        clip_norm: in [1e-9, 1e12].

    Example:
        >>> PerLayerClip(1.0).groups(["0.weight", "0.bias", "2.weight"])
        {'0.weight': 0, '0.bias': 0, '2.weight': 1}
    """

    type: ClassVar[str] = "per_layer"

    def groups(self, names: Sequence[str]) -> dict[str, int]:
        """One group for each layer."""
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
        return {name: layers.index(name.rpartition(".")[0]) for name in names}

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """Factor of every layer; 0 for every layer of a record with one norm that is not finite."""
        return _finite_records(capped(norms, self.clip_norm / math.sqrt(len(norms)), rounding=rounding), norms)


@dataclass(frozen=True)
class GroupClip(Clip):
    """Groups of parameters given by patterns of their names, each clipped to its own bound.

        GroupClip({"embedding.*": 0.1, "head.*": 1.0, "*": 0.5})

    A parameter belongs to the first pattern (as in a shell: `*`, `?`, `[...]`) that its name matches; every parameter
    needs one and every pattern needs a parameter.

    Args:
        bounds: pattern -> bound in [1e-9, 1e12], or the same as pairs.

    Example:
        >>> GroupClip({"head.*": 3.0, "*": 4.0}).clip_norm
        5.0
    """

    type: ClassVar[str] = "groups"
    bounds: tuple[tuple[str, float], ...]

    def __init__(self, bounds: Mapping[str, float] | Sequence[tuple[str, float]]):
        if not isinstance(bounds, Mapping | Sequence) or isinstance(bounds, str):
            raise check.fail("bounds", "a table of patterns and their bounds", bounds, 'Use e.g. {"*": 1.0}.')
        pairs = bounds.items() if isinstance(bounds, Mapping) else bounds
        checked = tuple((str(pattern), check_bound(f"bound of {pattern!r}", bound)) for pattern, bound in pairs)
        if not checked:
            raise InvalidInput('bounds must be at least one pattern with its bound; got none. Use e.g. {"*": 1.0}.')
        object.__setattr__(self, "bounds", checked)

    @property
    def clip_norm(self) -> float:
        """Bound on the whole gradient, sqrt(sum of the squared bounds)."""
        return math.hypot(*(bound for _, bound in self.bounds))

    @property
    def sensitivity(self) -> float:
        """The bound on the whole gradient."""
        return self.clip_norm

    def groups(self, names: Sequence[str]) -> dict[str, int]:
        """Index of the first pattern that each name matches.

        Raises:
            InvalidInput: a name matches no pattern, or a pattern is the first of no name.
        """
        found = {name: self._group(name) for name in names}
        idle = [pattern for i, (pattern, _) in enumerate(self.bounds) if i not in found.values()]
        if idle:
            raise InvalidInput(
                f"bounds must name parameters of the model; got {idle[0]!r}, which none matches first. "
                f"The parameters are {', '.join(names)}."
            )
        return found

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """Factor of every group; 0 for every group of a record with one norm that is not finite."""
        bounds = norms.new_tensor([[bound] for _, bound in self.bounds])
        return _finite_records(capped(norms, bounds, rounding=rounding), norms)

    def spec(self) -> dict[str, Any]:
        """JSON form, with the bounds as a table."""
        return {"type": self.type, "bounds": dict(self.bounds)}

    def _group(self, name: str) -> int:
        for i, (pattern, _) in enumerate(self.bounds):
            if fnmatchcase(name, pattern):
                return i
        raise InvalidInput(f"bounds must cover every trainable parameter; got none for {name!r}. Add '*' as the last.")


def _finite_records(factors: Tensor, norms: Tensor) -> Tensor:
    """`factors`, zero in every group of a record that has one norm that is not finite."""
    return factors * norms.isfinite().all(0)
