"""`BatchSession`: state of the logical batch that the private model, optimizer and loader share; `DRAWS` on its trace.

What `torch.rand`, `torch.full` and their like make in a loop stands on the trace of the batch in hand.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from threading import get_ident
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from tacit.errors import TrainingMisuse
from tacit.gradients import FlatGradient, UnitIds
from tacit.gradients.flat_gradient import Total
from tacit.sampling import Batch
from tacit.training.loop_checks import LoopChecks
from tacit.training.private_run import PrivateRun, unit_ids_of
from tacit.training.release import Release
from tacit.training.trace import Trace, TracedTensor, wrapped
from tacit.verification.calls import flat


@dataclass(eq=False)
class PhysicalBatch:
    """Part of a logical batch that is in memory at a time.

    Attributes:
        size: number of records.
        last: whether it is the last of its logical batch.
        recorded: whether its clipped sum has been added.
    """

    size: int
    last: bool
    recorded: bool = False


class BatchSession:
    """One logical batch at a time: opened, issued as physical batches, summed up, and released once.

    Args:
        run: the running plan.
        reduction: form of the loop's loss, see `cotangents`.
        divided: whether the release is divided by the expected batch size.

    Attributes:
        checks: the checks of the loop, once the private model is made.
        trace: of the physical batch that was issued last.
        within_plan: whether a pass over the loader ends with the plan.
    """

    checks: LoopChecks

    def __init__(self, run: PrivateRun, reduction: str = "none", divided: bool = True):
        self.run, self.reduction, self.divided = run, reduction, divided
        run.open_ended = True
        self.trace: Trace | None = None
        self.within_plan = False
        self._batch: Batch | None = None
        self._physical: PhysicalBatch | None = None
        self._total: Total | None = None
        self._norms: list[Tensor] = []

    @property
    def unit_ids(self) -> UnitIds | None:
        """Privacy unit of every record of the logical batch; None where every record is a unit of its own."""
        return unit_ids_of(self._batch) if self._batch is not None else None

    @property
    def drawn(self) -> int | None:
        """Number of records of the logical batch; None where none is open."""
        return self.run.drawn(self._batch) if self._batch is not None else None

    @property
    def complete(self) -> bool:
        """Whether every physical batch of a logical batch is summed up, and nothing released yet."""
        return self._physical is not None and self._physical.last and self._physical.recorded

    @property
    def summed(self) -> bool:
        """Whether a part of a logical batch is summed up, and nothing released yet."""
        return self._total is not None or self.pending is not None

    @property
    def pending(self) -> PhysicalBatch | None:
        """The physical batch that was issued and waits for `backward`."""
        return self._physical if self._physical is not None and not self._physical.recorded else None

    def open(self) -> Batch:
        """The logical batch to issue next: a new one once the last has been released, else the same from its start."""
        if self.complete:
            raise TrainingMisuse(
                "step must be taken after backward on every batch; got the next batch asked for without one. "
                "For larger batches raise batch_size and bound memory by max_physical_batch_size (BatchMemoryManager)."
            )
        batch = self.run.issue()
        if batch is self._batch:
            self.checks.skipped()
        self._batch = batch
        self._physical = self._total = None
        self._norms = []
        return self._batch

    def issue(self, physical: PhysicalBatch) -> None:
        """Make `physical` the pending one; the one before it must have been recorded, or none of the logical batch."""
        if self._total is not None and self.pending is not None:
            raise TrainingMisuse(
                "backward must be called on every physical batch; got the next one requested without it. "
                "To leave out some records of a batch because of others would not be private."
            )
        if self._physical is not None and self._total is None:
            raise TrainingMisuse("backward must be called on every physical batch; got none for the first.")
        self._physical = physical
        self.trace = self.checks.trace(physical.size)

    def check_size(self, sizes: list[int]) -> None:
        """Raise unless the model is given the last issued physical batch."""
        if self._physical is None or any(size != self._physical.size for size in sizes):
            raise TrainingMisuse(
                "model must be given the batch that the private loader yielded last; got another. "
                "Iterate the loader that make_private returned, not the original one, and keep one row for each record "
                "along the first axis."
            )

    def check_first(self) -> None:
        """Raise if the last issued physical batch has been recorded."""
        if self.pending is None:
            raise TrainingMisuse("backward must be called once for each batch; got a second call. Step first.")

    def check_between(self, action: str) -> None:
        """Raise if a part of a logical batch has been summed up."""
        if self._total is not None:
            raise TrainingMisuse(f"{action} between batches; got one after backward. Step first.")

    def record(self, total: FlatGradient, norms: Tensor) -> None:
        """Add the clipped sum of the pending physical batch; `norms` are those of its units' gradients."""
        self.check_first()
        assert self._physical is not None
        self._physical.recorded = True
        self._norms.append(norms)
        self._total = Total(total.parts) if self._total is None else self._total
        self._total.add(total)

    def release(self) -> Release | None:
        """Noisy gradient of the logical batch, recorded in the ledger; None while physical batches are to come."""
        batch, physical, total = self._batch, self._physical, self._total
        if batch is None or physical is None or total is None or not physical.recorded:
            raise TrainingMisuse(
                "step must follow losses.backward() on a batch of the private loader; got none since the last step. "
                'Compute the losses from model(inputs) in train mode with reduction="none".'
            )
        if not physical.last:
            return None
        self._batch = self._physical = self._total = None
        released = self.run.release(batch, total.gradient(), torch.cat(self._norms))
        if self.divided:
            return released
        size = self.run.plan.expected_batch_size
        released.mean.flat.mul_(size)
        return replace(released, noise_std=released.noise_std * size)


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
