"""Every clip by name, and the clip that a JSON form or a pair of arguments describes.

Clipping by groups of parameters: every group of a per-sample gradient has a bound of its own.

Adaptive clipping: the clipping norm follows a private estimate of a quantile of the gradient norms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

from tacit import check
from tacit.clipping.base import AutomaticClip, BatchMeanClip, Clip, FlatClip, NormClip, capped, check_bound
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian

if TYPE_CHECKING:
    from torch import Tensor


# Clipping norms that every clip accepts.
_LOWEST, _HIGHEST = 1e-9, 1e12
# A step changes the clipping norm by a factor of e^5 at most: more would only follow a very noisy count.
_LARGEST_MOVE = 5.0


@dataclass(frozen=True)
class AdaptiveClip(NormClip):
    """Flat clipping at a bound that moves towards the `quantile` of the norms (Andrew et al. 2021, Algorithm 1).

    Besides the clipped sum a step releases the noisy count  sum_i (b_i - 1/2) + N(0, s^2),  b_i = 1 for a record whose
    gradient has norm at most `clip_norm`, else 0. A record adds at most clip_norm to the sum and, thanks to the shift,
    at most 1/2 to the count. In units of both noises it moves the pair by at most

        sqrt(1 / noise_multiplier^2 + (1/2)^2 / s^2) = 1 / z,   z = noise_multiplier / sqrt(1 + 1 / count_noise^2)

    where s = noise_multiplier * count_noise / 2: the step is exactly one Gaussian mechanism of noise multiplier z,
    which is what the ledger records (Theorem 1 there). Then clip_norm *= exp(-learning_rate (share - quantile)), where
    share = noisy count / expected batch size + 1/2.

    Args:
        clip_norm: the bound of this step, in [1e-9, 1e12].
        quantile: share of the records to be left unclipped, in (0, 1).
        learning_rate: > 0.
        count_noise: noise of the count over its sensitivity, in units of noise_multiplier; 10 costs .5 percent of z.

    Example:
        >>> import torch
        >>> clip = AdaptiveClip(1.0, quantile=0.5, learning_rate=0.2)
        >>> round(clip.after(clip.statistic(torch.tensor([0.5, 0.6])), 2.0).clip_norm, 3)
        0.905
    """

    type: ClassVar[str] = "adaptive"
    statistics: ClassVar[int] = 1
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.probability("quantile", self.quantile, open_low=True, open_high=True)
        check.positive("learning_rate", self.learning_rate)
        check.real("count_noise", self.count_noise, low=1e-3, high=1e6, hint="Use e.g. 10.0.")

    def mechanism(self, noise_multiplier: float, unsafe_no_noise: bool = False) -> Gaussian:
        """The Gaussian mechanism that releases the sum and the count together."""
        base = super().mechanism(noise_multiplier, unsafe_no_noise)
        return replace(base, noise_multiplier=base.noise_multiplier / math.sqrt(1 + self.count_noise**-2))

    def contributions(self, norms: Tensor) -> Tensor:
        """Contribution b_i - 1/2 of every record; 0 where the gradient is not finite, as for an absent record."""
        return ((norms <= self.clip_norm).to(norms.dtype) - 0.5) * norms.isfinite()

    def statistic(self, norms: Tensor) -> float:
        """The count  sum_i (b_i - 1/2)."""
        return float(self.contributions(norms).double().sum())

    def statistic_std(self, noise_multiplier: float) -> float:
        """Standard deviation s = noise_multiplier * count_noise / 2 of the noise on the count."""
        return 0.5 * noise_multiplier * self.count_noise

    def after(self, statistic: float, expected_batch_size: float) -> AdaptiveClip:
        """The clip after one geometric step of the clipping norm, from the noisy count."""
        excess = statistic / expected_batch_size + 0.5 - self.quantile
        move = min(max(-self.learning_rate * excess, -_LARGEST_MOVE), _LARGEST_MOVE)
        return replace(self, clip_norm=min(max(self.clip_norm * math.exp(move), _LOWEST), _HIGHEST))


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
    check.that(isinstance(clipping, Clip), "clipping", "a clip such as PerLayerClip(1.0)", clipping)
    if clip_norm is not None:
        raise InvalidInput("clip_norm must be given exactly when clipping is not; got both. Give one of the two.")
    return clipping
