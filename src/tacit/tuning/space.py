"""The settings that a search draws from: finite lists, declared before any data are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from tacit import check
from tacit.noise import Stream
from tacit.noise.discrete import uniform_integer
from tacit.runs import Config

FREE = (
    *("learning_rate", "learning_rate_schedule", "momentum", "optimizer", "clip_norm", "hidden"),
    *("batch_size", "epochs", "adam_floor", "count_padding"),
)
"""Settings that may vary: none of them changes the data, the target or the noise."""
_RATES = [Fraction(2) ** k for k in range(-1, 3)]
_CLIPS = [Fraction(2) ** k for k in range(-1, 1)]


class Proposals(Protocol):
    """Public settings that trials draw from, each draw independent of all others and of every score."""

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that vary."""
        ...

    @property
    def size(self) -> int:
        """How many different draws there are."""
        ...

    def listed(self, name: str, default: Any) -> tuple[Any, ...]:
        """The values of setting `name`; `default` alone where it does not vary."""
        ...

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One setting."""
        ...


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
    def names(self) -> tuple[str, ...]:
        """The settings that vary."""
        return tuple(self.values)

    @property
    def size(self) -> int:
        """How many settings there are."""
        return math.prod(len(listed) for listed in self.values.values())

    def listed(self, name: str, default: Any) -> tuple[Any, ...]:
        """The values of setting `name`; `default` alone where it does not vary."""
        return tuple(self.values.get(name, (default,)))

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One setting."""
        return {name: listed[uniform_integer(stream, len(listed))] for name, listed in self.values.items()}


@dataclass(frozen=True)
class Candidates:
    """A list of whole settings, the same names in each; a trial draws one of them uniformly.

    Example:
        >>> from tacit.noise import SeededStream
        >>> pairs = Candidates(({"learning_rate": 0.1, "epochs": 9}, {"learning_rate": 0.2, "epochs": 5}))
        >>> pairs.draw(SeededStream(0)) in pairs.settings
        True
    """

    settings: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        if not self.settings or not self.settings[0]:
            raise check.fail("candidates", "a list with at least one table of settings", self.settings)
        for each in self.settings:
            if each.keys() != self.settings[0].keys():
                raise check.fail("candidates", f"tables of {', '.join(self.settings[0])}", ", ".join(each))

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that vary."""
        return tuple(self.settings[0])

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return len(self.settings)

    def listed(self, name: str, default: Any) -> tuple[Any, ...]:
        """The values of setting `name`; `default` alone where it does not vary."""
        return tuple(each[name] for each in self.settings) if name in self.names else (default,)

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One candidate."""
        return dict(self.settings[uniform_integer(stream, self.size)])


def space_of(config: Config, values: Mapping[str, Sequence[Any]] | Candidates | None = None) -> Space | Candidates:
    """The space around `config`: `values`, or learning rates from 1/2 to 4 times its own and bounds of 1/2 and 1.

    Args:
        config: of every trial.
        values: name of a setting -> values, or whole candidates; each must be a setting of FREE.

    Raises:
        InvalidInput: a name is no setting that may vary, or a list is empty.

    Example:
        >>> space_of(Config(epsilon=3.0)).size
        8
    """
    if values is None:
        rates = tuple(float(config.learning_rate * factor) for factor in _RATES)
        return Space({"learning_rate": rates, "clip_norm": tuple(float(config.clip_norm * each) for each in _CLIPS)})
    check.keys("the space", values.names if isinstance(values, Candidates) else values, FREE)
    if isinstance(values, Candidates):
        return Candidates(tuple({name: frozen(value) for name, value in each.items()} for each in values.settings))
    lists = Space(values).values  # Which refuses a value that is no list.
    return Space({name: tuple(map(frozen, listed)) for name, listed in lists.items()})


def frozen(value: Any) -> Any:
    """A value of a setting as a configuration holds it: lists as tuples."""
    return tuple(value) if isinstance(value, list) else value
