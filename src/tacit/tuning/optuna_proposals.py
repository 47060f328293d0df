"""Candidates that an Optuna sampler proposes from public information alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.tuning.space import Candidates

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

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
        >>> candidates.size, candidates.names
        (4, ('learning_rate', 'clip_norm'))
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
