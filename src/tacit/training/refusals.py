"""Refusals of a run by its own measurements: raised, or collected while an audit repeats the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tacit.errors import TacitError

_COLLECTED: ContextVar[list[str] | None] = ContextVar("refusals", default=None)


def refuse(error: TacitError) -> None:
    """Raise `error`; within `collected_refusals` its sentence is kept, and the run goes on."""
    collected = _COLLECTED.get()
    if collected is None:
        raise error
    if str(error) not in collected:
        collected.append(str(error))


@contextmanager
def collected_refusals() -> Iterator[list[str]]:
    """Context in which measurements of releases are kept instead of raised, for audits; their sentences, each once.

    An audit repeats a run to learn how wrong its claim is, and its own releases are shown to nobody.
    """
    collected: list[str] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)
