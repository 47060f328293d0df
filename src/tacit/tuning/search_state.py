"""The trials of a search: how many there are, which one is kept, and that everything else is forgotten.

The sealed file of a search: what it needs to go on after it was stopped, unreadable for anybody but this user's key.

It holds the number of trials, the records set aside, and the trials that may still win. Whoever could read it would
learn what a search keeps secret, so without a key it is not written, and the search cannot go on.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tacit import check
from tacit.data import Dataset
from tacit.mechanisms import NegativeBinomial, PoissonTrials, TrialLaw
from tacit.noise import SeededStream, Stream
from tacit.noise.discrete import poisson, truncated_negative_binomial, uniform_integer
from tacit.runs.run_signature import SEARCH
from tacit.serialization import write_bytes
from tacit.signing import latest_place, new_id, raise_count, seal, unseal

Result = TypeVar("Result")
HIDDEN = "The number of trials, and the time that they took, are not observed by those who see the result."
"""The assumption behind a search, for `Ledger.assume`."""
OWN_COIN = "Each record was set aside for scores by a coin of its own, and the sizes of both parts are public."
"""The assumption behind private scores."""


@dataclass
class Standings(Generic[Result]):
    """Where a search stands between two trials: secret until it is over.

    Attributes:
        trials: how many there are in all.
        done: how many are over.
        kept: (score, result) of those that may still win.
        tied: how many trials had the best score so far.
    """

    trials: int
    done: int = 0
    kept: list[tuple[float, Result]] = field(default_factory=list)
    tied: int = 1


def draw_trials(law: TrialLaw, stream: Stream) -> int:
    """A number of trials of that law, drawn exactly; it must stay secret.

    Raises `InvalidInput` for a negative binomial law of a shape above 1, for which there is no sampler.

    Example:
        >>> from tacit.mechanisms import law_of
        >>> from tacit.noise import SeededStream
        >>> draw_trials(law_of("logarithmic", trials=3), SeededStream(0)) >= 1
        True
    """
    if isinstance(law, PoissonTrials):
        return poisson(stream, Fraction(law.average))
    if not isinstance(law, NegativeBinomial) or law.shape > 1:
        raise check.fail("law", "Poisson, or negative binomial of a shape of at most 1", str(law))
    return truncated_negative_binomial(stream, Fraction(law.shape), Fraction(law.gamma))


def best_trial(
    standings: Standings[Result],
    stream: Stream,
    run: Callable[[], tuple[float, Result]],
    save: Callable[[], object] = lambda: None,
) -> Result | None:
    """The result of the highest score of all trials; ties by a fair draw; None where there was no trial.

    Args:
        standings: at the start, or where an earlier process left off.
        stream: source of the randomness.
        run: draws a setting, trains and scores: (private score, result). A score that is not finite is the lowest.
        save: called after each trial, with `standings` as they are then.
    """
    while standings.done < standings.trials:
        score, result = run()
        _enter(standings, stream, score if math.isfinite(score) else -math.inf, result)
        standings.done += 1
        save()
    return standings.kept[0][1] if standings.kept else None


def _enter(standings: Standings[Result], stream: Stream, score: float, result: Result) -> None:
    """Keep the better of `result` and the best so far, and no reference to the other."""
    best = max((held for held, _ in standings.kept), default=-math.inf)
    if not standings.kept or score > best:
        standings.kept, standings.tied = [(score, result)], 1
    elif score == best:
        standings.tied += 1
        if uniform_integer(stream, standings.tied) == 0:
            standings.kept = [(score, result)]


def chosen_trial(
    standings: Standings[Result],
    run: Callable[[], tuple[float, Result]],
    choose: Callable[[list[float]], int],
    save: Callable[[], object] = lambda: None,
) -> Result:
    """The result that a private choice picks once all trials are over.

    Args:
        standings: at the start, or where an earlier process left off; of at least one trial.
        run: as for `best_trial`; the scores need no noise, because nobody but `choose` sees them.
        choose: the index of one of the scores, privately.
        save: called after each trial and after the choice, with `standings` as they are then.
    """
    while standings.done < standings.trials:
        standings.kept.append(run())
        standings.done += 1
        save()
    if len(standings.kept) > 1:
        standings.kept = [standings.kept[choose([score for score, _ in standings.kept])]]
        save()
    return standings.kept[0][1]


_KIND = "search"


@dataclass
class Trial:
    """A trial that may still win, in plain values.

    Attributes:
        settings: as drawn.
        trained: what a card says of it (`runs.methods.base.trained_table`).
        ledger: SPEC of its own steps.
        model: content of its model file, in base64.
    """

    settings: dict[str, Any]
    trained: dict[str, Any]
    ledger: dict[str, Any]
    model: str


@dataclass
class SearchState:
    """All of a search that a process which goes on with it must know, in plain values.

    Attributes:
        arguments: of the call of `tune`, public.
        records: SHA-256 of the training records.
        aside: rows of them that are set aside for scores.
        standings: between two trials.
        held: rows of the others that are the holdout of every trial; None without one.
        unsafe: switches of any trial, with the standing that they leave.
        missing: facts that any trial lacked, by name.
        stream: position of a seeded stream; None for the secure one.
        id: of the file that keeps it.
        count: of the versions of that file.
    """

    arguments: dict[str, Any]
    records: str
    aside: list[int]
    standings: Standings[Trial]
    held: list[int] | None = None
    unsafe: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    stream: Any = None
    id: str = field(default_factory=new_id)
    count: int = 0


def save_state(state: SearchState, folder: Path, stream: Stream) -> None:
    """Seal `state` in the folder of its search; earlier versions of the file are refused from then on.

    Args:
        state: as it is now.
        folder: of the search.
        stream: of the search; only the position of a seeded one is kept.
    """
    state.count += 1
    if isinstance(stream, SeededStream):
        state.stream = stream.state()
    sealed = seal(_KIND, json.dumps(asdict(state)).encode(), id=state.id, count=state.count)
    if sealed is not None:
        write_bytes(folder / SEARCH, sealed)
        raise_count(state.id, state.count, folder / SEARCH)


def stopped_state(folder: Path) -> SearchState:
    """Where the search in `folder` was stopped.

    Raises:
        InvalidInput: there is no such search, its file was changed, an earlier version of it was put back, or it went
            on in another folder.
    """
    path = folder / SEARCH
    try:
        sealed = path.read_bytes()
    except OSError:
        hint = "A search that has made no trial, or is finished, or had no signing key, cannot go on."
        rule = f"the folder of a search that was stopped, with {SEARCH} in it"
        raise check.fail("RUN", rule, str(folder), hint) from None
    state = SearchState(**json.loads(unseal(_KIND, sealed)))
    if latest_place(state.id) not in ("", str(path.resolve())):
        raise check.fail("RUN", "the folder in which the search ran last", str(folder))
    standings: Any = state.standings
    kept = [(score, Trial(**trial)) for score, trial in standings["kept"]]
    state.standings = Standings(**standings | {"kept": kept})
    return state


def digest_of(dataset: Dataset) -> str:
    """SHA-256 of the training records, kept sealed: a search goes on with the records that it began with."""
    digest = hashlib.sha256()
    for array in (dataset.x_train, dataset.y_train):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
