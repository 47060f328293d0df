"""Fresh draws and constants of a loop: what `torch.rand`, `torch.full` and their like make stands on its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from tacit.training.trace import Trace, TracedTensor, wrapped
from tacit.verification.calls import flat

_DRAWING = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "tensor")
_FILLED = ("zeros", "ones", "full", "arange", "linspace", "eye")
_CONSTANTS = 64  # numbers of a tensor that the source holds
_ORIGINAL = {name: getattr(torch, name) for name in _DRAWING + _FILLED}


class DrawsOnTrace:
    """Lets what `torch.rand`, `torch.full` and their like make in a loop stand on the trace of the batch in hand.

    So a fresh draw, and a tensor of few numbers of the source or filled by rule, are known from a tensor of unknown
    origin. One into memory of the user's, by a generator of the user's, or in another thread stays as it is.
    """

    def __init__(self) -> None:
        self._trace: Callable[[], Trace | None] = lambda: None
        self._thread = 0

    def begin(self, trace: Trace | None) -> None:
        """From now on draws and constants stand on `trace`; on none where it is None."""
        if (last := self._trace()) is not None:
            last.over = last is not trace
        if trace is not None:
            trace.over = False
        self._trace, self._thread = (lambda: None) if trace is None else ref(trace, self._gone), get_ident()
        before, after = (_TRACED, _ORIGINAL) if trace is None else (_ORIGINAL, _TRACED)
        for name in _ORIGINAL:
            if getattr(torch, name) is before[name]:  # What others put there stays.
                setattr(torch, name, after[name])

    def _gone(self, trace: Callable[[], Trace | None]) -> None:
        if self._trace is trace:
            self.begin(None)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Draws inside are those of a model, and stand on no trace; nor do any after a call that was refused."""
        before = self._trace()
        self.begin(None)
        yield
        self.begin(before)

    def call(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What `original` makes, on the trace where that is possible."""
        trace = self._trace()
        given = [kwargs.get(name) for name in ("out", "generator", "requires_grad")]
        other = any(value is not None and value is not False for value in given)
        traced = any(isinstance(value, TracedTensor) for value in flat((args, kwargs)))
        if trace is None or other or traced or get_ident() != self._thread or not _is_known(original, args, kwargs):
            return original(*args, **kwargs)
        place = trace.append(original, args, kwargs, writing=False)
        return wrapped(original(*args, **kwargs), trace, place, TracedTensor)


def _is_known(original: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether a tensor is drawn, filled by rule, or made of a few numbers."""
    name = original.__name__
    if name in _FILLED:
        return not any(isinstance(each, Tensor) for each in flat((args, kwargs)))
    if name != "tensor":
        return True
    numbers = flat(args)
    return 0 < len(numbers) <= _CONSTANTS and all(type(each) in (bool, int, float) for each in numbers)


DRAWS = DrawsOnTrace()
"""The draws and constants of the process."""


def _tracing(original: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        return DRAWS.call(original, args, kwargs)

    return wraps(original)(draw)


_TRACED = {name: _tracing(original) for name, original in _ORIGINAL.items()}
