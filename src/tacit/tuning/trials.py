"""The trials of a search: how many there are, which one is kept, and that everything else is forgotten.

The sealed file of a search: what it needs to go on after it was stopped, unreadable for anybody but this user's key.

It holds the number of trials, the records set aside, and the trials that may still win. Whoever could read it would
learn what a search keeps secret, so without a key it is not written, and the search cannot go on.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.data import Dataset
from tacit.mechanisms import NegativeBinomial, PoissonTrials, TrialLaw
from tacit.noise import SeededStream, Stream
from tacit.noise.discrete import poisson, truncated_negative_binomial, uniform_integer
from tacit.runs.run_signature import SEARCH
from tacit.serialization import write_bytes
from tacit.signing import Sealed, latest_place, new_id, raise_count, seal, unseal
from tacit.standing import Standing

Result = TypeVar("Result")
HIDDEN = "The number of trials, and the time that they took, are not observed by those who see the result."
"""The assumption behind a search, for `Ledger.assume`."""


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
    """A trial that may still win.

    Attributes:
        settings: as drawn.
        trained: what a card says of it (`runs.resumption.trained_table`).
        ledger: of its own steps.
        model: content of its model file.
    """

    settings: dict[str, Any]
    trained: dict[str, Any]
    ledger: Ledger
    model: bytes


@dataclass
class SearchState:
    """All of a search that a process which goes on with it must know.

    Attributes:
        arguments: of the call of `tune`, public.
        records: SHA-256 of the training records.
        aside: which of them are set aside for scores, shape (rows,).
        standings: between two trials.
        unsafe: switches of any trial, with the standing that they leave.
        missing: facts that any trial lacked, by name.
        held: which of the others are the holdout of every trial, shape (rows,); None without one.
    """

    arguments: dict[str, Any]
    records: str
    aside: np.ndarray
    standings: Standings[Trial]
    unsafe: dict[str, Standing] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    held: np.ndarray | None = None


class SearchFile:
    """The sealed file in the folder of a search.

    Args:
        folder: of the search.
        stream: of the search; only the position of a seeded one is kept.
    """

    def __init__(self, folder: Path, stream: Stream):
        self._path, self._stream = folder / SEARCH, stream
        self._id, self._count = new_id(), 0

    def save(self, state: SearchState) -> None:
        """Seal `state` in the place of what was there; earlier versions are refused from then on."""
        self._count += 1
        position = self._stream.state() if isinstance(self._stream, SeededStream) else None
        content = json.dumps(_table(state) | {"stream": position}).encode()
        sealed = seal(_KIND, content, id=self._id, count=self._count)
        if sealed is not None:
            write_bytes(self._path, sealed)
            raise_count(self._id, self._count, self._path)

    def restore(self) -> SearchState:
        """The state sealed last, sealed anew at once, so that a copy of the folder cannot go on as well.

        Raises:
            InvalidInput: as `stopped_state`.
        """
        found, table = _opened(self._path)
        self._id, self._count = found.id, found.count
        if isinstance(self._stream, SeededStream) and table["stream"] is not None:
            self._stream.restore(table["stream"])
        state = _state(table)
        self.save(state)
        return state


def stopped_state(folder: Path) -> SearchState:
    """Where the search in `folder` was stopped.

    Raises:
        InvalidInput: there is no such search, its file was changed, an earlier version of it was put back, or it went
            on in another folder.
    """
    return _state(_opened(folder / SEARCH)[1])


def digest_of(dataset: Dataset) -> str:
    """SHA-256 of the training records, kept sealed: a search goes on with the records that it began with."""
    digest = hashlib.sha256()
    for array in (dataset.x_train, dataset.y_train):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _opened(path: Path) -> tuple[Sealed, dict[str, Any]]:
    try:
        sealed = path.read_bytes()
    except OSError:
        hint = "A search that has made no trial, or is finished, or had no signing key, cannot go on."
        rule = f"the folder of a search that was stopped, with {SEARCH} in it"
        raise check.fail("RUN", rule, str(path.parent), hint) from None
    found = unseal(_KIND, sealed)
    if latest_place(found.id) not in ("", str(path.resolve())):
        raise check.fail("RUN", "the folder in which the search ran last", str(path.parent))
    return found, json.loads(found.content)


def _table(state: SearchState) -> dict[str, Any]:
    standings = state.standings
    return {
        "arguments": state.arguments,
        "records": state.records,
        "rows": len(state.aside),
        "aside": _text(np.packbits(state.aside).tobytes()),
        "held": None if state.held is None else _text(np.packbits(state.held).tobytes()),
        "trials": standings.trials,
        "done": standings.done,
        "tied": standings.tied,
        "kept": [_row(score, trial) for score, trial in standings.kept],
        "unsafe": {switch: standing.value for switch, standing in state.unsafe.items()},
        "missing": state.missing,
    }


def _row(score: float, trial: Trial) -> dict[str, Any]:
    plain = {"settings": trial.settings, "trained": trial.trained, "ledger": trial.ledger.spec()}
    return plain | {"score": score, "model": _text(trial.model)}


def _state(table: Mapping[str, Any]) -> SearchState:
    kept = [(float(row["score"]), _trial(row)) for row in table["kept"]]
    standings = Standings(table["trials"], table["done"], kept, table["tied"])
    unsafe = {switch: Standing(value) for switch, value in table["unsafe"].items()}
    # A search of an earlier version has no holdout.
    held = None if table.get("held") is None else _rows(table["held"], table["rows"])
    aside = _rows(table["aside"], table["rows"])
    return SearchState(table["arguments"], table["records"], aside, standings, unsafe, table["missing"], held)


def _rows(text: str, rows: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=rows).astype(bool)


def _trial(row: Mapping[str, Any]) -> Trial:
    ledger = Ledger.from_spec(row["ledger"])
    return Trial(row["settings"], row["trained"], ledger, base64.b64decode(row["model"]))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
