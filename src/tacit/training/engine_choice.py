"""Which engine runs under engine="auto": recorded where that is safe and was measured to pay, else eager.

A recording stands for all steps only where nothing but tensors decides what a step computes. That is known of models
made of torch's and the library's own layers, and of their losses. Of a user's code it is known after a private step,
when two typed passes ran the same operations with the same numbers, read no number, drew nothing in Python and kept
nothing, where the code reaches no iterator, generator or clock, and while what it reads stays bound to the same
objects. Both engines are timed on random records of the public shape, so the choice follows no private value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tacit.gradients import ClippedSum
from tacit.gradients.inputs import Inputs, Loss, map_tensors
from tacit.gradients.module_state import hooks_of_all_modules
from tacit.training.captured import reached_by, undecided

_KNOWN = ("torch.nn.modules.", "tacit.models.")
_KNOWN_LOSSES = ("torch.nn.functional", "tacit.")
_ROUNDS = 3  # Timings of each engine, in turn; the quickest counts.
_LEAST = 2.0  # Seconds of all remaining steps together below which nothing is tried.


Way = TypeVar("Way", bound=Callable[[Any, Tensor], object])


def recorded_where_faster(
    model: nn.Module,
    eager: Callable[[Any, Tensor], object],
    record: Callable[[], Way],
    like: tuple[Inputs, Tensor],
    expected_batch_size: float,
    steps: int,
    loss: Loss | None = None,
) -> Way | None:
    """What `record` gives, if it saves more over the remaining steps than its recordings take; else None.

    Args:
        model: of the run.
        eager: makes the clipped sum of inputs and targets.
        record: gives what makes it by recordings.
        like: inputs and targets of a batch; their shapes and types alone are read.
        expected_batch_size: > 0.
        steps: that remain, >= 0.
        loss: of the run; None for one that is not recorded.

    Example:
        >>> batch = torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)
        >>> calls = []
        >>> way = lambda inputs, targets: calls.append(len(targets))
        >>> recorded_where_faster(nn.Linear(4, 3), way, lambda: way, batch, 8.0, steps=10) is None, calls
        (True, [8, 8])
    """
    try:
        batch = random_batch(like, max(1, round(expected_batch_size)))
        others = random_batch(like, 2 * len(batch[1]))
        with torch.random.fork_rng([batch[1].device] if batch[1].is_cuda else []):
            eager(*batch)  # The first call examines the model.
            reached = reached_by(model, loss)
            seconds = _seconds(lambda: eager(*batch))
            if seconds * steps < _LEAST:
                return None
            recorded = record()
            recorded(*batch)  # Imports what recording needs.
            recording = _seconds(lambda: recorded(*others))
            replayed = min(_seconds(lambda: recorded(*batch)) for _ in range(_ROUNDS))
            seconds = min([seconds, *(_seconds(lambda: eager(*batch)) for _ in range(_ROUNDS - 1))])
    except Exception:
        return None  # A user's model may refuse random records; where it refuses real ones, the eager engine says so.
    if reached.changed():
        return None
    return recorded if (seconds - replayed) * steps > _sizes(expected_batch_size) * recording else None


def _sizes(expected_batch_size: float) -> int:
    """Sizes of padded batches that a run meets: eighths of the expected size within three deviations of it."""
    return math.ceil(2 * 3 * 8 / math.sqrt(expected_batch_size)) + 1


def program_stands(clipped: ClippedSum, loss: Loss | None, fixed: bool | None) -> bool | None:
    """Whether one recording of the clipped sum computes what every step would; None before that can be said.

    Args:
        clipped: of the run.
        loss: of the run; None where the model alone is recorded.
        fixed: whether two typed passes were one program; None before the first.
    """
    modules = list(clipped.model.modules())
    hooked = any(map(_hooked, modules)) or hooks_of_all_modules() > 0
    if clipped.clip.of_mean or clipped.clip.statistics or hooked:
        return False
    known = all(type(layer).__module__.startswith(_KNOWN) for layer in modules)
    if known and (loss is None or str(getattr(loss, "__module__", "")).startswith(_KNOWN_LOSSES)):
        return True
    return fixed and not undecided(clipped.model, loss)


def _hooked(layer: nn.Module) -> bool:
    """Whether code of the user's runs in a layer: a hook, or a function in the place of its own."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
    return bool(hooks) or "forward" in vars(layer)


def random_batch(like: tuple[Inputs, Tensor], records: int) -> tuple[Inputs, Tensor]:
    """Random inputs, and targets of zeros, of the shapes, types and devices of `like`.

    Integers are zeros, which is an index of every table and a class of every loss.

    Example:
        >>> inputs, targets = random_batch((torch.zeros(2, 3), torch.tensor([5, 6])), 4)
        >>> inputs.shape, targets.tolist()
        (torch.Size([4, 3]), [0, 0, 0, 0])
    """
    draw = torch.Generator().manual_seed(0)

    def made(value: Tensor) -> Tensor:
        shape = (records, *value.shape[1:])
        if not value.is_floating_point():
            return torch.zeros(shape, dtype=value.dtype, device=value.device)
        return torch.rand(shape, generator=draw, dtype=value.dtype).to(value.device)

    inputs, targets = like
    zeros = torch.zeros((records, *targets.shape[1:]), dtype=targets.dtype, device=targets.device)
    return map_tensors(made, inputs), zeros


def _seconds(run: Callable[[], object]) -> float:
    """Seconds of `run`: of the processor, which other processes do not lengthen; by the clock where a device runs."""
    clock = time.perf_counter if torch.cuda.is_initialized() else time.process_time
    start = clock()
    run()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return clock() - start
