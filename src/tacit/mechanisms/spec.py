"""JSON form of mechanisms: one table of types, one table of keys, one parser."""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from tacit import check
from tacit.mechanisms import gaussian, generic, laplace, last_iterate
from tacit.mechanisms.allocation import BalancedIteration, BallsAndBins, RandomAllocation
from tacit.mechanisms.base import Compose, Mechanism, OnBatches
from tacit.mechanisms.matrix import CyclicAllocation, CyclicPoisson, MatrixGaussian, MinSeparation, Strategy
from tacit.mechanisms.parallel import Menu, Parallel
from tacit.mechanisms.selection import Selection, law_from_spec
from tacit.mechanisms.subsampling import FixedSize, Shuffled, TruncatedPoisson
from tacit.mechanisms.toeplitz import ToeplitzStrategy, TreeStrategy
from tacit.serialization import json_table

TYPES: dict[str, type[Mechanism]] = {
    kind.type: kind
    for kind in (
        gaussian.Gaussian,
        laplace.Laplace,
        gaussian.DiscreteGaussian,
        laplace.Exponential,
        laplace.BoundedRange,
        laplace.RandomizedResponse,
        generic.Approximate,
        generic.Generic,
        laplace.DiscreteLaplace,
        gaussian.GaussianMixture,
        laplace.KaryRandomizedResponse,
        laplace.PermuteAndFlip,
        generic.ZeroConcentrated,
        last_iterate.ObjectivePerturbation,
        last_iterate.LastIterate,
    )
}
_SAMPLING = (
    *("sample_rate", "sampling", "records", "batch_size", "cap", "series", "drop_last", "steps_per_epoch", "epochs"),
    *("iterations", "participations"),
)
_LAWS: dict[str, type[OnBatches]] = {
    kind.type: kind
    for kind in (FixedSize, Shuffled, TruncatedPoisson, RandomAllocation, BallsAndBins, BalancedIteration)
}
"""Laws of batches by the name of their sampling; their parameters are keys of the table."""
_CYCLES: dict[str, type[OnBatches]] = {kind.type: kind for kind in (CyclicPoisson, CyclicAllocation, MinSeparation)}
"""The same for runs of correlated noise."""
_LEDGER = ("steps", "note", "hash")


def read_spec(path: str | Path) -> dict[str, Any]:
    """The JSON table in the file `path`; raises `InvalidInput` when there is none, or no list of mechanisms in it.

    Example:
        >>> read_spec("no-such-file.json")
        Traceback (most recent call last):
        ...
        tacit.errors.InvalidInput: SPEC must be a file that exists; got 'no-such-file.json'.
    """
    spec = json_table("SPEC", path)
    mechanism_rows(spec)
    return spec


def mechanism_rows(spec: dict[str, Any]) -> list[Any]:
    """The list of mechanisms of a SPEC; raises `InvalidInput` where there is none."""
    return check.instance("mechanisms", spec.get("mechanisms"), list, "a list of mechanisms")


def from_spec(entry: dict[str, Any]) -> tuple[Mechanism, int]:
    """The mechanism of one table of a SPEC and its number of steps.

    Raises `InvalidInput` for unknown types and keys (with the nearest name), missing parameters, and lists
    whose length is not `steps`.

    Example:
        >>> step, times = from_spec({"type": "gaussian", "noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 10})
        >>> print(step, times)
        Gaussian(1).poisson(0.01) 10
    """
    if not isinstance(entry, dict):
        raise check.fail("mechanism", 'a table such as {"type": "gaussian", "noise_multiplier": 1.0}', entry)
    named = check.choice("type", entry.get("type"), [*TYPES, *_NESTED])
    if named in _NESTED:
        return _NESTED[named](entry), check.count("steps", entry.get("steps", 1))
    kind = TYPES[named]
    own = {field.name: field.default is MISSING for field in fields(kind)}
    check.keys(f"a {kind.type} mechanism", entry.keys() - {"type"}, [*own, *_SAMPLING, *_LEDGER])
    _need(entry, [name for name, required in own.items() if required], f"a {kind.type} mechanism")
    steps = check.count("steps", entry.get("steps", 1))
    single = (*own, "sample_rate") if kind not in (generic.Generic, gaussian.GaussianMixture) else ()
    varying = {key for key in single if isinstance(entry.get(key), list)}
    for key in varying:
        if len(entry[key]) != steps:
            raise check.fail(key, f"one number or a list of {steps} (one for each step)", f"{len(entry[key])} values")
    if not varying:
        return _one(kind, own, entry), steps
    each = [_one(kind, own, entry | {key: entry[key][i] for key in varying}) for i in range(steps)]
    return Compose.of(*((mechanism, 1) for mechanism in each)), 1


