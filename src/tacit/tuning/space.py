"""The settings that a search draws from: a finite list for each, declared before any data are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit import check
from tacit.noise import Stream
from tacit.noise.discrete import uniform_integer
from tacit.runs import Config

FREE = (
    *("learning_rate", "learning_rate_schedule", "momentum", "optimizer", "clip_norm", "hidden"),
    *("batch_size", "epochs", "adam_floor", "count_padding"),
)
"""Settings that may vary: none of them changes the data, the target or the noise."""
_RATES = [Fraction(2) ** k for k in range(-2, 4)]
_CLIPS = [Fraction(4) ** k for k in range(-2, 2)]


@dataclass(frozen=True)
class Space:
    """Lists of values by the name of the setting; a trial draws each one uniformly and independently.

    Example:
        >>> from tacit.noise import SeededStream
        >>> sorted(Space({"learning_rate": (0.1, 1.0), "clip_norm": (1.0,)}).draw(SeededStream(0)))
        ['clip_norm', 'learning_rate']
    """

    values: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        if not self.values:
            raise check.fail("space", "lists of values by the name of the setting", dict(self.values))
        for name, listed in self.values.items():
            if not isinstance(listed, list | tuple) or not listed:
                raise check.fail(f"space.{name}", "a list with at least one value", listed)

    @property
    def size(self) -> int:
        """How many settings there are."""
        product = 1
        for listed in self.values.values():
            product *= len(listed)
        return product

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One setting."""
        return {name: listed[uniform_integer(stream, len(listed))] for name, listed in self.values.items()}


def space_of(config: Config, values: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """The space around `config`: `values`, or learning rates from 1/4 to 8 times its own and bounds from 1/16 to 4.

    Raises:
        InvalidInput: a name is no setting that may vary, or a list is empty.

    Example:
        >>> space_of(Config(epsilon=3.0)).size
        24
    """
    if values is None:
        rates = tuple(float(config.learning_rate * factor) for factor in _RATES)
        return Space({"learning_rate": rates, "clip_norm": tuple(float(config.clip_norm * each) for each in _CLIPS)})
    check.keys("the space", values, FREE)
    return Space({name: tuple(map(_frozen, listed)) for name, listed in values.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
