"""The check of a whole training step: the body of a loop runs on changed batches, and nothing is released.

The step runs on a batch of its own data, on the batch with half of the records replaced by others, with one removed,
and on an empty one. What it hands to the private model for the other records, the gradients of their losses, how often
it steps, and every setting of the optimizer must be the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from tacit import check
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.gradients.deferred import DeferredSum
from tacit.gradients.inputs import Inputs, call, map_tensors, tensors
from tacit.gradients.module_state import restored_generators
from tacit.gradients.neighbours import is_near
from tacit.training.captured import captured_schedulers
from tacit.training.private_outputs import private_values
from tacit.training.trace import READS, Reads

Step = Callable[[Any], object]
"""The body of a training loop: `step(batch)` is all that happens with one batch of the private loader."""

# Rounding between two runs, relative to the largest value: of equal shape, and of one record less.
_EQUAL_SHAPE, _OTHER_SHAPE = 1e-5, 1e-4
_MOST_ROWS = 64


@dataclass
class ForwardPass:
    """One call of the private model.

    Attributes:
        inputs: what it was given, each of shape (batch, ...).
        outputs: what it returned; its `grad` holds the cotangents after the backward pass.
    """

    inputs: list[Tensor]
    outputs: Tensor


_READS: ContextVar[Reads | None] = ContextVar("reads", default=None)


class _Private(Tensor):
    """Rows and outputs of a dry run, and values computed from them: what is read of them is counted.

    Losses may be a vector, as those of a private model.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = _READS.get()
        if reads is not None and getattr(func, "__name__", "") in READS:
            reads.note()
        return super().__torch_function__(func, types, args, kwargs or {})

    def backward(self, *_: object, **__: object) -> None:
        self.as_subclass(Tensor).sum().backward()


def is_dry(value: object) -> bool:
    """Whether `value` was computed from the outputs of a dry run."""
    return isinstance(value, _Private)


@dataclass
class DryRun:
    """What one run of a step did, without a release.

    Attributes:
        size: number of records of its batch.
        passes: calls of the private model in train mode.
        steps: calls of `optimizer.step()`.
        settings: of the optimizer at each of these calls.
    """

    size: int
    passes: list[ForwardPass] = field(default_factory=list)
    steps: int = 0
    settings: list[object] = field(default_factory=list)

    def forward(self, model: DeferredSum, given: Inputs) -> Any:
        """Outputs of the model, of which a loss may be computed and `backward` be called."""
        given = map_tensors(lambda value: value.as_subclass(Tensor), given)
        values = tensors(given)
        if any(len(value) != self.size for value in values):
            raise TrainingMisuse("the step must give the model the batch that it was called with; got another one.")
        form, module = model.form(given), model.model
        # Without dropout, whose draws differ between two batch sizes; the model probe looks at the model itself.
        with torch.no_grad(), _modes_kept(module):
            module.eval()
            returned = call(module, given) if self.size else model.form_of_empty(given)[1]
        structure = form.structure([returned])
        leaf = form.pack(returned).detach().clone().requires_grad_()
        self.passes.append(ForwardPass([value.detach().clone() for value in values], leaf))
        return private_values(leaf.view_as(leaf).as_subclass(_Private), structure, module)

    def step(self, settings: object) -> None:
        """Count a step of the optimizer, with its `settings`."""
        self.steps += 1
        self.settings.append(copy.deepcopy(settings))