def _selection(entry: dict[str, Any]) -> Selection:
    check.keys("a selection", entry.keys() - {"type"}, ["law", "shape", "gamma", "mean", "mechanisms", *_LEDGER])
    rows = mechanism_rows(entry)
    check.that(rows, "mechanisms", "a list with at least one mechanism", rows)
    return Selection(Compose.of(*(from_spec(row) for row in rows)), law_from_spec(entry))


def _menu(entry: dict[str, Any]) -> Menu:
    check.keys("a menu", entry.keys() - {"type"}, ["stages", *_LEDGER])
    stages: list[Any] = check.instance("stages", entry.get("stages"), list, "a list of lists of options")
    if not all(isinstance(stage, list) for stage in stages) or not all(
        isinstance(option, list) and option for stage in stages for option in stage
    ):
        raise check.fail("stages", "a list of lists of options, each a list of mechanisms", stages)
    return Menu(tuple(tuple(Compose.of(*(from_spec(row) for row in option)) for option in stage) for stage in stages))


def _parallel(entry: dict[str, Any]) -> Parallel:
    check.keys("a parallel mechanism", entry.keys() - {"type"}, ["branches", "split", *_LEDGER])
    branches = entry.get("branches")
    if not isinstance(branches, list) or not all(isinstance(branch, list) for branch in branches):
        raise check.fail("branches", "a list of lists of mechanisms", branches)
    composed = tuple(Compose.of(*(from_spec(row) for row in branch)) for branch in branches)
    return Parallel(composed, entry.get("split", 0))


def _matrix(entry: dict[str, Any]) -> Mechanism:
    """A run of correlated noise, with its cyclic sampling or, without any, of one participation."""
    own = ("noise_multiplier", "iterations", "strategy")
    _need(entry, own, f"{MatrixGaussian.type} batches")
    run = MatrixGaussian(entry["noise_multiplier"], _strategy(entry["strategy"], entry["iterations"]))
    if "sampling" not in entry:
        check.keys("a matrix_gaussian mechanism", entry.keys() - {"type"}, [*own, *_LEDGER])
        return run
    kind = _CYCLES[check.choice("sampling", entry["sampling"], _CYCLES)]
    taken = kind.parameters()
    check.keys(f"a {kind.type} mechanism", entry.keys() - {"type", "sampling"}, [*own, *taken, *_LEDGER])
    _need(entry, [name for name, default in taken.items() if default is MISSING], f"{kind.type} batches")
    return kind(run, **{name: entry[name] for name in taken if name in entry})  # type: ignore[call-arg]


def _strategy(value: object, iterations: int) -> Strategy:
    form: dict[str, Any] = check.instance("strategy", value, dict, "a table")
    keys = {"toeplitz": ("coefficients", "normalised"), "buffered_toeplitz": ("buffers",), "tree": ()}
    kind = check.choice("kind of strategy", form.get("kind"), keys)
    check.keys(f"a {kind} strategy", form.keys() - {"kind"}, keys[kind])
    if kind == "tree":
        return TreeStrategy(iterations)
    values: list[Any] = check.instance(keys[kind][0], form.get(keys[kind][0]), list, "a list")
    if kind == "toeplitz":
        coefficients = tuple(check.real("each of coefficients", value) for value in values)
        return ToeplitzStrategy(iterations, coefficients, form.get("normalised", True))
    if not values or not all(isinstance(pair, list) and len(pair) == 2 for pair in values):
        raise check.fail("buffers", "a list of pairs of a decay and a weight", values)
    buffers = tuple((check.real("decay", decay), check.real("weight", weight)) for decay, weight in values)
    return ToeplitzStrategy(iterations, normalised=False, buffers=buffers)


_NESTED: dict[str, Callable[[dict[str, Any]], Mechanism]] = {
    MatrixGaussian.type: _matrix,
    Menu.type: _menu,
    Parallel.type: _parallel,
    Selection.type: _selection,
}
"""Mechanisms that hold others."""


def _one(kind: type[Mechanism], own: dict[str, bool], entry: dict[str, Any]) -> Mechanism:
    base = kind(**{key: entry[key] for key in own if key in entry})
    sampling = check.choice("sampling", entry.get("sampling", "poisson"), ("poisson", *_LAWS))
    taken = _LAWS[sampling].parameters() if sampling in _LAWS else {"sample_rate": None}
    for name in _SAMPLING:
        if name in entry and name not in (*own, *taken, "sampling"):
            raise check.fail(name, f"absent for {sampling} sampling", entry[name], "Poisson samples take sample_rate.")
    _need(entry, [name for name, default in taken.items() if default is MISSING], f"{sampling} batches")
    if sampling == "poisson":
        return base.poisson(entry["sample_rate"]) if "sample_rate" in entry else base
    return _LAWS[sampling](base, **{name: entry[name] for name in taken if name in entry})  # type: ignore[call-arg]


def _need(entry: dict[str, Any], names: Iterable[str], described: str) -> None:
    for name in names:
        check.that(name in entry, name, f"given for {described}", None)
