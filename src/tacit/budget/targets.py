"""Caps as plain values: a `Target` to and from JSON, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit import check
from tacit.tradeoff import Advantage, Epsilon, Errors, Mu, Target

_KINDS: dict[str, type[Target]] = {"epsilon": Epsilon, "advantage": Advantage, "mu": Mu, "errors": Errors}


def target_spec(target: Target) -> dict[str, Any]:
    """JSON form of a target.

    Raises:
        InvalidInput: it is none of `Epsilon`, `Advantage`, `Mu`, `Errors`.

    Example:
        >>> target_spec(Mu(0.5))
        {'type': 'mu', 'mu': 0.5}
    """
    for name, kind in _KINDS.items():
        if type(target) is kind:
            return {"type": name, **vars(target)}
    raise check.fail("cap", "an Epsilon, Advantage, Mu or Errors target", target)


def target_from_spec(spec: Mapping[str, Any]) -> Target:
    """The target of a JSON table."""
    values = {key: value for key, value in spec.items() if key != "type"}
    return _KINDS[check.choice("type", spec.get("type"), _KINDS)](**values)


def in_words(target: Target) -> str:
    """A target as a person reads it.

    Example:
        >>> in_words(Epsilon(3.0, 1e-5))
        'epsilon 3 at delta 1e-05'
    """
    if isinstance(target, Epsilon):
        return f"epsilon {target.epsilon:g} at delta {target.delta:g}"
    if isinstance(target, Errors):
        return f"type II error {target.beta:g} at type I error {target.alpha:g}"
    return " ".join(f"{name} {value:g}" for name, value in vars(target).items())


def reached(target: Target, tradeoff: Any) -> float:
    """The number that `target` bounds, read off a curve, in the unit of the target."""
    if isinstance(target, Epsilon):
        return float(tradeoff.epsilon(target.delta))
    if isinstance(target, Advantage):
        return float(tradeoff.advantage())
    if isinstance(target, Mu):
        return float(tradeoff.mu())
    assert isinstance(target, Errors)
    return float(tradeoff.beta(target.alpha))
