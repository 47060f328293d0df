"""The checks of a loop over a private model: which facts of a training guarantee this run shows, and how often.

The model probe and the state guard look at the model, the trace at what the loop makes of a batch. Where the facts
hold every check passes whatever the records are, so that its outcome says nothing about them; a message never holds a
value, a row number or a batch size.
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Subset

from tacit import check
from tacit.accounting.facts import How
from tacit.errors import TacitError, TrainingMisuse
from tacit.gradients.deferred import DeferredSum
from tacit.gradients.inputs import Inputs, weights_written
from tacit.gradients.model_probe import TYPED
from tacit.gradients.module_state import same
from tacit.standing import Standing
from tacit.training.batch_types import Reductions, SeenPrograms, input_doubt, loss_doubt, numbers_of
from tacit.training.captured import Memory, data_leaves
from tacit.training.numbers_by_size import BY_SIZE, MEASURED, Followed, scheduled
from tacit.training.optimizers import refuse_other_steps, settings_of, steps_allowed
from tacit.training.other_loaders import ModuleCalls, OtherLoaders
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.private_run import PrivateRun
from tacit.training.ranks import note_processes
from tacit.training.state_guard import COMPARED, ProgramGuard, RunChecks, StateGuard, elsewhere
from tacit.training.trace import Reads, Trace, TracedTensor, plain, refer
from tacit.verification.reads import plain_form, user_line

_SIZES = 2  # different numbers of records at which a loss is computed again: by one nothing shows that follows it
_SIGNATURES = 1000  # remembered traces; a loop whose numbers change at every step has no use for more
_FAILED = "a check of the loop failed after private steps"


class LoopChecks(RunChecks):
    """Checks of one run of `make_private` or `PrivacyEngine`.

    Args:
        model: the clipped sum, which holds the module and its probe.
        optimizer: the original optimizer.
        run: whose ledger holds the facts.
        public: name -> tensor that losses may use.
        records: the data set of the private loader.

    Raises:
        InvalidInput: a public value is no tensor.

    Attributes:
        reads: numbers that the loop read from private values.
        guard: state of the module.
    """

    def __init__(
        self,
        model: DeferredSum,
        optimizer: Optimizer,
        run: PrivateRun,
        public: Mapping[str, Tensor] | None = None,
        records: object = None,
    ):
        super().__init__(run.ledger, optimizer, StateGuard(model.model, run.whole))
        self.model, self.run = model, run
        leaves = list(data_leaves(records))
        # Of a subset the other rows may well be held out.
        self._records = [] if any(isinstance(each, Subset) for each in leaves) else [Memory(each) for each in leaves]
        self._evaluated, self._others = "", OtherLoaders(records)
        self._programs = ProgramGuard(model.probe, self.guard)
        self.reads = Reads(told=self._tell_read)
        self._public: dict[int, tuple[Tensor, int]] = {}
        self._reduced: dict[Hashable, set[int]] = {}
        self._typed: dict[Hashable, set[int]] = {}
        self._seen, self._reductions = SeenPrograms(), Reductions()
        self._settings, self._read_apart = settings_of(optimizer), ""
        self.calls, self._measured = ModuleCalls(self._records, model.model, WeakMethod(self._called)), False
        self._numbers = Followed()
        self._courses: dict[Hashable, int] = {}
        self._skipped, self._declaring = 0, False
        refuse_other_steps(optimizer)
        for name in ("rows", "model_rows", "model_state", "loss_rows", "numbers_read", "weights"):
            self.facts.note(name, How.ASSUMED, "no step of the loop has been checked yet")
        note_processes(run)
        for name, value in (public or {}).items():
            self.public(value, name)
        moved = WeakMethod(self._weights_now)
        self.facts.watch("weights", lambda: found() if (found := moved()) is not None else "")

    @property
    def public_identities(self) -> frozenset[int]:
        """Identities of the tensors that were declared public."""
        return frozenset(self._public)

    def trace(self, size: int) -> Trace:
        """The trace of a new batch."""
        return Trace(size, self.reads, self._known)

    def public(self, value: Tensor, name: str) -> Tensor:
        """Declare that `value` was made without private records, so that losses may use it; returns it."""
        check.text("name", name)
        if not isinstance(value, Tensor) or isinstance(value, TracedTensor):
            hint = "What is computed from a batch is followed and needs no declaration."
            raise check.fail("tensor", "one that was not computed from a batch", type(value).__name__, hint)
        self._public[id(value)] = value, value._version
        self.model.probe.public.append(value)
        self.facts.declare("settings", f"{name}: public")
        return value

    @contextmanager
    def postprocessing(self, name: str) -> Iterator[None]:
        """Changes of weights and buffers inside use no private data."""
        check.text("name", name)
        if moved := self.guard.moved():
            raise TrainingMisuse(elsewhere(moved))
        with self.restored(), steps_allowed(), weights_written(self.model.model):
            yield
        self.facts.declare("weights", name)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Weights are loaded inside together with the ledger of the steps that made them."""
        self._declaring = True
        try:
            yield
        finally:
            self._declaring = False
        self.guard.released()

    @contextmanager
    def unreleased(self, name: str) -> Iterator[None]:
        """Numbers read inside neither leave this computer nor steer the run."""
        evaluated, before = self._evaluated, self.reads.allowed
        self.reads.allowed = check.text("name", name)
        try:
            yield
        finally:
            self.reads.allowed = before
        self._others.line, self._evaluated = "", evaluated
        self._read_apart = self._read_apart or name
        self.facts.declare("released", f"{name}: not released")

    def skipped(self) -> None:
        """A batch that was handed out is handed out again, as nothing was stepped on. One look at a batch is free."""
        self._skipped += 1
        if self._skipped > 1:
            self.facts.missing(
                "batches", "batches were handed out and not stepped on: step on every batch, empty ones too"
            )

    def before_forward(self, inputs: Inputs) -> bool:
        """Check weights and state, and probe the model where that is due; raises before anything is released.

        Returns:
            Whether the pass is the program of the last one.
        """
        self.guard.check_weights()
        changed = self.guard.changed()
        for name in changed:
            if name not in self.model.probe.cleared and (self.guard.is_buffer(name) or self.guard.holds_rows(name)):
                raise TrainingMisuse(elsewhere(name))
        with self.marking():
            if self._programs.before_pass(inputs, changed=changed):
                self._note_types()
        self.note_numbers("", self._programs.changed)
        return self._programs.steady

    def evaluated(self, inputs: Any, of_batch: bool) -> None:
        """Remember the line of a pass without gradients over records of the data set: steps may follow its numbers.

        Args:
            inputs: of the pass.
            of_batch: whether they are made from the batch in hand.
        """
        if self.reads.allowed:
            return
        self._measured = self._measured or not of_batch
        if self._others.line or any(own.overlaps(each) for own in self._records for each in data_leaves(inputs)):
            self._evaluated = user_line()

    def _called(self, on_records: bool) -> None:
        """Remember the line at which the loop called a module on records of the data set, or that it measured."""
        if self.reads.allowed:
            return
        self._measured = True
        if on_records:
            self._evaluated = user_line()

    def after_forward(self, inputs: Inputs) -> None:
        """Probe the model if its forward pass changed state that no probe has cleared."""
        names = self.guard.changed()
        fresh = [name for name in names if name not in self.model.probe.cleared]
        if fresh:
            with self.marking():
                self.model.probe(inputs, thorough=True)
            self._note_types()
            unseen = [name for name in fresh if name not in self.model.probe.cleared]
            if unseen:
                self.facts.missing(
                    "model_state",
                    f"{unseen[0]!r} changed in a forward pass and in no probe: make it before make_private, or keep no "
                    "state in the model",
                )
        if names:
            self.guard.forwarded()

    def _note_types(self) -> None:
        """Note what the record types of the model say."""
        for name, says in self.model.probe.typed.doubts:
            self.facts.missing(name, says)
        for name in ("model_rows", "model_state"):
            self.facts.note(name, How.ENFORCED, TYPED)

    def check_inputs(self, values: list[Any], trace: Trace | None) -> None:
        """Check that inputs of the model are rows of the batch in hand, or made from them record by record.

        Raises:
            TrainingMisuse: none of them is.
            InvalidInput: rows of an input depend on other records.
        """
        if trace is None:
            return
        # A draw of an earlier batch is no row of it, and of unknown origin here.
        values = [plain(value) if isinstance(refer(value, trace), Tensor) else value for value in values]
        derived = [value for value in values if isinstance(value, TracedTensor) and not trace.is_root(value)]
        foreign = [value for value in values if isinstance(value, Tensor) and not isinstance(value, TracedTensor)]
        others = [value for value in foreign if self._known(value) is None and not _yielded(value, trace)]
        if len(others) == len(values):
            raise TrainingMisuse(
                "model must be given the batch that the private loader yielded last; got another tensor. "
                "Iterate the loader that make_private returned and pass on what it yields."
            )
        if others:
            self.facts.missing("rows", _FOREIGN)
        for value in derived:
            self._note_unknown("rows", trace, value)
        if derived and self._is_due(self._typed, ("inputs", *trace.signature(False)), trace):
            with self.marking():
                for value in derived:
                    self._doubt("rows", input_doubt(trace, value, self._seen))

    def check_shared(self, value: Tensor, kept: Tensor, trace: Trace) -> None:
        """Note where an argument of the model comes from that all records share; the model gets `kept`, equal to it."""
        if isinstance(value, TracedTensor):
            self._note_unknown("rows", trace, value)
            known = not trace.unknown(value.ref)
        else:
            known = self._known(value) is not None
            if not known:
                self.facts.missing("rows", _FOREIGN)
        public = self.model.probe.public
        if known and not any(kept is each for each in public):
            public.append(kept)

    def check_loss(self, loss: PrivateOutputs, found: Tensor, reduction: str) -> None:
        """Check that the cotangents of a loss are each of their own record; see `loss_doubt`, `Reductions`.

        Args:
            loss: one value for each record, or their sum or mean.
            found: gradient of the loss with respect to the outputs.
            reduction: "mean", "sum" or "none", by which a number is one value for each record.
        """
        trace = loss.trace
        self._note_unknown("loss_rows", trace, loss)
        if not trace.size:
            return
        self._look_at_numbers(trace)
        scale = len(found) if reduction == "mean" else 1
        if self._is_due(self._typed, ("loss", scale > 1, *trace.signature(False)), trace):
            with self.marking():
                self._doubt("loss_rows", loss_doubt(loss, found, scale, self._seen))
        if reduction != "none" and len(found) > 1 and self._is_due(self._reduced, trace.signature(), trace):
            with self.marking():
                self._doubt("loss_rows", self._reductions.doubt(loss, found, reduction))
        self.facts.note("loss_rows", How.ENFORCED, TYPED)

    def _look_at_numbers(self, trace: Trace) -> None:
        """Note numbers of a loss, and a choice between two courses of it, that follow the size of the batch."""
        if len(self._courses) >= _SIGNATURES:
            self._courses.clear()
        course = self._courses.setdefault(trace.course, len(self._courses))
        numbers = (("what a loss computes",), float(course)), *numbers_of(trace)
        self.note_numbers(self._numbers.follow(numbers, trace.size), self._numbers.changed)

    def _note_unknown(self, fact: str, trace: Trace, value: TracedTensor) -> None:
        """Note lines that bring tensors of unknown origin into `value`."""
        for line in trace.unknown(value.ref):
            self.facts.missing(
                fact,
                f"{line} brings in a tensor that is neither of this batch nor declared: declare it by "
                'private.public(tensor, "name"), or draw it by torch.rand_like(rows)',
            )

    def _doubt(self, fact: str, says: str) -> None:
        while self._seen.lines:
            self.facts.missing("numbers_read", f"{self._seen.lines.pop()} {BY_SIZE}")
        if says:
            self.facts.missing(fact, f'{says} Or declare it: private.declare({fact!r}, "why")')

    def _is_due(self, seen: dict[Hashable, set[int]], signature: Hashable, trace: Trace) -> bool:
        """Whether these operations were not looked at with two numbers of records, of which one could show a mixing."""
        if len(seen) >= _SIGNATURES:
            seen.clear()
        sizes = seen.setdefault(signature, set())
        if trace.size in sizes or len(sizes) == _SIZES:
            return False
        if trace.size > 1:
            sizes.add(trace.size)
        return True

    def check_loaded(self, before: Mapping[str, Any], after: Mapping[str, Any], training: bool) -> None:
        """Raise if weights other than the released ones are about to be loaded for training."""
        if self._declaring or not training:
            return
        names = [name for name, value in after.items() if name in before and not same(before[name], value)]
        if names and not self.guard.moved():
            raise TrainingMisuse(elsewhere(names[0]) + " For evaluation alone call private.model.eval() first.")

    def before_step(self, size: int) -> None:
        """Check weights and settings again, before the release of a batch of `size` records."""
        self.guard.check_weights()
        if line := self._evaluated or (self._others.line if self.run.taken else ""):
            says = "goes over training data between steps: measure on held-out data"
            self.facts.missing("numbers_read", f'{line} {says}, or write "with private.unreleased(name)"')
        elif self._measured:
            self.ledger.take_as_public(MEASURED.format("the loop"))
        self._evaluated, self._others.line, self._measured = "", "", False
        self.follow_optimizer(size, "let private.optimizer.step() alone change it")
        changed = settings_of(self.optimizer) != self._settings and not scheduled(self.optimizer)
        if changed and self._read_apart:
            says = "what is read there must not steer the run, and settings of the optimizer changed after it"
            self.facts.missing("numbers_read", f"private.unreleased({self._read_apart!r}): {says}")
        self.check_settings("optimizer settings", changed)

    def stepped(self) -> None:
        """Take the weights after a step as those that a release left."""
        super().stepped()
        self._settings, step = settings_of(self.optimizer), self.run.taken
        self.facts.checked("weights", step=step, says=COMPARED)
        self.facts.checked("numbers_read", step=step, says="none was read")

    def check_settings(self, what: str, changed: bool = True) -> None:
        """Raise if `what` is changed by hand in a run that has read numbers from private values."""
        if changed and self.reads.lines:
            line = next(iter(self.reads.lines))
            raise TrainingMisuse(
                f"{what} must not change by hand in a run that reads numbers from private values; got a change, and a "
                f"number read at {line}. Use a schedule of torch.optim."
            )

    def _tell_read(self, line: str) -> None:
        says = f'{line} reads a number from private values: remove it, or write "with private.unreleased(name)"'
        self.facts.missing("numbers_read", says)

    def _weights_now(self) -> str:
        name = self.guard.moved()
        return elsewhere(name) if name else ""

    def _known(self, value: Tensor) -> Hashable | None:
        """Names a tensor from outside of the batch: declared, a parameter, counting, zeros or ones; None for others."""
        declared, version = self._public.get(id(value), (None, 0))
        if declared is value:
            return (id(value), version) if version == value._version else None
        if isinstance(value, nn.Parameter):
            return "parameter"
        return plain_form(value) or None

    @contextmanager
    def marking(self) -> Iterator[None]:
        """A failed check refuses the step under way; what earlier steps released is claimed from now on."""
        try:
            yield
        except TacitError:
            if self.run.taken:
                self.ledger.mark_unsafe(_FAILED, Standing.CLAIMED)
            raise


_FOREIGN = (
    'an input of the model is not made from the batch: use transform=, or declare it by private.public(tensor, "name")'
)


def _yielded(value: Tensor, trace: Trace) -> bool:
    """Whether `value` equals a row tensor that the loader yielded, as after a way through another library."""
    return any(
        value.shape == root.shape and torch.equal(value.detach().to(root.device, root.dtype), root)
        for root in trace.roots.values()
    )
