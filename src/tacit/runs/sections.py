"""Sections of the private training loop: how gradients are clipped, batches drawn and noise scheduled.

`build` makes of each what `tacit.training.fit` takes; nothing heavy is imported before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.runs.settings import setting

if TYPE_CHECKING:
    from tacit.clipping import Clip
    from tacit.data import Dataset
    from tacit.sampling import Sampling
    from tacit.training.schedules import Noise

SAMPLINGS = ("poisson", "fixed_size", "shuffled", "truncated_poisson", "grouped_poisson")
SHAPES = {"constant": (), "linear": ("end",), "exponential": ("end",), "cosine": ("end",), "step": ("factor", "every")}


@dataclass(frozen=True)
class ClipSettings:
    """The [clip] section: the kind of clipping, and the settings that only some kinds have."""

    type: str = setting("flat", "flat, per_layer, groups, automatic, adaptive or batch_mean.")
    bounds: Mapping[str, float] = field(default_factory=dict)
    quantile: float | None = setting(None, "Of adaptive: share of the records to be left unclipped.")
    learning_rate: float | None = setting(None, "Of adaptive: how fast the bound moves.")
    count_noise: float | None = setting(None, "Of adaptive: noise of the count, in units of noise_multiplier.")
    stability: float | None = setting(None, "Of automatic: keeps small gradients apart.")

    def build(self, clip_norm: float) -> Clip:
        """The clip with `clip_norm`, or with `bounds` for groups; raises `InvalidInput` for another kind's setting."""
        from tacit.clipping import clip_from_spec

        given = _given(self, but="type")
        return clip_from_spec({"type": self.type} | ({} if self.type == "groups" else {"clip_norm": clip_norm}) | given)


@dataclass(frozen=True)
class SamplingSettings:
    """The [sampling] section: who is in a batch, and thus what one unit of privacy is."""

    type: str = setting("poisson", "poisson, fixed_size, shuffled, truncated_poisson or grouped_poisson.")
    cap: int | None = setting(None, "Of truncated_poisson: the largest batch.")
    users: str | None = setting(None, "Of grouped_poisson: the feature that tells whose a record is.")
    average: bool | None = setting(None, "Of grouped_poisson: the mean of a user's gradients instead of their sum.")

    def __post_init__(self) -> None:
        check.choice("type of [sampling]", self.type, SAMPLINGS)
        own = {"truncated_poisson": {"cap"}, "grouped_poisson": {"users", "average"}}.get(self.type, set())
        _only(self, own, "type of [sampling]", self.type)
        for name in own - {"average"}:
            if getattr(self, name) is None:
                raise check.fail(f"{name} of [sampling]", f"given for {self.type}", None)

    def build(self, dataset: Dataset) -> str | Sampling:
        """The sampling for the training rows of `dataset`."""
        from tacit.sampling import GroupedPoissonSampling, TruncatedPoissonSampling

        if self.cap is not None:
            return TruncatedPoissonSampling(self.cap)
        if self.users is not None:
            column = check.choice("users of [sampling]", self.users, dataset.feature_names or ())
            owners = dataset.x_train[:, (dataset.feature_names or ()).index(column)]
            return GroupedPoissonSampling(owners, average=bool(self.average))
        return self.type


@dataclass(frozen=True)
class NoiseSettings:
    """The [noise] section: how noise_multiplier, which is that of the first step, goes on."""

    type: str = setting("constant", "constant, linear, exponential, cosine or step.")
    end: float | None = setting(None, "Of linear, exponential and cosine: the noise multiplier of the last step.")
    factor: float | None = setting(None, "Of step: what the noise multiplier is multiplied by.")
    every: int | None = setting(None, "Of step: after how many steps each time.")

    def __post_init__(self) -> None:
        own = set(SHAPES[check.choice("type of [noise]", self.type, SHAPES)])
        _only(self, own, "type of [noise]", self.type)
        for name in own:
            if getattr(self, name) is None:
                raise check.fail(f"{name} of [noise]", f"given for {self.type}", None)

    def build(self, noise_multiplier: float | None) -> Noise | None:
        """The schedule that starts with `noise_multiplier`, which may be None (calibrated) for constant noise alone."""
        from tacit.training import schedules

        if self.type == "constant":
            return noise_multiplier
        if noise_multiplier is None:
            raise check.fail("type of [noise]", "constant where epsilon is given", self.type, "Give noise_multiplier.")
        kind = getattr(schedules, f"{self.type.capitalize()}Noise")
        return kind(noise_multiplier, **_given(self, but="type"))


def _given(section: Any, *, but: str) -> dict[str, Any]:
    values = {each.name: getattr(section, each.name) for each in fields(section) if each.name != but}
    return {name: value for name, value in values.items() if value not in (None, {})}


def _only(section: Any, own: set[str], name: str, kind: str) -> None:
    foreign = sorted(_given(section, but="type").keys() - own)
    if foreign:
        raise InvalidInput(f"{name} must be one that has {foreign[0]}; got {kind!r}.")
