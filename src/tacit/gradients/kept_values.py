"""Values of records that a model keeps outside of its modules, and uses again.

A copy of a model has attributes and buffers of its own, but shares globals, closures and caches with it. What a first
call computes there from its records, once and for all, changes no later result: two calls on one batch agree. So both
calls are watched: which tensors are computed from the inputs, and which numbers are read out of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from tacit.errors import UnsupportedModel
from tacit.gradients.module_state import leaves

_READS = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__index__", "__complex__"})
_ADVICE = "which would carry private data from one step into the next. Compute it on public data before training."


class KeptValues:
    """Calls of one model, watched one after the other.

    Example:
        >>> import torch
        >>> cache = []
        >>> def model(x):
        ...     cache or cache.append(x.mean(0))
        ...     return x - cache[0]
        >>> kept, x = KeptValues(), torch.ones(2, 1)
        >>> for _ in range(2):
        ...     with kept.watched([x]):
        ...         centred = model(x)
        >>> kept.check()
        Traceback (most recent call last):
        ...
        tacit.errors.UnsupportedModel: the model or its loss keeps a tensor that was computed from records outside ...
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    @contextmanager
    def watched(self, inputs: Iterable[Tensor]) -> Iterator[None]:
        """Watch one call on `inputs`, in the context."""
        call = _Call(inputs, self._calls)
        with call:
            yield
        self._calls.append(call)

    def check(self) -> None:
        """Compare the first call with the others, which ran on the same values with the same draws.

        Raises:
            UnsupportedModel: a later call used a tensor of the first, or the first alone read a number.
        """
        first, *later = self._calls
        if any(call.used_earlier for call in later):
            raise UnsupportedModel(
                f"the model or its loss keeps a tensor that was computed from records outside of its modules, {_ADVICE}"
            )
        for call in later:
            if lines := sorted(first.reads - call.reads):
                file, line = lines[0]
                raise UnsupportedModel(
                    f"the model or its loss reads a number from records in its first call alone ({file}:{line}) and so "
                    f"keeps what follows from it, {_ADVICE}"
                )


class _Call(TorchFunctionMode):
    """Tensors that a call computes from its inputs, and lines that read numbers out of them."""

    def __init__(self, inputs: Iterable[Tensor], earlier: Iterable[_Call]):
        super().__init__()
        self.reads: set[tuple[str, int]] = set()
        self.used_earlier = False
        self._earlier = [call._computed for call in earlier]
        self._computed = WeakIdKeyDictionary()
        self._note(inputs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` and follow its tensors."""
        kwargs = kwargs or {}
        given = [value for _, value in leaves((args, kwargs)) if isinstance(value, Tensor)]
        self.used_earlier |= any(value in computed for computed in self._earlier for value in given)
        result = func(*args, **kwargs)
        if any(value in self._computed for value in given):
            if getattr(func, "__name__", "") in _READS:
                self.reads.add(_line(sys._getframe(1)))
            self._note(value for _, value in leaves(result) if isinstance(value, Tensor))
        return result

    def _note(self, values: Iterable[Tensor]) -> None:
        for value in values:
            self._computed[value] = None


def _line(frame: FrameType) -> tuple[str, int]:
    """File and line of the caller outside of torch."""
    found: FrameType | None = frame
    while found is not None and "/torch/" in found.f_code.co_filename:
        found = found.f_back
    found = found or frame
    return found.f_code.co_filename.rpartition("/")[2], found.f_lineno
