"""Argument checks: every one returns the value it checked and raises `InvalidInput` with the house sentence.

The sentence is `<name> must be <rule>; got <value>. <what to do>`.
"""

import difflib
import math
import numbers
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tacit.errors import InvalidInput, TacitError

Kind = TypeVar("Kind")
_MOST_SHOWN = 40  # options that a message lists
_SHOWN: ContextVar[bool] = ContextVar("show values", default=False)
SHOW_VALUES = "TACIT_SHOW_VALUES"
"""Environment variable under which messages quote values of the data."""


def fail(name: str, rule: str, value: object, hint: str = "") -> InvalidInput:
    """The error for an argument that breaks its rule, to be raised by the caller.

    Args:
        name: of the argument.
        rule: follows "must be".
        value: the argument.
        hint: what to do, a sentence.
    """
    return InvalidInput(f"{name} must be {rule}; got {value!r}. {hint}".strip())


def that(holds: object, name: str, rule: str, value: object, hint: str = "") -> None:
    """Raise the error of `fail` unless `holds`.

    Args:
        holds: the rule as it was looked at; any value that is true.
        name: of the argument.
        rule: follows "must be".
        value: the argument.
        hint: what to do, a sentence.

    Raises:
        InvalidInput: the argument breaks its rule.

    Example:
        >>> that(0.5 < 1, "share", "below 1", 0.5)
    """
    if not holds:
        raise fail(name, rule, value, hint)


class Told(str):
    """What was got in words, which a message shows without quotation marks.

    Example:
        >>> fail("X", "a table of numbers", Told("texts in column ward"))
        InvalidInput('X must be a table of numbers; got texts in column ward.')
    """

    __repr__ = str.__str__


_SPOKEN_TO: ContextVar[str] = ContextVar("spoken_to", default="python")
_HIDDEN = {
    "python": "values of the data, which tacit.check.show_values() shows",
    "terminal": "values of the data, which --show-values shows",
    "browser": "values of the data, which are not shown",
}


def speaking_to(caller: str) -> AbstractContextManager[None]:
    """Context in which messages speak to the "terminal" or the "browser", and not to somebody who writes Python."""
    return within(_SPOKEN_TO, caller)


def show_values(shown: bool = True) -> AbstractContextManager[None]:
    """Context in which messages quote values of the data, for somebody who may see them.

    Example:
        >>> with show_values():
        ...     private_values(["John Smith"])
        ['John Smith']
    """
    return within(_SHOWN, shown)


@contextmanager
def within(variable: ContextVar[Kind], value: Kind) -> Iterator[None]:
    """Context in which `variable` has another value.

    Args:
        variable: which has its own value again at the end.
        value: inside of the context.

    Example:
        >>> with within(ContextVar("size", default=1), 2):
        ...     pass
    """
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def values_shown() -> bool:
    """Whether messages may quote values of the data: within `show_values`, or where TACIT_SHOW_VALUES is 1."""
    return _SHOWN.get() or os.environ.get(SHOW_VALUES, "") not in ("", "0")


def private_values(values: Iterable[object]) -> object:
    """At most five of `values`, which come from the data, for a message; unless they are shown, what stands for them.

    Example:
        >>> private_values(["John Smith"])
        values of the data, which tacit.check.show_values() shows
    """
    return list(values)[:5] if values_shown() else _NotShown()


@contextmanager
def reading(name: str, rule: str, *, keep: tuple[str, ...] = (), hint: str = "") -> Iterator[None]:
    """Context in which private data are converted: no error of another package leaves it with what it quotes of them.

    Args:
        name: of the data.
        rule: follows "must be".
        keep: beginnings of messages that quote no value but in a dump of an array, which is cut out of them.
        hint: what to do, a sentence.

    Raises:
        InvalidInput: the conversion failed; nothing of the message of another package stays but the error's type.

    Example:
        >>> try:
        ...     with reading("X", "a table of numbers"):
        ...         float("John Smith")
        ... except InvalidInput as error:
        ...     print(error)
        X must be a table of numbers; got values of the data, which tacit.check.show_values() shows.
    """
    try:
        yield
    except TacitError:
        raise
    except Exception as error:
        if values_shown():
            raise
        told = str(error)
        if isinstance(error, TypeError | ValueError) and told.startswith(keep or "\0"):
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(_DUMP.sub("", told)) from None
        raise fail(name, rule, private_values([]), hint) from None


# What scikit-learn quotes of an array: after "array=" up to the advice, and all that follows "Complex data ...".
_DUMP = re.compile(r"\narray=.*(?=\nReshape)|\narray=.*|(?<=Complex data not supported)\n.*", re.DOTALL)


class _NotShown:
    def __repr__(self) -> str:
        return _HIDDEN[_SPOKEN_TO.get()]


