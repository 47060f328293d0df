"""The settings that a search draws from: finite lists, declared before any data are read.

Candidates that an Optuna sampler proposes from public information alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.noise import Stream
from tacit.noise.discrete import uniform_integer
from tacit.runs import Config
from tacit.serialization import tuples

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


FREE = (
    *("learning_rate", "learning_rate_schedule", "momentum", "optimizer", "clip_norm", "hidden"),
    *("batch_size", "epochs", "adam_floor", "count_padding"),
)
"""Settings that may vary: none of them changes the data, the target or the noise."""
_RATES = [Fraction(2) ** k for k in range(-1, 3)]
_CLIPS = [Fraction(2) ** k for k in range(-1, 1)]


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

    def listed(self, name: str, default: Any) -> tuple[Any, ...]:
        """The values of setting `name`; `default` alone where it does not vary."""
        return tuple(each[name] for each in self.settings) if name in self.settings[0] else (default,)

    def draw(self, stream: Stream) -> dict[str, Any]:
        """One candidate."""
        return dict(self.settings[uniform_integer(stream, len(self.settings))])


def space_of(config: Config, values: Mapping[str, Sequence[Any]] | Candidates | None = None) -> Space | Candidates:
    """The space around `config`: `values`, or learning rates from 1/2 to 4 times its own and bounds of 1/2 and 1.

    Args:
        config: of every trial.
        values: name of a setting -> values, or whole candidates; each must be a setting of FREE.

    Raises:
        InvalidInput: a name is no setting that may vary, or a list is empty.

    Example:
        >>> list(space_of(Config(epsilon=3.0)).values)
        ['learning_rate', 'clip_norm']
    """
    if values is None:
        rates = tuple(float(config.learning_rate * factor) for factor in _RATES)
        return Space({"learning_rate": rates, "clip_norm": tuple(float(config.clip_norm * each) for each in _CLIPS)})
    check.keys("the space", values.settings[0] if isinstance(values, Candidates) else values, FREE)
    if isinstance(values, Candidates):
        return Candidates(tuple(map(tuples, values.settings)))
    lists = Space(values).values  # Which refuses a value that is no list.
    return Space({name: [tuple(each) if isinstance(each, list) else each for each in lists[name]] for name in lists})


SAMPLERS = {
    "random": "RandomSampler",
    "qmc": "QMCSampler",
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
}
"""Samplers by name, with the class of `optuna.samplers`."""
Range = tuple[float, float]


def propose(
    ranges: Mapping[str, Range | Sequence[Any]],
    *,
    count: int,
    sampler: str | BaseSampler = "qmc",
    public_score: Callable[[dict[str, Any]], float] | None = None,
    seed: int = 0,
) -> Candidates:
    """Candidates for `tune`, made by an Optuna sampler before any private record is read.

    The sampler is told nothing but `public_score`. A search draws from the finished list, so that no proposal can
    follow a private score: a sampler that saw one would choose each candidate by the last, which no theorem of private
    selection covers.

    Args:
        ranges: name of a setting -> (lowest, highest), both > 0, searched on a logarithmic scale, where both are
            whole numbers in whole numbers; or a list of values.
        count: how many candidates, >= 1.
        sampler: "random", "qmc", "tpe", "gp" or "cmaes", or an Optuna sampler. One that learns needs `public_score`.
        public_score: settings -> a score on public data, higher is better; None to tell the sampler nothing.
        seed: of a sampler given by name; it is public.

    Raises:
        InvalidInput: Optuna is not installed (pip install 'tacit[optuna]'), or an argument breaks its rule.

    Example:
        >>> candidates = propose({"learning_rate": (0.1, 1.0), "clip_norm": [0.5, 1.0]}, count=4)
        >>> len(candidates.settings), list(candidates.settings[0])
        (4, ['learning_rate', 'clip_norm'])
    """
    check.count("count", count)
    optuna = _optuna()
    distributions = {name: _distribution(optuna, name, given) for name, given in ranges.items()}
    if not distributions:
        raise check.fail("ranges", "at least one setting", dict(ranges))
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(sampler=_sampler(optuna, sampler, seed), direction="maximize")
        proposed = []
        for _ in range(count):
            trial = study.ask(distributions)
            settings = {name: trial.params[name] for name in distributions}
            proposed.append(settings)
            study.tell(trial, 0.0 if public_score is None else float(public_score(dict(settings))))
    finally:
        optuna.logging.set_verbosity(verbosity)
    return Candidates(tuple(proposed))


def _sampler(optuna: Any, sampler: Any, seed: int) -> Any:
    if not isinstance(sampler, str):
        return check.instance("sampler", sampler, optuna.samplers.BaseSampler, "a name or an Optuna sampler")
    return getattr(optuna.samplers, SAMPLERS[check.choice("sampler", sampler, SAMPLERS)])(seed=seed)


def _distribution(optuna: Any, name: str, given: Any) -> Any:
    if isinstance(given, list) and given:
        return optuna.distributions.CategoricalDistribution(given)
    if not isinstance(given, tuple) or len(given) != 2:
        raise check.fail(f"range of {name}", "(lowest, highest), or a list of values", given)
    low, high = (check.positive(f"range of {name}", each) for each in given)
    if not low < high:
        raise check.fail(f"range of {name}", "a lowest value below the highest", given)
    if all(isinstance(each, int) for each in given):
        return optuna.distributions.IntDistribution(given[0], given[1], log=True)
    return optuna.distributions.FloatDistribution(low, high, log=True)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InvalidInput(
            "Optuna must be installed to propose candidates; it is not. Run pip install 'tacit[optuna]'."
        ) from None
    return optuna