def check_step(
    step: Step,
    run: Callable[[Step, Any, int], DryRun],
    draw: Callable[[int], Any],
    *,
    size: int,
    batches: int,
    reduction: str,
) -> None:
    """Raise unless a step treats records apart, steps on every batch, and lets no batch change the run.

    Args:
        step: the body of the loop.
        run: makes a dry run of a step on a batch of so many records.
        draw: so many records of the data set, chosen at random, stacked.
        size: number of records of a batch, >= 2.
        batches: how many batches are tried, >= 1.
        reduction: "none", "mean" or "sum": form of the loop's loss.

    Raises:
        TrainingMisuse: the number of steps or a setting follows the batch.
        InvalidInput: an input or a gradient of one record follows other records, or the step does not repeat itself.
    """
    for _ in range(batches):
        pool = draw(2 * size)
        own, others = torch.arange(size), torch.arange(size, 2 * size)
        half = torch.zeros(size, dtype=torch.bool)
        half[torch.randperm(size)[: size // 2]] = True
        with restored_generators() as repeat:

            def on(places: Tensor, pool: Any = pool, repeat: Callable[[], None] = repeat, again: bool = True) -> DryRun:
                if again:
                    repeat()
                return run(step, _rows(pool, places, 2 * size), len(places))

            first = on(own)
            _compare(first, on(own), torch.ones(size, dtype=torch.bool), _EQUAL_SHAPE, _REPEATS)
            if first.steps != 1:
                raise TrainingMisuse(_ONE_STEP)
            for replaced in (half, ~half):
                _compare(first, on(torch.where(replaced, others, own)), ~replaced, _EQUAL_SHAPE, _MIXES)
            shorter = on(own[:-1])
            random = not _agree(first, on(own, again=False), torch.ones(size, dtype=torch.bool), _EQUAL_SHAPE, "none")
            _compare_counts(first, shorter)
            if not random:
                # Draws of a random step differ between two shapes; for it replaced records have to do.
                keep = torch.ones(size - 1, dtype=torch.bool)
                if not _agree(first, shorter, keep, _OTHER_SHAPE, reduction):
                    raise InvalidInput(_SIZE)
            _compare_counts(first, on(own[:0]))


@contextmanager
def _modes_kept(module: nn.Module) -> Iterator[None]:
    modes = {part: part.training for part in module.modules()}
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


@contextmanager
def reading(reads: Reads) -> Iterator[Callable[[Any], Any]]:
    """Context that counts in `reads` what a step reads of private values; a function that marks those of a batch."""

    def marked(value: Any) -> Any:
        rows = isinstance(value, Tensor) and value.dim()
        return value.as_subclass(_Private) if rows else value

    token = _READS.set(reads)
    try:
        yield lambda batch: tree_map(marked, batch)
    finally:
        _READS.reset(token)


@contextmanager
def unchanged(model: nn.Module, optimizer: Optimizer, step: Step) -> Iterator[None]:
    """Context after which weights, buffers, modes, gradients, settings and schedulers are what they were before."""
    state = {name: value.detach().clone() for name, value in (*model.named_parameters(), *model.named_buffers())}
    groups = [{**group} for group in optimizer.param_groups]
    schedulers = [(each, copy.deepcopy(each.state_dict())) for each in captured_schedulers(step)]
    try:
        with _modes_kept(model):
            yield
    finally:
        with torch.no_grad():
            for name, value in (*model.named_parameters(), *model.named_buffers()):
                if name in state and not torch.equal(value, state[name]):
                    value.copy_(state[name])
                value.grad = None
        for group, kept in zip(optimizer.param_groups, groups, strict=True):
            group.update(kept)
        for scheduler, kept in schedulers:
            scheduler.load_state_dict(kept)


def settings_of(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """Every setting of every parameter group."""
    return [tuple(value for key, value in group.items() if key != "params") for group in optimizer.param_groups]


def rows_to_check(expected: float, records: int) -> int:
    """Number of records of a batch to check a step with: the expected batch size, within 2 and 64.

    Raises:
        InvalidInput: fewer than four records.
    """
    check.count("number of records", records, minimum=4)
    return int(max(2, min(expected, _MOST_ROWS, records // 2)))


def _rows(pool: Any, places: Tensor, total: int) -> Any:
    """The rows `places` of every tensor in `pool` that has a row for each record."""

    def chosen(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == total:
            return value[places.to(value.device)]
        return value

    return tree_map(chosen, pool)


def _compare(first: DryRun, other: DryRun, keep: Tensor, tolerance: float, sentence: str) -> None:
    _compare_counts(first, other)
    if not _agree(first, other, keep, tolerance, "none"):
        raise InvalidInput(sentence)


def _compare_counts(first: DryRun, other: DryRun) -> None:
    if other.steps != first.steps:
        raise TrainingMisuse(_ONE_STEP)
    if other.size and len(other.passes) != len(first.passes):
        raise TrainingMisuse("the step must call the model equally often on every batch; got another number of calls.")
    if other.settings != first.settings:
        raise TrainingMisuse(
            "settings of the optimizer must not follow the records of a batch; got another learning rate, noise "
            "multiplier or clipping norm for another batch. Use a schedule."
        )


def _agree(first: DryRun, other: DryRun, keep: Tensor, tolerance: float, reduction: str) -> bool:
    """Whether inputs and cotangents of the records `keep` are the same in two dry runs."""
    if len(first.passes) != len(other.passes):
        return False
    scales = [run.size if reduction == "mean" else 1 for run in (first, other)]
    return all(
        _same(one, two, keep, tolerance)
        for left, right in zip(first.passes, other.passes, strict=True)
        for one, two in [*zip(left.inputs, right.inputs, strict=True), _cotangents(left, right, scales)]
    )


def _cotangents(left: ForwardPass, right: ForwardPass, scales: Sequence[int]) -> tuple[Tensor | None, ...]:
    found = (left.outputs.grad, right.outputs.grad)
    return tuple(None if value is None else value * scale for value, scale in zip(found, scales, strict=True))


def _same(one: Tensor | None, other: Tensor | None, keep: Tensor, tolerance: float) -> bool:
    if one is None or other is None:
        return one is other
    one = one[: len(keep)]
    if one.shape != other.shape:
        return False
    narrow = one.dtype in (torch.float16, torch.bfloat16)
    return is_near(one, other, keep, 5e-2 if narrow else tolerance)


_ONE_STEP = (
    "the step must call optimizer.step() once on every batch, empty ones too; got another number of calls. Leaving out "
    "a batch because of its records is not private."
)
_REPEATS = (
    "the step must repeat itself when the generators are repeated; got other inputs or gradients the second time. Draw "
    "from the global generators of torch, numpy or random, and keep no values from step to step."
)
_MIXES = (
    "inputs of the model and gradients of a record's loss must follow from that record and public values; got some "
    "that change with other records of the batch. Use transform= and no statistics of the batch."
)
_SIZE = (
    "inputs of the model and gradients of a record's loss must not follow the size of the batch; got others for one "
    'record less. Use reduction="none" and call backward on the vector of losses.'
)
