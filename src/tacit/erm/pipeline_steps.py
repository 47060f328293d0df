"""Steps of a scikit-learn pipeline that read private data without paying, found when a private estimator is fitted."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from tacit.errors import PrivacyWarning

_BY_SHAPE = frozenset(
    {"PolynomialFeatures", "GaussianRandomProjection", "SparseRandomProjection", "RBFSampler", "PolynomialCountSketch"}
)
"""Transformers of scikit-learn whose fit reads nothing but the number of rows and columns."""
_DECLARED = frozenset({"OneHotEncoder", "OrdinalEncoder"})
"""Those that read nothing where their `categories` are given."""

_FITTING = ("fit", "fit_transform", "fit_predict", "_fit")  # methods of Pipeline that fit its steps


def unpaid_steps() -> tuple[str, ...]:
    """Names of the steps before the estimator that is being fitted in a pipeline which read the data unpaid.

    Paying are the private transformers of tacit, harmless are those that treat
    every row by itself (tested on rows of random numbers for a `FunctionTransformer`) and those with declared values.
    What was done to the data before the pipeline cannot be seen.
    """
    return tuple(dict.fromkeys(name for step, part in _steps() for name in _unpaid(step, part)))


def declared_steps() -> tuple[str, ...]:
    """The sentences by which the steps before that estimator declare features of `tacit.features` public."""
    return tuple(dict.fromkeys(each for _, part in _steps() for each in _declarations(part)))


def _declarations(part: Any) -> Iterator[str]:
    if type(part).__module__.startswith("tacit.features."):
        yield part.sentence
    for _, each in _parts(part) or ():
        yield from _declarations(each)


def _steps() -> list[tuple[str, Any]]:
    """The steps before the estimator that is being fitted in a pipeline, which is found among the callers."""
    frame = inspect.currentframe()
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    try:
        while frame is not None:
            caller = frame.f_locals.get("self")
            stage = frame.f_code.co_name
            if isinstance(caller, Pipeline) and id(caller) not in seen and stage in _FITTING:
                seen.add(id(caller))  # Its innermost frame knows which step is being fitted.
                running = frame.f_locals.get("step_idx") if stage == "_fit" else None
                steps = caller.steps[: len(caller.steps) - 1 if running is None else running]
                found += _before_perturbation(steps)
            frame = frame.f_back
    finally:
        del frame
    return found


def warn_of(steps: tuple[str, ...]) -> None:
    """Warn that `steps` read private data without paying."""
    if steps:
        names = ", ".join(steps)
        warnings.warn(
            f"the pipeline reads private data without paying in {names}; every number is only claimed. Use "
            "PublicScaler, PublicOneHot, PublicImputer or PublicTable with declared constants, or PrivateScaler.",
            PrivacyWarning,
            stacklevel=2,
        )


def _before_perturbation(steps: list[Any]) -> Iterator[tuple[str, Any]]:
    """The steps that see records as they are, not as `InputPerturbation` made them."""
    for name, part in steps:
        if type(part).__name__ == "InputPerturbation":
            return
        yield name, part


def _unpaid(name: str, part: Any) -> Iterator[str]:
    """`name` with its class if the transformer reads the data, or those of its parts that do."""
    if part is None or isinstance(part, str):
        return
    parts = _parts(part)
    if parts is not None:
        for inner, each in parts:
            yield from _unpaid(f"{name}.{inner}", each)
    elif not _harmless(part):
        yield f"{name} ({type(part).__name__})"


def _parts(part: Any) -> list[tuple[str, Any]] | None:
    for attribute in ("steps", "transformer_list", "transformers"):
        listed = getattr(part, attribute, None)
        if isinstance(listed, list):
            return [(each[0], each[1]) for each in listed]
    return None


def _harmless(part: Any) -> bool:
    kind = type(part)
    if kind.__module__.startswith("tacit."):
        return True  # Its private transformers pay, the others read declared values alone.
    if not kind.__module__.startswith("sklearn."):
        return False
    if isinstance(part, FunctionTransformer):
        return _row_by_row(part)
    if kind.__name__ in _DECLARED:
        return not isinstance(part.categories, str)
    return kind.__name__ in _BY_SHAPE or (isinstance(part, BaseEstimator) and not get_tags(part).requires_fit)


def _row_by_row(part: FunctionTransformer) -> bool:
    """Whether rows of random numbers are transformed alike whatever rows they stand among."""
    random = np.random.default_rng()
    rows = random.normal(size=(6, 5))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = np.asarray(part.transform(rows))
            half = np.asarray(part.transform(np.concatenate([rows[:3], random.normal(size=(2, 5)) * 100])))
    except Exception:  # A function of the user's may need other columns than these.
        return False
    return whole.shape[0] == 6 and half.shape[0] == 5 and np.allclose(whole[:3], half[:3], rtol=1e-9, equal_nan=True)
