"""The model probe: the record types of a model and its loss on a few rows, and what may refute them.

Two passes run on one copy, each operation typed (`verification/`). The first says what mixes the records, what nobody
knows, and which state follows them; in the second, whatever the first computed from its records is a value that was
kept, wherever it lies: in attributes, closures, globals or caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from tacit.errors import MixesRecords, NoRecordRule, UnsupportedModel
from tacit.gradients.inputs import Inputs, Loss, both_rows, form_of, losses_of, map_tensors, outputs_of, rows, tensors
from tacit.gradients.module_state import (
    State,
    changed_names,
    copied_state,
    copy_to_run,
    draws_of_python,
    module_state,
    restored_generators,
)
from tacit.gradients.neighbours import ProbedBatch, check_neighbours, kept_state
from tacit.gradients.rounding import precise_products
from tacit.verification.calls import tensors_in
from tacit.verification.programs import Step, difference, numbers_in
from tacit.verification.reads import tensors_alive
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import Records
from tacit.verification.recordwise import check_gradients, check_outputs, observed

_ROWS = 64  # memory of a probe is that of a second batch; mixing shows on few rows as on many
_TYPED = 6  # rows whose operations are typed: their types do not depend on how many there are
_LEAST = 4  # rows below which rows are repeated, so that half of them can be replaced
TYPED = "record types of every operation, forward and backward"
"""How a fact is known that the types of this page decide."""
_Given = tuple[Inputs, Tensor | None, Loss | None]
Doubts = tuple[tuple[str, str], ...]
"""(fact, sentence) for each fact that the record types leave open."""


@dataclass(frozen=True)
class RecordCheck:
    """What the record types say of a model.

    Attributes:
        operations: how many operations on records' values were typed; 0 where the pass could not be typed.
        doubts: facts that they leave open.
        branches: whether Python read a draw, so that the next pass may run other operations.
        public_reads: whether it read a public value, or a shape followed one.
        changed: names of state that the passes leave behind, which follows no record.
        counts: whether a number is among it.
        repeats: whether a second pass ran the same operations with the same numbers.
        numbers: (number in words and its place, number) of all numbers that are no sizes.
    """

    operations: int = 0
    doubts: Doubts = ()
    branches: bool = False
    public_reads: bool = True
    changed: frozenset[str] = frozenset()
    counts: bool = False
    repeats: bool = False
    numbers: tuple[tuple[tuple[str, int, str], float], ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether every pass is one program: no number is read, no draw decides, nothing is kept or unknown."""
        return self.repeats and not (self.doubts or self.branches or self.changed)


@dataclass(frozen=True)
class Known:
    """Tensors whose origin is known without an observed operation.

    Attributes:
        public: declared by the user.
        cleared: names of a module's state that its own passes make, alike for any records.
        alive: whether a tensor was there before the first pass; what came later the passes made.
    """

    public: tuple[Tensor, ...] = ()
    cleared: frozenset[str] = frozenset()
    alive: Callable[[Tensor], bool] | None = None