def real(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    hint: str = "",
) -> float:
    """`value` as a finite float inside the interval; strings, booleans, NaN and infinities are refused.

    Args:
        name: of the argument.
        value: the argument.
        low: least value.
        high: largest value.
        open_low: whether `low` itself is refused.
        open_high: whether `high` itself is refused.
        hint: what to do, a sentence.

    Raises:
        InvalidInput: the value breaks the rule.
    """
    number = _float(value)
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if not math.isfinite(number) or below or above:
        left = "(" if open_low or math.isinf(low) else "["
        right = ")" if open_high or math.isinf(high) else "]"
        raise fail(name, f"in {left}{low:g}, {high:g}{right}", value, hint)
    return number


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|[+-]?nan", re.ASCII | re.IGNORECASE)


def is_number(value: str) -> bool:
    """Whether `value` reads as a number, in ASCII: "nan", "inf" do; "1_0" and digits of other scripts do not.

    Example:
        >>> is_number("1e-5"), is_number("1_0"), is_number("\u0661")
        (True, False, False)
    """
    return _NUMBER.fullmatch(value.strip(" \t\r\n")) is not None


def read_real(name: str, value: str) -> float:
    """The number that the text `value` reads as; raises `InvalidInput` where `is_number` says no."""
    that(is_number(value), name, "a number", value[:20])
    return float(value)


def positive(name: str, value: object, hint: str = "") -> float:
    """`value` as a float in (0, inf)."""
    return real(name, value, low=0.0, open_low=True, hint=hint)


def probability(name: str, value: object, *, open_low: bool = False, open_high: bool = False, hint: str = "") -> float:
    """`value` as a float in [0, 1].

    Args:
        name: of the argument.
        value: the argument.
        open_low: whether 0 is refused.
        open_high: whether 1 is refused.
        hint: what to do, a sentence.

    Raises:
        InvalidInput: the value breaks the rule.
    """
    return real(name, value, low=0.0, high=1.0, open_low=open_low, open_high=open_high, hint=hint)


def delta(value: object) -> float:
    """`value` as a delta in [0, 1]."""
    return probability("delta", value, hint="Use a value below 1/n, e.g. 1e-06 for n=60000.")


def epsilon(value: object) -> float:
    """`value` as an epsilon in [0, inf)."""
    return real("epsilon", value, low=0.0, hint="Use a finite number such as 1.0.")


def confidence(value: object) -> float:
    """`value` as a confidence in (0, 1)."""
    return probability("confidence", value, open_low=True, open_high=True)


def count(name: str, value: object, *, minimum: int = 1, maximum: float = 1e18, hint: str = "") -> int:
    """`value` as an integer in [minimum, maximum]; 3.0 is accepted, 1.5 and True are not.

    Args:
        name: of the argument.
        value: the argument.
        minimum: least value.
        maximum: largest value.
        hint: what to do, a sentence.

    Raises:
        InvalidInput: the value breaks the rule.
    """
    number = _float(value)
    if number > maximum:
        raise fail(name, f"an integer in [{minimum}, {maximum:g}]", value, hint)
    if not number.is_integer() or number < minimum:
        raise fail(name, f"an integer >= {minimum}", value, hint)
    return int(number)


def text(name: str, value: object) -> str:
    """`value` as a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise fail(name, "a text", value)
    return value


# Control characters but tab and line feed, line separators, marks that turn the direction of text, halves of pairs.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(name: str, value: str) -> str:
    r"""`value` where it holds no control character, which could move the cursor or hide text on a terminal.

    Example:
        >>> printable("dataset", "a\x1b[2Jb")
        Traceback (most recent call last):
        tacit.errors.InvalidInput: dataset must be free of control characters; got 'a\x1b[2Jb'.
    """
    that(not _UNSEEN.search(value), name, "free of control characters", value[:40])
    return value


def visible(text: str) -> str:
    r"""`text` with every control character but tab and line feed as its escape sequence in Python.

    Example:
        >>> visible("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def texts(name: str, value: object) -> list[str]:
    """`value` as a new list of strings."""
    if not isinstance(value, list):
        raise fail(name, "a list of texts", value)
    return [text(f"each of {name}", each) for each in value]


def instance(name: str, value: object, kind: type[Kind], rule: str) -> Kind:
    """`value` if it is an instance of `kind`.

    Args:
        name: of the argument.
        value: the argument.
        kind: the class.
        rule: follows "must be", with an example.

    Raises:
        InvalidInput: it is no instance.
    """
    if not isinstance(value, kind):
        raise fail(name, rule, value)
    return value


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """`value` if it is one of `options`; otherwise an error that lists them and names the nearest."""
    known = [str(option) for option in options]
    if isinstance(value, str) and value in known:
        return value
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else ""
    shown = [*known[:_MOST_SHOWN], f"... ({len(known)} in all)"] if len(known) > _MOST_SHOWN else known
    raise fail(name, "one of " + ", ".join(shown), value, hint)


def keys(name: str, given: Iterable[str], options: Iterable[str]) -> None:
    """Every key of a table is known; otherwise an error that lists the known keys and names the nearest."""
    known = list(options)
    allowed = set(known)
    for key in given:
        if key not in allowed:
            choice(f"key of {name}", key, known)


def _float(value: object) -> float:
    """`value` as a float: infinite where it is beyond all of them, NaN where it is no number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
