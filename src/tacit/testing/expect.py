"""Assertions with a sentence, which `python -O` keeps and which need no test framework."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable


def require(holds: object, sentence: str) -> None:
    """Require a property; the sentence says what must hold and what was found.

    Raises:
        AssertionError: `holds` is false.
    """
    if not holds:
        raise AssertionError(sentence)


def require_close(got: float, expected: float, what: str, *, relative: float = 1e-6, absolute: float = 1e-12) -> None:
    """Require that two numbers agree.

    Args:
        got: the number to judge; NaN never agrees.
        expected: the number that it should be; two equal infinities agree.
        what: the name of the number, for the sentence.
        relative: tolerance relative to `expected`, >= 0.
        absolute: tolerance near zero, >= 0.

    Raises:
        AssertionError: the numbers differ by more than both tolerances.
    """
    agrees = math.isclose(got, expected, rel_tol=relative, abs_tol=absolute)
    require(agrees, f"{what} must be {float(expected)!r}; got {float(got)!r}.")


def require_sorted(values: Iterable[float], what: str, *, decreasing: bool = False) -> None:
    """Require that numbers never decrease, or never increase where `decreasing` is true."""
    numbers = [float(value) for value in values]
    direction = "never increase" if decreasing else "never decrease"
    require(numbers == sorted(numbers, reverse=decreasing), f"{what} must {direction}; got {numbers}.")


def require_raises(kind: type[Exception], call: Callable[[], object], what: str, *, message: str = "") -> None:
    """Require that `call` raises `kind` with a message that contains the pattern `message`.

    Args:
        kind: the expected class of the error.
        call: runs without arguments.
        what: the input that must be refused, for the sentence.
        message: regular expression that the text of the error contains; empty for any text.

    Raises:
        AssertionError: nothing is raised, or the text is another one. Errors of other classes pass through.
    """
    try:
        call()
    except kind as error:
        require(re.search(message, str(error)), f"{what} must be refused with {message!r}; got {str(error)!r}.")
        return
    raise AssertionError(f"{what} must raise {kind.__name__}; nothing was raised.")