@dataclass
class ModelProbe:
    """Repeated probes of one module.

    Attributes:
        model: in train mode.
        cleared: names of state that changed in a probe, and follows no record.
        times: probes that reached a verdict.
        counts: whether a forward pass changes a number that the model keeps.
        typed: what the record types of the last probe say.
        public: tensors that were declared public.
    """

    model: nn.Module
    cleared: set[str] = field(default_factory=set)
    times: int = 0
    counts: bool = False
    typed: RecordCheck = field(default_factory=RecordCheck)
    public: list[Tensor] = field(default_factory=list)
    _alive: Callable[[Tensor], bool] | None = None
    _found: dict[object, Tensor | None] = field(default_factory=dict)
    _programs: dict[object, list[Step]] = field(default_factory=dict)
    _refuted: tuple[Loss | None, bool, tuple[object, ...]] | None = None

    @property
    def known(self) -> Known:
        """The tensors of known origin."""
        return Known(tuple(self.public), frozenset(self.cleared), self._alive)

    @property
    def unsteady(self) -> bool:
        """Whether the next forward pass may be another program: it reads draws, or counts in attributes."""
        return self.typed.branches or self.counts

    def __call__(
        self, inputs: Inputs, targets: Tensor | None = None, loss: Loss | None = None, *, thorough: bool = False
    ) -> bool:
        """Type the model on a few rows of `inputs`; False where no row could be tested (none is finite).

        Args:
            inputs: the batch as the model takes it, rows along the first axis of every tensor.
            targets: of `loss`.
            loss: `loss(outputs, targets)`, typed together with the model if given; one value per row.
            thorough: try to refute the types too, by half of at most 64 rows replaced.

        Raises:
            UnsupportedModel: a row's output or gradient follows other rows, or something is kept that follows the rows.
        """
        chosen = _finite_rows(inputs if targets is None else (*tensors(inputs), targets))
        if not len(chosen):
            return False
        self._programs.clear()
        batch = ProbedBatch(*both_rows(inputs, targets, chosen), loss)
        if self._alive is None:
            self._alive = tensors_alive()
        with restored_generators() as start, torch.enable_grad(), precise_products():
            few = batch.select(torch.arange(min(batch.size, _TYPED)))
            self.typed = check_records(self.model, few.inputs, few.targets, few.loss, self.known)
            self.cleared |= self.typed.changed
            self.counts = self.counts or self.typed.counts
            if self.typed.counts and (name := self._counts_records(few.inputs)):
                doubt = f"{name!r} counts records, whose number is private: count steps, or nothing"
                self.typed = replace(self.typed, doubts=(*self.typed.doubts, ("model_state", doubt)))
            if thorough:
                open_rows = any(fact == "model_rows" for fact, _ in self.typed.doubts)
                alike = check_neighbours(self.model, batch, start, thorough=open_rows)
                # A sampled check makes nothing public; what could not be typed is `conditional` whatever it finds.
                self.cleared |= alike if not self.typed.operations else set()
                self._refuted = (loss, self.model.training, _form(inputs, targets))
        self.times += 1
        return True

    def follows_size(
        self, inputs: Inputs, targets: Tensor | None, loss: Loss | None, sizes: Iterable[int], *, whole: bool
    ) -> str:
        """The line at which passes over `sizes` records are other programs than one over a few; empty if none is.

        Args:
            inputs: of a batch, whose rows are repeated.
            targets: of `loss`.
            loss: `loss(outputs, targets)`, typed with the model if given.
            sizes: numbers of records.
            whole: whether the model's code may read sizes; otherwise the loss alone is typed where that is possible.

        Raises:
            UnsupportedModel: at one of the sizes a row's output or gradient follows other rows.
        """
        chosen = _finite_rows(inputs if targets is None else (*tensors(inputs), targets))[:_TYPED]
        if not len(chosen):
            return ""
        given, labels = both_rows(inputs, targets, chosen)
        with restored_generators() as start, precise_products(), ExitStack() as stack:
            outputs = None if whole or loss is None else self._outputs(given)
            if outputs is None:
                model = stack.enter_context(copy_to_run(self.model, by_record=True))
            else:
                model, given = nn.Identity(), outputs
            few = min(len(chosen), len(tensors(given)[0]))
            # A class of the user's that says how gradients are computed may read sizes too.
            backward = not all(each.__module__.startswith(("torch.", "tacit.")) for each in Function.__subclasses__())

            def program(size: int) -> list[Step]:
                start()
                repeated = both_rows(given, labels, torch.arange(size) % few)
                _, mode = _typed(model, (*repeated, loss), self.known, backward=backward)
                return [] if mode is None else mode.program

            start()
            # What a first pass makes and keeps is no part of the program.
            _run(model, *both_rows(given, labels, torch.arange(few)), loss, backward=backward)
            form = whole, few, form_of(given)
            if form not in self._programs:
                self._programs[form] = program(few)
            first = self._programs[form]
            found = (difference(first, program(size), (few, size)) for size in sizes if size > 1 and size != few)
            return next((line for line in found if line is not None), "")

    def _counts_records(self, few: Inputs) -> str:
        """Name of a number that the model keeps and that changes otherwise in a pass over one record more."""
        changes = list[State]()
        count = len(tensors(few)[0])
        for size in (count, count + 1):
            with copy_to_run(self.model) as copied:
                outputs_of(copied, rows(few, torch.arange(size) % count))
                changes.append(copied_state(copied))
        return next((name for name in changed_names(*changes) if isinstance(changes[0].get(name), int | float)), "")

    def _outputs(self, few: Inputs) -> Tensor | None:
        """The outputs for a few rows, once for each form of records; None where they are no tensor."""
        form = form_of(few)
        if form not in self._found:
            with copy_to_run(self.model) as copied, torch.no_grad():
                outputs = outputs_of(copied, few)
            self._found = {form: outputs if isinstance(outputs, Tensor) else None}
        return self._found[form]

    def covers(self, inputs: Inputs, targets: Tensor, loss: Loss) -> bool:
        """Whether the last thorough probe was of such records, with this very loss."""
        known = self._refuted
        return known is not None and known[0] is loss and known[1:] == (self.model.training, _form(inputs, targets))

    def apart(self) -> ModelProbe:
        """Another probe of the model, whose findings this one does not take on."""
        return ModelProbe(self.model, _alive=self._alive)

    def observe(self, inputs: Inputs, targets: Tensor | None = None, loss: Loss | None = None) -> None:
        """Type the pass over a whole batch that is about to run, with the generators as they are now.

        Raises:
            MixesRecords: an operation of this pass mixes the records.
        """
        count = len(tensors(inputs)[0])
        if not count:
            return
        given, labels = both_rows(inputs, targets, torch.arange(max(count, 2)) % count)
        with restored_generators():
            found = check_records(self.model, given, labels, loss, self.known, again=False)
            self.typed = replace(found, doubts=tuple(dict.fromkeys((*self.typed.doubts, *found.doubts))))


