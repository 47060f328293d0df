"""Replay of somebody else's trainer as a black box: its sensitivity, noise and batches against what is claimed of it.

A trainer is a function

    trainer(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size) -> releases

It trains a model whose gradient of a record is the record itself (weights w, loss w . x) with learning rate 1, and
returns what its optimizer received at every step, shape (steps, width): the sum of clipped records of the batch plus
noise of standard deviation noise_multiplier * clip_norm on every coordinate, divided by expected_batch_size. A wrapper
around a step of Opacus, JAX Privacy or code of one's own is a dozen lines; docs/claims.md has some.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import check
from tacit.audit.monitors import NoiseMonitor, SamplerMonitor
from tacit.errors import InvalidInput
from tacit.relation import Relation

Records = NDArray[np.float32]

_WIDTH = 48  # coordinates of the neighbours: enough for vectors that are sparse, dense and spread
_SIZES = (1, 2, 3, 8, 17)  # records of the neighbours' common part: around every power of two of a microbatch
_CLIPS = (0.7, 1.9)  # times the claimed clipping norm: at 1 a forgotten factor would not show
_ROUNDING = 2e-3  # relative, of a clipped sum in float32: far below any bug here
# 49,152 values: noise at .98 of its size raises the alarm, and so does noise that decays by .9999 a step.
_NOISE_STEPS, _NOISE_WIDTH = 1024, 48
_DIRACS, _SAMPLER_STEPS = 240, 96
_LARGE = 1e4  # norm of records that must be clipped, in clipping norms


Trainer = Callable[..., Any]
"""What is replayed; the module's docstring says what it has to do."""


