"""Settings of the private training loop: the sections [clip], [sampling], [noise] and [validation].

`runs.builders` makes of each what `tacit.training.fit` takes; nothing heavy is imported here.

A setting: one dataclass field that is a TOML key, an argument of `--set` and a documented attribute at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tacit import check
from tacit.errors import InvalidInput


def setting(default: Any, help: str) -> Any:
    """A field with its `default` and its one line of `help`."""
    return field(default=default, metadata={"help": help})


def known(kind: type, given: Mapping[str, Any], *, where: str, required: Iterable[str] = ()) -> dict[str, Any]:
    """The values `given` for fields of `kind`, lists as tuples; raises `InvalidInput` with the nearest known name.

    Args:
        kind: a frozen dataclass of settings.
        given: values by name.
        where: the place that messages name.
        required: names that must be given.

    Raises:
        InvalidInput: a name is unknown (the message has the nearest known one) or a required one is missing.
    """
    check.keys(where, given, [each.name for each in fields(kind)])
    for name in sorted(set(required) - given.keys()):
        raise check.fail(name, f"given in {where}", None)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


SAMPLINGS = (
    *("poisson", "fixed_size", "shuffled", "truncated_poisson", "grouped_poisson", "random_allocation"),
    *("balls_and_bins", "balanced_iteration", "cyclic_poisson", "cyclic_allocation"),
)
NOISE_SHAPES = {
    "constant": (),
    "linear": ("end",),
    "exponential": ("end",),
    "cosine": ("end",),
    "step": ("factor", "every"),
}


class _Section:
    """A section whose `type` decides which of its other settings apply."""

    def given(self) -> dict[str, Any]:
        """The settings that were given, without `type`."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "type"}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if value not in (None, {})}


@dataclass(frozen=True)
class ClipSettings(_Section):
    """The [clip] section: the kind of clipping, and the settings that only some kinds have."""

    type: str = setting("flat", "flat, per_layer, groups, automatic, adaptive or batch_mean.")
    bounds: Mapping[str, float] = field(default_factory=dict)
    quantile: float | None = setting(None, "Of adaptive: share of the records to be left unclipped.")
    learning_rate: float | None = setting(None, "Of adaptive: step size of the clipping norm.")
    count_noise: float | None = setting(None, "Of adaptive: noise of the count, in units of noise_multiplier.")
    stability: float | None = setting(None, "Of automatic: added to each gradient norm, so that small ones stay small.")


@dataclass(frozen=True)
class SamplingSettings(_Section):
    """The [sampling] section: how batches are drawn, and thus what one privacy unit is."""

    type: str = setting("poisson", f"{', '.join(SAMPLINGS[:-1])} or {SAMPLINGS[-1]}.")
    cap: int | None = setting(None, "Of truncated_poisson: the largest batch.")
    users: str | None = setting(None, "Of grouped_poisson: the feature that says which user a record belongs to.")
    groups: int | None = setting(None, "Of the cyclic ones: groups that take turns; the bands of the noise by default.")
    average: bool | None = setting(None, "Of grouped_poisson: the mean of a user's gradients instead of their sum.")

    def __post_init__(self) -> None:
        check.choice("type of [sampling]", self.type, SAMPLINGS)
        kinds: dict[str, tuple[str, ...]] = {"truncated_poisson": ("cap",), "grouped_poisson": ("users", "average")}
        kinds |= dict.fromkeys(("cyclic_poisson", "cyclic_allocation"), ("groups",))
        own = kinds.get(self.type, ())
        _check_settings(self, "sampling", own, required=set(own) - {"average", "groups"})