def _form(inputs: Inputs, targets: Tensor | None) -> tuple[object, ...]:
    """Forms of one record and its target."""
    return (*form_of(inputs), *(() if targets is None else (targets.shape[1:], targets.dtype)))


def _finite_rows(inputs: Inputs) -> Tensor:
    """Places of at most `_ROWS` rows whose values are all finite; few rows are repeated."""
    given = tensors(inputs)
    finite = torch.ones(len(given[0]), dtype=torch.bool)
    for value in given:
        if value.is_floating_point() and len(value):
            finite &= torch.isfinite(value.detach()).reshape(len(value), -1).all(1).cpu()
    places = finite.nonzero().flatten()[:_ROWS]
    return places if len(places) >= _LEAST or not len(places) else places.repeat(-(-_LEAST // len(places)))


def _run(model: nn.Module, inputs: Inputs, targets: Tensor | None, loss: Loss | None, *, backward: bool) -> None:
    """Run a pass, untyped; what it raises is for a typed one to say."""
    with suppress(Exception), torch.enable_grad():
        outputs: Any = outputs_of(model, map_tensors(torch.clone, inputs))
        if loss is not None and targets is not None:
            outputs = losses_of(loss, outputs, targets)
        ends = [each for each in tensors_in(outputs) if each.requires_grad]
        if backward and ends:
            torch.autograd.grad([each.sum() for each in ends], [*model.parameters()], allow_unused=True)


def check_records(
    model: nn.Module,
    inputs: Inputs,
    targets: Tensor | None,
    loss: Loss | None,
    known: Known | None = None,
    *,
    again: bool = True,
) -> RecordCheck:
    """Type the forward pass of a copy of `model`, of `loss` if it is given, and the backward pass.

    Args:
        model: in train mode.
        inputs: at least two rows.
        targets: of the loss.
        loss: one value per record.
        known: which tensors are no unknown ones.
        again: whether a second pass looks for what the first one kept.

    Raises:
        MixesRecords: an operation mixes the records, or keeps them.
        UnsupportedModel: state of the model follows the records.
    """
    known = Known() if known is None else known
    with copy_to_run(model, by_record=True) as copied, restored_generators() as start:
        before = copied_state(copied)
        found, mode = _typed(copied, (inputs, targets, loss), known)
        if mode is not None:
            found = _with_state(found, mode, before, module_state(copied))
        if mode is not None and again:
            start()
            known = replace(known, cleared=known.cleared | found.changed)
            later, second = _typed(copied, (inputs, targets, loss), known, mode)
            _check_reads(mode, second)
            doubts = tuple(dict.fromkeys((*found.doubts, *later.doubts)))
            repeats = second is not None and second.program == mode.program
            found = replace(found, doubts=doubts, repeats=repeats)
    return found


def _typed(
    model: nn.Module, given: _Given, known: Known, earlier: RecordMode | None = None, *, backward: bool = True
) -> tuple[RecordCheck, RecordMode | None]:
    """One typed pass, and the mode that typed it; None where it was not typed to its end."""
    inputs, targets, loss = given
    draws, of_model = draws_of_python(), frozenset[str]()
    try:
        fresh = map_tensors(lambda value: value.detach().clone(), inputs)
        labels = None if targets is None else targets.detach().clone()
        mode = _mode(model, tensors(fresh) if labels is None else [*tensors(fresh), labels], known, earlier)
        with observed(mode), torch.enable_grad():
            outputs: Any = outputs_of(model, fresh)
            # Lines at which the model met unknown tensors; what follows are those of the loss.
            of_model = frozenset(mode.foreign)
            if loss is not None and labels is not None:
                outputs = losses_of(loss, outputs, labels)
            # Without the loss, a mean among the outputs may be there as long as no loss uses it.
            found = check_outputs(mode, outputs, unused=loss is None)
            if backward:
                check_gradients(mode, found)
    except NoRecordRule as error:
        return RecordCheck(0, (("model_rows", f"{error} Or declare it: facts.declare('model_rows', 'why')"),)), None
    except MixesRecords:
        raise
    except Exception as error:
        # What runs in one mode only, or under a compiler of its own, fails here in many ways.
        says = f"the operations of a pass could not be typed ({type(error).__name__}); or declare it:"
        return RecordCheck(0, (("model_rows", f"{says} facts.declare('model_rows', 'why')"),)), None
    doubts, numbers = tuple(_doubts(mode, of_model)), numbers_in(mode.program)
    branches = mode.branches or draws != draws_of_python()
    return RecordCheck(len(mode.operations), doubts, branches, mode.public_reads, numbers=numbers), mode


def _mode(model: nn.Module, records: list[Tensor], known: Known, earlier: RecordMode | None) -> RecordMode:
    """A mode that knows the origins of records and of public tensors."""
    mode = RecordMode(len(records[0]), earlier=earlier)
    for value in known.public:
        mode.public(value)
    mode.alive = known.alive
    for name, value in module_state(model).items():
        if isinstance(value, Tensor) and name in known.cleared:
            mode.public(value)
        elif isinstance(value, Tensor):
            mode.attributes.add(value.untyped_storage()._cdata)
    for value in records:
        mode.records(value, Records(0))
    return mode


def _with_state(found: RecordCheck, mode: RecordMode, before: State, after: State) -> RecordCheck:
    """The names of state that the pass changed; raises for a tensor that follows the records."""
    changed = changed_names(before, after)
    for name in changed:
        value = after.get(name)
        if isinstance(value, Tensor) and mode.is_of_records(value):
            raise UnsupportedModel(kept_state(name, value))
    counts = any(isinstance(after.get(name), int | float) for name in changed if not name.endswith("__len__"))
    return replace(found, changed=frozenset(changed), counts=counts)


def _check_reads(first: RecordMode, second: RecordMode | None) -> None:
    """A number that the first pass alone reads was kept, and serves the others."""
    lines = [] if second is None else sorted(set(first.reads) - set(second.reads))
    if lines:
        raise UnsupportedModel(
            f"the model or its loss reads a number from records in its first call alone ({lines[0]}) and so keeps what "
            "follows from it, which would carry private data from one step into the next. Compute it on public data "
            "before training."
        )


def _doubts(mode: RecordMode, of_model: frozenset[str]) -> Iterable[tuple[str, str]]:
    for line in mode.reads:
        yield "numbers_read", f"{line} reads a number of the records: compute with tensors of the records alone"
    for line in mode.foreign:
        fact = "model_rows" if line in of_model else "loss_rows"
        yield fact, f"{line} uses a tensor of unknown origin: register it as a buffer, or declare it public"