@dataclass(frozen=True)
class Replay:
    """What a replay found.

    Attributes:
        violations: (part, sentence) of everything that is not as claimed: parts are `sensitivity`, `noise`,
            `sampling` and `flow`.
        checked: number of checks that were made.
    """

    violations: tuple[tuple[str, str], ...]
    checked: int

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted."""
        return bool(self.violations)


def replay_trainer(
    trainer: Trainer,
    *,
    noise_multiplier: float,
    sample_rate: float,
    clip_norm: float = 1.0,
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Replay:
    """Replay `trainer` on constructed neighbours and compare it with the claim.

    - Sensitivity, without noise and with every record in the batch: neighbours whose record in question is tiny, huge,
      sparse, dense, opposite, not a number or infinite, beside 1 to 17 others. Their releases may differ by
      clip_norm / expected_batch_size (twice that under replace-one).
    - Noise, on records that add nothing: `NoiseMonitor` on two calls together, with every record and with batches that
      are often empty.
    - Sampling, without noise: a coordinate for each record shows each batch, which `SamplerMonitor` tests.
    - Flow: as many releases as steps, of one shape, whatever the records are.

    The monitors raise an alarm about a correct trainer with probability 1e-6 each; the other checks are exact up to
    .2 %. Finding nothing is no proof: a trainer may behave otherwise on records that are not tried.

    Args:
        trainer: what is replayed.
        noise_multiplier: the claimed one, > 0.
        sample_rate: the claimed rate of Poisson sampling, in (0, 1].
        clip_norm: the claimed one, > 0.
        relation: of the claim.

    Raises:
        InvalidInput: an argument breaks its rule, or the trainer raises or returns no numbers.

    Example:
        >>> def trainer(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
        ...     draw, releases = np.random.default_rng(), []
        ...     for _ in range(steps):
        ...         batch = np.nan_to_num(records[draw.random(len(records)) < sample_rate], posinf=0, neginf=0)
        ...         norms = np.linalg.norm(batch.astype(float), axis=1, keepdims=True)
        ...         total = (batch * np.minimum(1, clip_norm / np.maximum(norms, 1e-12))).sum(0)
        ...         noise = draw.normal(0, noise_multiplier * clip_norm, records.shape[1])
        ...         releases.append((total + noise) / expected_batch_size)
        ...     return np.array(releases)
        >>> replay_trainer(trainer, noise_multiplier=1.3, sample_rate=0.1).violations
        ()
    """
    noise = check.positive("noise_multiplier", noise_multiplier)
    rate = check.probability("sample_rate", sample_rate, open_low=True)
    clip = check.positive("clip_norm", clip_norm)
    parts = {
        "sensitivity": _sensitivity(trainer, clip, Relation.parse(relation)),
        "noise": _noise(trainer, clip, noise, rate),
        "sampling": _sampling(trainer, clip, rate),
    }
    found: dict[tuple[str, str], None] = {}
    checked = 0
    for part, violations in parts.items():
        try:
            for violation in violations:
                checked += 1
                if violation:
                    found[(part, violation)] = None
        except _WrongShape as error:
            found[("flow", str(error))] = None
    return Replay(tuple(found), checked)


class _WrongShape(Exception):
    """Releases whose number or shape follows the records."""


def _run(
    trainer: Trainer, records: Records, clip: float, steps: int, expected: float, noise: float = 0.0, rate: float = 1.0
) -> NDArray[np.float64]:
    """Releases times the expected batch size."""
    given = {"clip_norm": clip, "noise_multiplier": noise, "sample_rate": rate}
    try:
        found = trainer(records.copy(), steps=steps, expected_batch_size=expected, **given)
        releases = np.asarray(found, dtype=np.float64)
    except Exception as error:
        told = f"{type(error).__name__}" + (f" ({error})" if check.values_shown() else "")
        raise InvalidInput(f"trainer must return releases for every input; got {told}. See docs/claims.md.") from error
    if releases.shape != (steps, records.shape[1]):
        raise _WrongShape(
            f"releases of shape {(steps, records.shape[1])} were asked for, and {releases.shape} came back: their "
            "number or shape follows the records."
        )
    return releases * expected


def _sensitivity(trainer: Trainer, clip_norm: float, relation: Relation) -> Iterator[str]:
    """A sentence for each pair of neighbours whose releases differ too much; empty strings for the others."""
    draw = np.random.default_rng(0)
    for clip in (factor * clip_norm for factor in _CLIPS):
        for size in _SIZES:
            common = draw.normal(size=(size, _WIDTH)) * np.geomspace(0.01, 30, size)[:, None] * clip
            for others in (common, -np.abs(common), np.zeros_like(common)):
                for name, record in _adversaries(clip, draw):
                    yield _difference(trainer, relation, others.astype(np.float32), name, record, clip)


def _adversaries(clip: float, draw: np.random.Generator) -> Iterator[tuple[str, NDArray[np.float64]]]:
    one = np.zeros(_WIDTH)
    one[0] = 1.0
    spread = np.full(_WIDTH, 1 / math.sqrt(_WIDTH))
    yield "a huge record", _LARGE * clip * spread
    yield "a huge sparse record", _LARGE * clip * one
    yield "a record of twice the clipping norm", -2 * clip * spread
    yield "a tiny record", 1e-3 * clip * spread
    yield "a random record", 5 * clip * draw.normal(size=_WIDTH)
    yield "a record beyond half precision", 1e6 * clip * one
    yield "a record whose square is beyond single precision", 1e25 * one
    yield "a record with a NaN", np.where(one > 0, np.nan, clip * spread)
    yield "a record with an infinity", np.where(one > 0, -np.inf, clip * spread)


def _difference(
    trainer: Trainer, relation: Relation, others: Records, name: str, record: NDArray[np.float64], clip: float
) -> str:
    """What is wrong with the releases on two neighbours; empty where nothing is."""
    row = record.astype(np.float32)[None]
    replaced = {
        Relation.ADD_REMOVE: others,
        Relation.ZERO_OUT: np.concatenate([others, np.zeros_like(row)]),
        Relation.REPLACE_ONE: np.concatenate([others, -np.nan_to_num(row, posinf=1e4, neginf=-1e4)]),
    }[relation]
    with np.errstate(all="ignore"):
        first = _run(trainer, np.concatenate([others, row]), clip, steps=1, expected=4.0)
        second = _run(trainer, replaced, clip, steps=1, expected=4.0)
    if not np.isfinite(first).all():
        return f"{name} makes the release no number, which shows that it is there."
    if np.linalg.norm(first - second) <= relation.sensitivity * clip * (1 + _ROUNDING):
        return ""
    return f"the release moves by more than the clipping norm where {name} is added or replaced."


def _noise(trainer: Trainer, clip_norm: float, noise: float, sample_rate: float) -> Iterator[str]:
    """Whether noise has the claimed law, in batches that hold every record and in batches that are often empty."""
    for rate, size, said in (
        (1.0, 12, "with every record in the batch"),
        (min(sample_rate, 0.05), 6, "where batches are often empty"),
    ):
        records = np.zeros((size, _NOISE_WIDTH), np.float32)
        clip, monitor = 1.7 * clip_norm, NoiseMonitor()
        given = {"steps": _NOISE_STEPS // 2, "expected": 5.0, "noise": noise, "rate": rate}
        first, second = (_run(trainer, records, clip, **given) for _ in range(2))
        if np.array_equal(first, second):
            yield f"noise is the same in two calls, {said}: its seed is fixed."
            continue
        rows = np.concatenate([first, second]) / (noise * clip)
        for row in rows:
            monitor.add(row)
        ratio = float(np.sqrt(np.mean(np.square(rows))))
        size = f": its standard deviation is {ratio:.3g} of the claimed one." if abs(ratio - 1) > 0.02 else "."
        yield "" if monitor.passed else f"noise is not independent normal noise of the claimed size {said}{size}"


def _sampling(trainer: Trainer, clip_norm: float, rate: float) -> Iterator[str]:
    """Whether batches are those of Poisson sampling at the claimed rate."""
    clip, expected = 1.3 * clip_norm, rate * _DIRACS + 0.5
    records = (np.eye(_DIRACS) * _LARGE * clip).astype(np.float32)
    with np.errstate(all="ignore"):
        shown = _run(trainer, records, clip, steps=_SAMPLER_STEPS, expected=expected, rate=rate) / clip
    if not np.isfinite(shown).all():
        yield "a release without noise is no number."
        return
    times = np.rint(shown).astype(np.int64)
    if np.any(np.abs(shown - times) > 0.01 * np.maximum(1, times)) or times.min(initial=0) < 0:
        yield (
            "a record's part of the release is not its clipped value over the expected batch size: the divisor or the "
            "clip follows the batch that was drawn."
        )
        return
    monitor = SamplerMonitor(_DIRACS, rate)
    for row in times:
        monitor.add(np.repeat(np.arange(_DIRACS), row))
    sizes, counts = times.sum(axis=1), times.sum(axis=0)
    if monitor.passed:
        yield ""
    elif times.max() > 1:
        yield "a record is in the same batch more than once."
    elif not times.any():
        yield (
            "releases show no record at all: the others of its batch take back what a record adds, as where batches "
            "are centred, or the divisor is another."
        )
    elif sizes.std() < 0.2 * math.sqrt(_DIRACS * rate * (1 - rate) + 1e-12):
        evenly = counts.var() < 0.5 * _SAMPLER_STEPS * rate * (1 - rate)
        yield (
            f"batches have a fixed size{' and visit records about equally often' if evenly else ''}: they are "
            f"{'shuffled' if evenly else 'of fixed size'}, not Poisson."
        )
    else:
        yield f"batches are not those of Poisson sampling at rate {rate:g}: the rate found is {times.mean():.3g}."
