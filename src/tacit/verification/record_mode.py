"""The dispatch mode that types every operation of a program, forward and backward."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.errors import MixesRecords
from tacit.verification import reads, rules
from tacit.verification.calls import Call, depends, flat, refuse, tensors_in
from tacit.verification.draw_uses import DrawUses, Use
from tacit.verification.programs import Step
from tacit.verification.record_types import PUBLIC, Layout, OneRecord, Part, Public, Records, RecordType, WholeBatch
from tacit.verification.storages import Entry, Storages, is_written, mark_unwritten, mark_written, rest_is_constant

# Change sizes and strides of a tensor, and none of its values.
_RESHAPES = frozenset(("as_strided_", "t_", "transpose_", "squeeze_", "unsqueeze_", "detach_", "swapaxes_", "rename_"))
# Not called views, yet of the same memory.
_VIEWS = frozenset(("_unsafe_view", "_reshape_alias", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"))
_LITERALS = frozenset(("lift_fresh", "lift"))
_MEMORY = frozenset(("set_", "resize_", "resize_as_", "_resize_output_"))

_KEPT = "it uses a value that an earlier pass computed from its records, and that was kept"


class RecordMode(TorchDispatchMode):
    """Types every operation while it is entered.

    Args:
        count: records of the batch, >= 2.
        undone: whether a mean over the batch is multiplied by its size afterwards.
        earlier: the mode of an earlier pass over other records; what that one computed from them must not be met.

    Attributes:
        at: the user's line of an operation that runs again; empty where the user's code itself runs.
        storages: what every storage holds.
        operations: names of the operations on records' values, in order.
        program: every operation with its arguments and what came of it.
        reads: user's line -> how often a number was read there.
        foreign: lines at which a tensor of unknown origin met a record's value.
        answering: whether a read of a library is under way that is answered.
        of_array: whether `torch.tensor` is reading an array.
        branches: whether Python read a draw, so that another run may be another program.
        public_reads: whether it read a public value, or a shape followed one.
        alive: whether a tensor was there before the program's passes; None where that is not known.
        attributes: storages of a module's own tensors.
        refused: the first refusal, which code in between may have caught or wrapped.
    """

    def __init__(self, count: int, undone: bool = False, earlier: RecordMode | None = None):
        super().__init__()
        self._earlier = earlier
        self.count, self.undone, self.storages = count, undone, Storages(count)
        self.at = ""
        self.operations: list[str] = []
        self.program: list[Step] = []
        self.reads, self.foreign = Counter[str](), Counter[str]()
        self.answering = self.of_array = False
        self._own: set[int] = set()
        self._unknown: set[int] = set()
        self._draws = DrawUses()
        self.branches = self.public_reads = False
        self.refused: MixesRecords | None = None
        self.alive: Callable[[Tensor], bool] | None = None
        self.attributes: set[int] = set()
        self._lines: dict[int, str] = {}

    # Origins.

    def records(self, value: Tensor, kind: Records) -> None:
        """Let `value` hold the records of the batch."""
        self.storages.add(value, made=False)
        self.storages.assign(value, kind, "records", "")

    def public(self, value: Tensor) -> None:
        """Let `value` be public: a parameter, a buffer, or declared."""
        if self.storages.find(value) is None:
            before = None if self._earlier is None else self._earlier.storages.find(value)
            if before is not None and not before.is_public:
                self._refuse_kept()
            self.storages.add(value, made=False, trained=isinstance(value, nn.Parameter) and value.requires_grad)

    def kind(self, value: Tensor) -> RecordType:
        """The record type of `value`."""
        if self.storages.find(value) is None:
            self._meet(value)
        return self.storages.kind(value)

    def _meet(self, value: Tensor) -> None:
        if self._earlier is not None and self._earlier.storages.overlapping(value) is not None:
            self._refuse_kept()
        other = self.storages.overlapping(value)
        if other is not None:
            refuse("memory", self.line(), "a tensor shares memory with records under another name")
        self.public(value)
        made = self.alive is not None and not self.alive(value)
        if self._earlier is not None and self._earlier.storages.find(value) is not None:
            made = not self._earlier.is_unknown(value)
        made = made and value.untyped_storage()._cdata not in self.attributes
        if not isinstance(value, nn.Parameter) and not made and not reads.is_literal(value, self._own):
            self._unknown.add(value.untyped_storage()._cdata)

    def _refuse_kept(self) -> None:
        refuse("memory", self.line(), _KEPT, "Keep no values of records; compute on public data beforehand")

    def is_of_records(self, value: Tensor) -> bool:
        """Whether the memory of `value` holds what this program computed from its records."""
        entry = self.storages.find(value)
        return (entry is not None and not entry.is_public) or self.storages.overlapping(value) is not None

    # Lines and reads.

    def line(self) -> str:
        """The user's line that runs, or that made the operation whose gradient is computed."""
        if self._differentiates():
            return self._lines.get(torch._C._current_autograd_node()._sequence_nr(), "")
        return self.at or reads.user_line(sys._getframe(1))

    def _differentiates(self) -> bool:
        """Whether autograd runs, and no backward pass of the user's."""
        return torch._C._current_autograd_node() is not None and not reads.runs_user_code(sys._getframe(2))

    def _note_line(self) -> str:
        line = self.line()
        if torch._C._current_autograd_node() is None:
            self._lines.setdefault(torch.autograd._get_sequence_nr() - 1, line)  # type: ignore[attr-defined]
        return line

    def read(self, line: str) -> None:
        """Count a number that Python reads at `line`."""
        self.reads[line] += 1

    # Operations.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._dispatch(func, types, args, kwargs or {})
        except MixesRecords as error:
            self.refused = self.refused or error
            raise

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        call = Call(func, args, kwargs, self.kind, self._note_line(), self.count)
        call.undone = self.undone
        name = func._schema.name.partition("::")[2]
        answer = reads.answer_to(sys._getframe(2))
        # So many additions of the gradients of single records as there are records.
        adds = name == "add" and self._differentiates()
        step = Step.of(
            call, name in _LITERALS, adds or self.answering or (answer is not None and answer.value is False)
        )
        self.program.append(step)
        output = self._run(call, name, types, args, kwargs)
        values = [value for value in (*call.tensors, *tensors_in(output)) if self.storages.find(value) is not None]
        kinds = [self.storages.kind(value) for value in values]
        of_one = next((kind.index for kind in kinds if isinstance(kind, OneRecord)), None)
        step.ended(output, not any(map(depends, kinds)), self._draws.any(values), of_one)
        return output

    def _run(self, call: Call, name: str, types: Any, args: Any, kwargs: Any) -> Any:
        """Type a call and run it."""
        func, line = call.function, call.line
        other = any(issubclass(kind, Tensor) and kind not in (Tensor, nn.Parameter) for kind in types)
        if other or any(value.layout != torch.strided for value in call.tensors):
            call.unknown("tensors of this class are not followed", "Use plain tensors")
        if name in rules.FACTORIES:
            return self._made(func(*args, **kwargs), name, call)
        if name in _LITERALS:
            return self._lifted(func(*args, **kwargs))
        tensors = call.tensors
        self._own = {id(args), id(call.given), id(tensors)}
        self._check_written(call, name, tensors)
        kinds = [self.kind(value) for value in tensors]
        if name in _RESHAPES or name in _VIEWS or (func.is_view and not call.written()):
            return self._viewed(func, args, kwargs, call)
        if not any(map(depends, kinds)):
            return self._of_public(func, args, kwargs, call)
        if name in reads.CHECKS:
            return func(*args, **kwargs)
        if name in reads.ANSWERS:
            return self._answered(func, args, kwargs, tensors, line)
        self.operations.append(call.name)
        self.foreign.update([line] if self._any_in(self._unknown, tensors) else [])
        if name in _MEMORY:
            call.refuse("it changes what memory holds", "Make a new tensor")
        result = self._types(call, name, kinds)
        kinds = result if isinstance(result, list) else [result]
        written = list(zip(call.written(), (*kinds, *repeat(kinds[-1], len(tensors))), strict=False))
        self._check_writes(call, written)
        try:
            output = func(*args, **kwargs)
        except Exception:
            self.read(line)
            raise
        self._set(call, output, result, written)
        return output

    def _types(self, call: Call, name: str, kinds: list[RecordType]) -> list[RecordType] | RecordType:
        for kind in kinds:
            if isinstance(kind, Part):
                refuse(kind.operation, kind.line, "it takes some of the records, or shifts them", "Keep all of them")
        whole = next((kind for kind in kinds if isinstance(kind, WholeBatch)), None)
        ones = [kind for kind in kinds if isinstance(kind, OneRecord)]
        typed = any(isinstance(kind, Records) for kind in kinds)
        # Autograd adds up the gradients of one parameter, which records had one by one: that sum is of the whole batch.
        summed = name in ("add", "add_") and self._differentiates() and not typed
        if whole is not None:
            if typed or (ones and not summed):
                why = f"its result is of the whole batch, and meets records at {call.line}"
                refuse(whole.operation, whole.line, why, whole.mend)
            return whole
        if call.name == "aten.select_backward" and ones and not typed:
            sizes, dim = call["input_sizes"], call["dim"]
            if sizes[dim] == self.count and call["index"] % self.count == ones[0].index:
                # The gradient at the place of one record: nothing at those of the others.
                return Records(dim % len(sizes))
        if ones and not typed and all(one.index == ones[0].index for one in ones):
            return OneRecord(ones[0].index, self._history(call))
        base = name.rstrip("_") if not name.startswith("__") else name.strip("_")
        if name in reads.SIZED or (name == "index" and _masks(call)):
            self.read(call.line)
        rule = rules.RULES.get(base)
        if rule is None:
            if not call.name.startswith("aten."):
                call.unknown("operations of extensions have no record rule", "Declare model_rows, or use torch's")
            call.unknown(f"{call.name} has no record rule", "Add one, or declare model_rows")
        if ones and summed:
            return call.whole()
        if ones and base not in ("cat", "stack"):
            call.refuse("one record meets others")
        result = rule(call)
        unread = call.unread()
        if unread:
            call.unknown(f"its rule does not know the argument {unread[0]}", "Leave it out, or declare model_rows")
        if isinstance(result, Public):
            call.unknown("its rule does not know records in this argument", "Give public values there")
        if any(isinstance(each, Records) for each in flat(result)) and self._draws.meet(call):
            call.refuse("it meets draws of other records, or a number that all of them make", "Draw anew")
        return result

    def _history(self, call: Call) -> Any:
        """What was done to one record, without its number: all arguments, and which public values they are."""

        def told(value: object) -> object:
            if not isinstance(value, Tensor):
                return repr(value)
            kind = self.kind(value)
            if isinstance(kind, OneRecord):
                return kind.history
            drawn = isinstance(kind, Public) and len(kind.drawn) > 0
            return ("drawn", tuple(value.shape)) if drawn else self.storages.identity(value)

        return hash((str(call.function), tuple((name, *map(told, flat(value))) for name, value in call.given.items())))

    def _viewed(self, func: Any, args: Any, kwargs: Any, call: Call) -> Any:
        output = func(*args, **kwargs)
        for value in tensors_in(output):
            entry = self.storages.find(value)
            if entry is not None and entry.stride and isinstance(self.kind(value), Part):
                entry.parts.setdefault(Layout.of(value), (call.name, call.line))
        return output

    def _of_public(self, func: Any, args: Any, kwargs: Any, call: Call) -> Any:
        name, tensors = call.name.removeprefix("aten."), call.tensors
        of_draws = self._draws.any(tensors)
        self.branches = self.branches or (name in reads.ANSWERS and of_draws and not self.answering)
        drawn, uses = self._draws.through(call) if of_draws or name in rules.DRAWN else ([PUBLIC], frozenset())
        written = call.written()
        draws = [self.storages.draws_after(*each) for each in zip(written, repeat(drawn[0]), strict=False)]
        output = func(*args, **kwargs)
        is_read = name in reads.SIZED or (name == "index" and _masks(call)) or not tensors_in(output)
        self.public_reads = self.public_reads or (is_read and not self.answering)
        for value, found in zip(written, draws, strict=True):
            self._wrote(value, PUBLIC, call)
            entry = self._kept(value)
            entry.block, entry.draws = found if entry.is_public else (0, 0)
            self._spread(tensors, value, uses)
        for place, value in enumerate(tensors_in(output)):
            if self.storages.find(value) is None:
                self.storages.add(value)
                self.storages.assign(value, drawn[min(place, len(drawn) - 1)], call.name, call.line)
                self._spread(tensors, value, uses)
            if name in rules.DRAWN:
                self._draws.drew(value, uses)
        return output

    def _lifted(self, output: Tensor) -> Tensor:
        """What `torch.tensor` made: of numbers of the source, or of an array of unknown origin."""
        if self.storages.find(output) is None:
            self.storages.add(output)
            # What torch did not allocate is an array of another library.
            if self.of_array or not output.untyped_storage().resizable():
                self._unknown.add(output.untyped_storage()._cdata)
        return output

    def _made(self, output: Tensor, name: str, call: Call) -> Tensor:
        entry = self.storages.add(output)
        if name in rules.DRAWN:
            self._draws.drew(output)
        if name in rules.UNWRITTEN:
            mark_unwritten(entry, output)
        elif name in rules.DRAWS and call.given.get("generator") is None:
            entry.block, entry.draws = output.element_size(), output.numel()
        return output

    def _answered(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor], line: str) -> Any:
        answer = None if self.answering else reads.answer_to(sys._getframe(2))
        if answer is None and not self.answering:
            self.read(line)
        if answer is None or answer.value is None or not func._schema.name.endswith("_dense"):
            return func(*args, **kwargs)
        return type(tensors[0].item())(answer.value)

    # Memory.

    def _check_written(self, call: Call, name: str, tensors: list[Tensor]) -> None:
        if call.function.is_view or name == "copy_":
            return  # What a copy has of unwritten memory stays unwritten.
        filled = {id(value) for value in call.written()} if name in rules.FILLS else set()
        if name == "rrelu_with_noise_":
            filled.discard(id(call["self"]))  # It fills `noise` alone.
        for value in tensors:
            entry = self.storages.find(value)
            if entry is not None and id(value) not in filled and not is_written(entry, value):
                call.refuse("it reads memory that nothing was written into", "Write all of it first")

    def _kept(self, value: Tensor) -> Entry:
        entry = self.storages.find(value)
        return entry if entry is not None else self.storages.add(value, made=False)

    def _check_writes(self, call: Call, written: list[tuple[Tensor, RecordType]]) -> None:
        for value, kind in written:
            entry, before = self._kept(value), self.kind(value)
            if isinstance(before, Records | OneRecord):
                if entry.stride and isinstance(before, OneRecord):
                    call.refuse("it writes into the values of one record", "Stack the values of all records instead")
                if isinstance(before, Records) and kind != before:
                    call.refuse("it writes values of other records into a record's", "Make a new tensor")
                continue
            if not entry.made and depends(kind):
                call.refuse("it keeps what follows the records beyond this batch", "Keep no such state")
            if isinstance(kind, Records) and isinstance(before, Public):
                stride = Layout.of(value).stride_of(kind)
                if not stride or not rest_is_constant(entry, stride, self.count):
                    call.refuse("what it writes into differs from position to position", "Make a new tensor")
            if isinstance(kind, OneRecord) and value.numel() * value.element_size() != entry.storage.nbytes():
                call.refuse(
                    "it writes the value of one record into a tensor", "Stack the values of all records instead"
                )

    def _wrote(self, value: Tensor, kind: RecordType, call: Call) -> None:
        entry = self._kept(value)
        source = call.given.get("src") if call.name == "aten.copy_" else None
        mark_written(entry, value, source, None if source is None else self.storages.find(source))
        if not entry.is_public and isinstance(kind, Public):
            return
        self.storages.assign(value, kind, call.name, call.line)

    def _set(self, call: Call, output: Any, result: Any, written: list[tuple[Tensor, RecordType]]) -> None:
        for value, kind in written:
            self._wrote(value, kind, call)
        memory = {value.untyped_storage()._cdata for value, _ in written}
        for place, value in enumerate(flat(output)):
            if not isinstance(value, Tensor):
                continue
            kind = result[place] if isinstance(result, list) else result
            if value.untyped_storage()._cdata in memory:
                continue
            if self.storages.find(value) is not None:
                if self.kind(value) != kind and value.numel():
                    call.refuse("its result is a view in another order than by records", "Copy it: .contiguous()")
                continue
            self.storages.add(value)
            self.storages.assign(value, kind, call.name, call.line)

    # Values of unknown origin.

    def _spread(self, given: list[Tensor], value: Tensor, uses: frozenset[Use]) -> None:
        if self._any_in(self._unknown, given):
            self._unknown.add(value.untyped_storage()._cdata)
        if uses:
            self._draws.follow(value, uses)

    def is_unknown(self, value: Tensor) -> bool:
        """Whether nobody knows where a public value comes from."""
        self.kind(value)
        return self._any_in(self._unknown, [value])

    def _any_in(self, memory: set[int], given: list[Tensor]) -> bool:
        return any(value.untyped_storage()._cdata in memory for value in given)


def _masks(call: Call) -> bool:
    return any(value.dtype in (torch.bool, torch.uint8) for value in tensors_in(call.given.get("indices")))
