"""The model's passes in a loop around `private.model(...)`: replayed where one recording stands for all steps.

The loss in between is the user's own Python and runs at every step, observed. A recording holds the forward pass, and
behind it the backward pass, the norms and the clipped sum; it waits in between for the gradients of the outputs. What
it takes for granted is compared at every step: modules, hooks, attributes and what their code reads, the clip, and the
form of the inputs. Where any of it changes, the rest of the run is eager.

Under engine="auto", of `fit` too, passes are recorded where that is safe and was measured to pay. A recording stands
for all steps only where nothing but tensors decides what a step computes. That is known of models made of torch's and
the library's own layers, and of their losses. Of a user's code it is known after a private step, when two typed passes
ran the same operations with the same numbers, read no number, drew nothing in Python and kept nothing, where the code
reaches no iterator, generator or clock, and while what it reads stays bound to the same objects. Both engines are timed
on random records of the public shape, so the choice follows no private value.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from tacit.errors import TrainingMisuse, UnsupportedModel
from tacit.gradients import ClippedSum
from tacit.gradients.deferred import UNTOUCHED, DeferredSum, Recording
from tacit.gradients.engine import Trace
from tacit.gradients.flat_gradient import FlatGradient
from tacit.gradients.inputs import Inputs, Loss, form_of, map_tensors, rows, tensors
from tacit.gradients.module_state import hooks_of_all_modules
from tacit.gradients.outputs import SINGLE, Kind
from tacit.gradients.rounding import precise_products
from tacit.training.captured import reached_by, undecided
from tacit.training.compile import CompiledSum, replay
from tacit.training.private_run import PrivateRun

Passes = Callable[[Tensor], Tensor | None]
_LEAST_BATCHES = 3  # whose passes are typed at the start of a run


class ReplayedPasses(CompiledSum):
    """Both passes of a model, recorded for each size of padded batch.

    Args:
        clipped: the model.
        like: an eager pass: its form, its structure and how its gradients are made are those of all.
        expected_batch_size: > 0.
    """

    def __init__(self, clipped: DeferredSum, like: Recording, expected_batch_size: float):
        super().__init__(clipped, SINGLE.inner_product, expected_batch_size, compiler=False)
        self._like, self._clip = replace(like, outputs=like.outputs[:0], chunks=[]), clipped.clip
        self._form, self._packed = form_of(like.inputs), like.outputs[:0]

    def stand_for(self, clipped: DeferredSum, inputs: Inputs) -> bool:
        """Whether the recordings compute what `clipped` would of `inputs`."""
        same = clipped is self._clipped and clipped.clip == self._clip and form_of(inputs) == self._form
        return same and not self.changed()

    def record(self, inputs: Inputs, drawn: int) -> Recording:
        """The forward pass on at least one record of a logical batch of `drawn`.

        Raises:
            UnsupportedModel: the passes of a batch of this size cannot be recorded.
        """
        outputs, finish = self._begun(inputs, drawn)
        trainable, slack, dtype = self._clipped.trainable, self._clipped.slack, self._clipped.dtype

        def clipped_sum(cotangents: Tensor) -> FlatGradient | None:
            total = finish(cotangents)
            return None if total is None else FlatGradient.of(total, trainable, slack, dtype)

        versions = [value._version for value in tensors(inputs)]
        return replace(self._like, outputs=outputs, inputs=inputs, versions=versions, replayed=clipped_sum)

    def _begun(self, inputs: Inputs, drawn: int) -> tuple[Tensor, Passes]:
        """Outputs of the forward pass, and what makes the clipped sum of their gradients."""
        count = len(tensors(inputs)[0])
        size, like = self.size(count), self._like.outputs
        if size > count:
            # The records, and the first of them again.
            index = self._constant(("index", size, count), lambda: torch.arange(size) * (torch.arange(size) < count))
            inputs = rows(inputs, index)
        cotangents = self._constant(("cotangents", size), lambda: like.new_zeros(size, *like.shape[1:]))
        weights = self._weights(size, count)
        given = [*self._parameters, *tensors(inputs)]
        run: Any = self._graph(inputs, cotangents, [*given, cotangents, weights], drawn)
        with torch.no_grad(), precise_products():
            passes = run(*given)
            # No view for autograd, which forbids writes into one that was made without gradients.
            outputs = next(passes)[:count].data
        version = outputs._version

        def finish(found: Tensor) -> Tensor | None:
            if outputs._version != version:
                raise TrainingMisuse(f"the model's activations must {UNTOUCHED}")
            whole = found
            if size > count:
                whole = torch.zeros_like(cotangents)
                whole[:count] = found
            with torch.no_grad(), precise_products():
                total, in_range = passes.send((whole, weights))
            return total if in_range else None

        return outputs, finish

    def _physical_batch(self, inputs: Inputs, targets: Tensor, drawn: int) -> Tensor | None:
        return self._begun(inputs, drawn)[1](targets)

    def _trace(self, inputs: Inputs, targets: Tensor) -> Trace:
        assert self._like.verification.trace is not None
        return self._like.verification.trace

    def _replayed(self, recorded: GraphModule) -> Any:
        return replay(recorded, resumed=2)

    def _outputs(self, values: dict[str, Tensor], inputs: Inputs) -> Any:
        self._packed = self._like.form.pack(super()._outputs(values, inputs))
        return self._packed

    def _step(self, trace: Trace, like: Inputs, drawn: int, given: list[Tensor]) -> tuple[Tensor, ...]:
        found = super()._step(trace, like, drawn, given)
        outputs, self._packed = self._packed, self._like.outputs
        return *found, outputs


class LoopEngine:
    """The engine of the model's passes in a loop of the user's own.

    Args:
        run: that the loop takes steps of; a seeded one, which must repeat, and one of several processes stay eager.
    """

    def __init__(self, run: PrivateRun):
        self._run, self._passes = run, None
        self._chooses = run.stream.secure and run.processes == 1 and run.whole is None
        self._batches = 0

    @property
    def name(self) -> str:
        """That of the next batch, "eager" or "recorded"."""
        return "eager" if self._passes is None else "recorded"

    def stay_eager(self) -> None:
        """Record nothing from now on."""
        self._passes, self._chooses = None, False

    def record(self, clipped: DeferredSum, inputs: Inputs, drawn: int | None, *, steady: bool) -> Recording:
        """The forward pass of a batch.

        Args:
            clipped: the model.
            inputs: of the batch.
            drawn: records of its logical batch; None for privacy units of several records.
            steady: whether modules, hooks and attributes are those of the last batch.
        """
        if drawn is None or not len(tensors(inputs)[0]) or _modes():
            return clipped.record(inputs)
        if self._passes is not None:
            try:
                if steady and self._passes.stand_for(clipped, inputs):
                    return self._passes.record(inputs, drawn)
            except UnsupportedModel:
                pass
            self.stay_eager()
        recording = clipped.record(inputs)
        self._batches += 1
        if self._chooses and self._batches >= _LEAST_BATCHES:
            self._choose(clipped, recording)
        return recording

    def _choose(self, clipped: DeferredSum, like: Recording) -> None:
        """Choose the engine of the remaining steps, once the model has been examined; see `recorded_where_faster`."""
        verified = like.verification
        if not verified.final:
            return
        self._chooses = False
        constant = all(kind is not Kind.VALUES for _, kind, _ in like.form.kinds)
        if not constant or len(like.chunks) != 1 or not program_stands(clipped, None, verified.fixed):
            return
        expected, batch = self._run.plan.expected_batch_size, (like.inputs, like.outputs)
        record = partial(ReplayedPasses, clipped, like, expected)

        def eager(inputs: Inputs, cotangents: Tensor) -> object:
            return clipped.release(clipped.record(inputs), cotangents)

        self._passes = recorded_where_faster(clipped.model, eager, record, batch, expected, self._run.left)


def _modes() -> bool:
    """Whether a mode of the user's, such as `torch.autocast` or a counter of operations, is active."""
    stacks = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    return any(stacks) or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


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
    # Sizes of padded batches that a run meets: eighths of the expected size within three deviations of it.
    sizes = math.ceil(2 * 3 * 8 / math.sqrt(expected_batch_size)) + 1
    return recorded if (seconds - replayed) * steps > sizes * recording else None


def program_stands(clipped: ClippedSum, loss: Loss | None, fixed: bool | None) -> bool | None:
    """Whether one recording of the clipped sum computes what every step would; None before that can be said.

    Args:
        clipped: of the run.
        loss: of the run; None where the model alone is recorded.
        fixed: whether two typed passes were one program; None before the first.
    """
    modules = list(clipped.model.modules())
    # Code of the user's runs in a layer with a hook, or with a function in the place of its own.
    hooks = any(each._forward_hooks or each._forward_pre_hooks or each._backward_hooks for each in modules)
    hooked = hooks or any("forward" in vars(each) for each in modules) or hooks_of_all_modules() > 0
    if clipped.clip.of_mean or clipped.clip.statistics or hooked:
        return False
    known = all(type(layer).__module__.startswith(_KNOWN) for layer in modules)
    if known and (loss is None or str(getattr(loss, "__module__", "")).startswith(_KNOWN_LOSSES)):
        return True
    return fixed and not undecided(clipped.model, loss)


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
