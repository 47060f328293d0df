"""The state guard: weights change by releases alone, and nothing else that the forward pass reads changes unnoticed.

After each release the trainable weights are copied. Before a forward pass and before a step they must equal the copy
bit by bit, the trainable set must be the same, and no parameter may hold a gradient: training through the wrapped
module, writes through `.data` and gradients of a warm-up are found by that. Frozen weights and buffers are compared by
value too. Attributes are compared by identity and size, which costs a look-up each; one that changed is named, so that
the model probe can tell whether it follows the records.

`ProgramGuard` asks the model probe for the types of a pass wherever it may be another program than those before, and
`RunChecks` looks at the optimizer, whether the loop is that of `fit` or the user's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit.accounting import Facts, Ledger
from tacit.errors import TrainingMisuse
from tacit.gradients.inputs import Inputs, Loss, form_of, tensors
from tacit.gradients.model_probe import ModelProbe
from tacit.gradients.module_state import program_of, same
from tacit.training.captured import ReachedState, is_of_user, methods_of, undecided
from tacit.training.numbers_by_size import BY_SIZE, CHANGES, Followed, FollowedSettings
from tacit.training.optimizers import state_of, update_doubt
from tacit.training.sharded import WholeModel, local
from tacit.training.trace import TracedTensor
from tacit.verification.records import MEND, repeated_records

COMPARED = "compared bit by bit with the last release"
_FIXED = frozenset(("_parameters", "_buffers", "_modules", "training"))


@dataclass
class _Part:
    """One module: its dictionary, and what that held."""

    path: str
    own: dict[str, Any]
    attributes: dict[str, tuple[Any, Any]]

    @classmethod
    def of(cls, path: str, module: nn.Module) -> _Part:
        own = vars(module)
        return cls(path, own, {name: (value, _form(value)) for name, value in own.items() if name not in _FIXED})

    def changed(self) -> Iterator[str]:
        """Names of the attributes that are others now."""
        for name, (value, form) in self.attributes.items():
            now = self.own.get(name)
            if now is not value or (form is not None and _form(now) != form):
                yield self.name(name)
        yield from (self.name(name) for name in self.own.keys() - self.attributes.keys() - _FIXED)

    def name(self, attribute: str) -> str:
        return f"{self.path}.{attribute}" if self.path else attribute


class _Held:
    """What the values of many dictionaries are, in order.

    Example:
        >>> table = {"a": 1}
        >>> held = _Held([table])
        >>> held.same(), table.update(a=2), held.same()
        (True, None, False)
    """

    def __init__(self, tables: list[dict[str, Any]]):
        self._tables = tables
        self._values = list(self._now())  # Kept themselves: a new one may have the address of one that is gone.
        self._sizes = list(map(len, tables))

    def same(self) -> bool:
        """Whether every dictionary holds what it held."""
        return self._sizes == list(map(len, self._tables)) and all(map(operator.is_, self._values, self._now()))

    def _now(self) -> Iterator[Any]:
        return chain.from_iterable(map(dict.values, self._tables))


class StateGuard:
    """Compares the state of a module with that after its last release.

    Args:
        model: the wrapped module.
        whole: the model and its shards, where its parameters are sharded; those of this rank are compared.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> guard = StateGuard(layer)
        >>> guard.check_weights()
        >>> _ = layer.weight.data.add_(1.0)
        >>> guard.moved()
        'weight'
    """

    def __init__(self, model: nn.Module, whole: WholeModel | None = None):
        self.model, self._whole = model, whole
        self.released()

    def released(self) -> None:
        """Take the present state as that of the last release."""
        if self._whole is not None:
            if name := self._whole.moved():
                raise TrainingMisuse(elsewhere(name) + " Change the sharded model itself.")
            self._whole.free()
        named = dict((self.model if self._whole is None else self._whole.sharded).named_parameters())
        self._weights = [(name, value, local(value).clone(), value.requires_grad) for name, value in named.items()]
        moving = [(kept, value) for _, value, kept, trainable in self._weights if trainable]
        self._moving: tuple[list[Tensor], list[Tensor]] = [kept for kept, _ in moving], [value for _, value in moving]
        self.forwarded()

    def forwarded(self) -> None:
        """Take the present buffers and attributes as those of the last forward pass."""
        modules = dict(self.model.named_modules())
        self._parts = [_Part.of(path, module) for path, module in modules.items()]
        self._structure = _Held([table for each in modules.values() for table in (each._parameters, each._modules)])
        self._attributes = _Held([part.own for part in self._parts])
        forms = [each for part in self._parts for each in part.attributes.values() if each[1] is not None]
        self._empty = [value for value, form in forms if form == 0]
        self._filled = [(value, form) for value, form in forms if form != 0]
        self._buffers = [
            (name, module._buffers, key, value, None if value is None else value.detach().clone())
            for path, module in modules.items()
            for key, value in module._buffers.items()
            for name in (f"{path}.{key}" if path else key,)
        ]

    def stepped(self) -> None:
        """Take the present trainable weights, which a release has just changed, as those of the last release."""
        kept, moving = self._moving
        with torch.no_grad():
            now = moving if self._whole is None else list(map(local, moving))
            torch._foreach_copy_(kept, now)  # pyright: ignore[reportPrivateImportUsage]

    def moved(self) -> str:
        """Name of a weight that is not as the last release left it; empty if there is none."""
        for name, value, kept, _ in self._weights:
            now = local(value)
            if not torch.equal(now, kept) and not same(now, kept):
                return name
        return "" if self._whole is None else self._whole.moved()

    def frozen(self) -> bool:
        """Whether a parameter that was trainable is so no longer."""
        return any(before and not value.requires_grad for _, value, _, before in self._weights)

    def check_weights(self) -> None:
        """Raise `TrainingMisuse` unless every weight and gradient is as the last release left it."""
        if not self._structure.same():
            raise TrainingMisuse(
                "model must keep its parameters and layers after make_private; got others. Add or replace them before."
            )
        for name, value, _, before in self._weights:
            if value.requires_grad and not before:
                raise TrainingMisuse(
                    f"parameter {name!r} must keep requires_grad as it was in make_private; got True. "
                    "Unfreeze parameters before make_private."
                )
            if value.grad is not None and bool(local(value.grad).any()):
                raise TrainingMisuse(
                    f"parameter {name!r} must hold no gradient before a private step; got one of another backward "
                    "pass. Train through private.model alone, or call zero_grad() on the original model."
                )
        if name := self.moved():
            raise TrainingMisuse(elsewhere(name))

    def changed(self) -> list[str]:
        """Buffers and attributes that are not what they were after the last forward pass, by dotted name."""
        names = [
            name
            for name, owner, key, value, kept in self._buffers
            if owner.get(key) is not value or (value is not None and kept is not None and not _equal(value, kept))
        ]
        same_forms = not any(self._empty) and all(_form(value) == form for value, form in self._filled)
        if not (self._attributes.same() and same_forms):
            names += [name for part in self._parts for name in part.changed()]
        return names

    def is_buffer(self, name: str) -> bool:
        """Whether `name` is a buffer of the model."""
        return any(name == buffer for buffer, *_ in self._buffers)

    def holds_other_values(self, name: str) -> bool:
        """Whether `name` is a buffer that was written into; nothing else of it changed."""
        return any(name == own and owner.get(key) is value for own, owner, key, value, _ in self._buffers)

    def holds_rows(self, name: str) -> bool:
        """Whether the attribute `name` is a value computed from a batch."""
        path, _, attribute = name.rpartition(".")
        return isinstance(getattr(self.model.get_submodule(path), attribute, None), TracedTensor)


_TYPED_PASSES = 3  # at the start of a run: its records may take different ways through one program
_FORMS = 1000  # remembered shapes of a record
_KNOWN = ("torch.", "tacit.")  # code that reads a number of records for sizes alone


class ProgramGuard:
    """Has the operations of a model typed: in its first passes, and wherever another program may run.

    That is where modes, classes, hooks or attributes of modules changed, where records have another shape, and, from
    the first change on, where a global or closure did that the model's code, the loss or another function reads. Draws
    that decide, counters, clocks and iterators may change it at every pass: then every pass is typed as it runs.

    Where code of the user's runs, the pass must be one program whether a record is more or less in the batch.

    Args:
        probe: of the model.
        guard: of its state.
        functions: what else runs in a pass.
        sizes: with how many records batches of so many go through the model; as a whole by default.

    Attributes:
        steady: whether the last pass was the program of the one before.
        changed: numbers of the program that changed for the first time in the last pass, in words.
    """

    steady = False

    def __init__(
        self, probe: ModelProbe, guard: StateGuard, *functions: object, sizes: Callable[[Iterable[int]], set[int]] = set
    ):
        self._probe, self._guard, self._program = probe, guard, program_of(probe.model)
        kinds = {type(each) for each in probe.model.modules() if is_of_user(type(each))}
        methods = (each for kind in kinds for each in methods_of(kind))
        self._reached = ReachedState((*functions, *kinds, *methods))
        self._unsteady = undecided(probe.model, functions)
        self._forms = set[object]()
        self._own = bool(kinds)
        self._sizes, self._seen, self._followed = sizes, set[int](), Followed()
        self.changed: list[str] = []
        foreign = (each for each in functions if each is not None)
        self._alike = not kinds and all(str(getattr(each, "__module__", "")).startswith(_KNOWN) for each in foreign)

    def before_pass(
        self, inputs: Inputs, targets: Tensor | None = None, loss: Loss | None = None, *, changed: list[str]
    ) -> bool:
        """Type the pass that is about to run where that is due; False where none of its rows could be typed.

        Args:
            inputs: of the pass.
            targets: of `loss`.
            loss: typed with the model if given.
            changed: names of state that changed since the last pass.

        Raises:
            UnsupportedModel: a row follows others, or something is kept that follows the rows.
        """
        program = program_of(self._guard.model)
        anew = program != self._program or any(map(self._may_change_the_program, changed))
        form = form_of(inputs)
        due = anew or self._probe.times < _TYPED_PASSES or form not in self._forms
        self._unsteady = self._unsteady or self._reached.changed()
        self.steady = not (anew or self._unsteady or self._probe.unsteady)
        self._program = program
        typed = not due or self._probe(inputs, targets, loss, thorough=anew or not self._probe.times)
        self.changed = []
        if self._unsteady or self._probe.unsteady:
            self._probe.observe(inputs, targets, loss)
            number = self._followed.follow(self._probe.typed.numbers, len(tensors(inputs)[0]))
            self.changed = self._followed.changed
            if number:
                self._doubt(number)
        elif typed and self._probe.typed.repeats and not self._alike:
            self._look_at_sizes(inputs, targets, loss)
        if typed and len(self._forms) < _FORMS:
            self._forms.add(form)
        if changed:
            self._guard.forwarded()
        return typed

    def _may_change_the_program(self, name: str) -> bool:
        """Whether the state `name`, which changed, may: values of a buffer do where a pass reads or indexes by them."""
        if name in self._probe.cleared:
            return False
        return self._probe.typed.public_reads or not self._guard.holds_other_values(name)

    def _look_at_sizes(self, inputs: Inputs, targets: Tensor | None, loss: Loss | None) -> None:
        """Compare the pass with those of batches of one record more, and of one less."""
        count = tensors(inputs)[0].shape[0]
        near = self._sizes((max(count - 1, 0), count, count + 1))
        if near <= self._seen:
            return
        line = self._probe.follows_size(inputs, targets, loss, near - self._seen, whole=self._own)
        self._seen |= near
        if line:
            self._doubt(line)
            self._alike = True  # One doubt is enough.

    def _doubt(self, what: str) -> None:
        typed = self._probe.typed
        self._probe.typed = replace(typed, doubts=(*typed.doubts, ("numbers_read", f"{what} {BY_SIZE}")))


class RunChecks:
    """What every loop is checked for from step to step, written into the facts of its ledger.

    Args:
        ledger: of the run, begun.
        optimizer: that steps on the releases.
        guard: state of the model.
    """

    def __init__(self, ledger: Ledger, optimizer: Optimizer, guard: StateGuard):
        self.ledger, self.optimizer, self.guard = ledger, optimizer, guard
        self._rates = FollowedSettings(optimizer)
        self._state: list[object] | None = None

    @property
    def facts(self) -> Facts:
        """The facts of the ledger."""
        return self.ledger.facts

    def stepped(self) -> None:
        """Take the weights after a step as those that a release left."""
        self.guard.stepped()
        self._state = state_of(self.optimizer)
        if says := update_doubt(self.optimizer):
            self.facts.missing("weights", says)

    def follow_optimizer(self, size: int, mend: str) -> None:
        """Check state and settings of the optimizer before the release of a batch.

        Args:
            size: of the batch, a number of records.
            mend: what to do instead of changing its state.
        """
        if self._state is not None and state_of(self.optimizer) != self._state:
            self.facts.missing("weights", f"the optimizer's state was changed between two steps: {mend}")
        self.note_numbers(self._rates.follow_settings(size), self._rates.changed)

    def note_numbers(self, what: str, changed: Iterable[str]) -> None:
        """Note `what` follows the sizes of batches, if anything does, and the numbers that changed between steps."""
        if what:
            self.facts.missing("numbers_read", f"{what} {BY_SIZE}")
        for each in changed:
            self.ledger.take_as_public(CHANGES.format(each))

    def note_repeats(self, records: object) -> None:
        """Note where `records` show that one unit has several of them."""
        if self.ledger.unit == "record" and (says := repeated_records(records)):
            self.facts.missing("unit", f"{says}: {MEND}")


def elsewhere(name: str) -> str:
    """The sentence for a weight or buffer that something else than a release has changed."""
    return (
        f"weights must change by private steps alone; got another change of {name!r}. For a change that uses no "
        'private data write: with private.postprocessing("what it does"): ... For weights of an earlier private run '
        "use private.resume(state, ledger)."
    )


def _equal(value: Tensor, kept: Tensor) -> bool:
    return value.shape == kept.shape and (torch.equal(value, kept) or same(value.detach(), kept))


def _form(value: Any) -> Any:
    """What changes when a value is written into in place; None where nothing can be."""
    if isinstance(value, Tensor):
        return value._version, value.data_ptr(), _digest(value)
    if isinstance(value, dict):
        return (len(value), *map(id, value.values())) if value else 0
    if isinstance(value, list | set):
        return (len(value), *map(id, value)) if value else 0
    return None


def _digest(value: Tensor) -> float:
    """The sum of a tensor's values: writes through `.data` leave version and address alone."""
    return float(value.detach().double().nan_to_num().sum()) if value.numel() else 0.0