@dataclass(frozen=True)
class NoiseSettings(_Section):
    """The [noise] section: correlation over the steps, or the schedule of noise_multiplier from the first step on."""

    correlation: str = setting("independent", "independent, banded:B, banded:auto, blt:B, square_root or tree.")
    type: str = setting("constant", "constant, linear, exponential, cosine or step.")
    end: float | None = setting(None, "Of linear, exponential and cosine: the noise multiplier of the last step.")
    factor: float | None = setting(None, "Of step: factor by which the noise multiplier changes.")
    every: int | None = setting(None, "Of step: steps between two changes.")

    def __post_init__(self) -> None:
        check.text("correlation of [noise]", self.correlation)
        own = NOISE_SHAPES[check.choice("type of [noise]", self.type, NOISE_SHAPES)]
        _check_settings(self, "noise", own, required=set(own))

    def given(self) -> dict[str, Any]:
        """The settings of the schedule that were given."""
        return {name: value for name, value in super().given().items() if name != "correlation"}


@dataclass(frozen=True)
class ValidationSettings:
    """The [validation] section: records that no step trains on, to stop a run or to choose its weights by.

    Of method "gradient". The records set aside pay for what is told of them, in parallel with the training.
    """

    type: str = setting("none", "none, or private: a part of the training records.")
    epsilon: float | None = setting(None, "What is told of them costs them this; that of the run by default.")
    noise: float | None = setting(None, "Of noisy, instead of epsilon: standard deviation of each sum, in units.")
    share: float = setting(0.1, "Probability with which a record, or a user, is set aside, in (0, 1).")
    checkpoint: str = setting(
        "noisy", "noisy: a score with noise after each epoch; exponential or permute_and_flip: only a choice."
    )
    patience: int | None = setting(None, "Of noisy: epochs without a better score after which the run ends.")
    best: bool = setting(False, "Of noisy: end with the weights of the best epoch.")
    tolerance: float | None = setting(
        None, "Of a regression: the score is the share of predictions at most this far off."
    )
    error_bound: float | None = setting(
        None, "Of a regression: the score is the mean squared error, each one clipped to this."
    )

    def __post_init__(self) -> None:
        check.choice("type of [validation]", self.type, ("none", "private"))
        check.choice("checkpoint of [validation]", self.checkpoint, ("noisy", "exponential", "permute_and_flip"))
        check.probability("share of [validation]", self.share, open_low=True, open_high=True)
        for name in ("epsilon", "noise", "tolerance", "error_bound"):
            if getattr(self, name) is not None:
                check.positive(f"{name} of [validation]", getattr(self, name))
        for name, other in (("noise", "epsilon"), ("tolerance", "error_bound")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise check.fail(f"{name} of [validation]", f"left out beside {other}", getattr(self, name))
        if self.patience is not None:
            check.count("patience of [validation]", self.patience)
        if not isinstance(self.best, bool):
            raise check.fail("best of [validation]", "true or false", self.best)
        if self.checkpoint != "noisy" and (self.patience is not None or self.noise is not None or self.best):
            raise check.fail("checkpoint of [validation]", "noisy for patience, noise and best", self.checkpoint)

    @property
    def given(self) -> bool:
        """Whether records are set aside."""
        return self.type != "none"


NO_VALIDATION = ValidationSettings()
"""The [validation] section of a run that sets nothing aside."""

SHORT_FORMS = {"sampling": "type", "noise": "correlation", "validation": "type"}
"""The setting of a section that its name alone stands for: `noise = "banded:8"`, `--noise banded:8`."""

LOOP_SETTINGS: dict[str, type] = {
    "clip": ClipSettings,
    "sampling": SamplingSettings,
    "noise": NoiseSettings,
    "validation": ValidationSettings,
}
"""Section of the training loop by name."""


def _check_settings(section: Any, name: str, own: tuple[str, ...], *, required: set[str]) -> None:
    """Raise `InvalidInput` unless all of `required` and nothing besides `own` was given."""
    given = section.given()
    foreign = sorted(given.keys() - set(own))
    if foreign:
        raise InvalidInput(f"type of [{name}] must be one that has {foreign[0]}; got {section.type!r}.")
    for missing in sorted(required - given.keys()):
        raise check.fail(f"{missing} of [{name}]", f"given for {section.type}", None)
