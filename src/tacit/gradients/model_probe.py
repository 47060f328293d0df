"""The model probe: half of the rows are replaced at fixed shape, and nothing of the others may change.

Two copies of the module run on one batch with the same generator states. In the second run a random half R of the rows
is replaced by other values. For the rows outside R the outputs, the parameter gradients of their outputs, and all state
that the module keeps afterwards must agree. Because both runs have the same shapes, layers that draw noise draw the
same noise, so a layer that adds noise is told from one that mixes rows. State that changes alike in both runs (call
counters, annealed temperatures, caches that depend on the weights alone) is allowed: refused is state that follows the
records, not state that changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel
from tacit.gradients.inputs import Inputs, Loss, losses_of, map_tensors, outputs_of, rows, tensors
from tacit.gradients.kept_values import KeptValues
from tacit.gradients.module_state import changed_names, copy_to_run, leaves, module_state
from tacit.gradients.probe_comparison import ProbeRun, check_repeats, check_rows, check_state
from tacit.gradients.record_check import Known, RecordCheck, check_records, tensors_alive
from tacit.gradients.rounding import precise_products

_ROWS = 64  # memory of a probe is that of a second batch; mixing shows on few rows as on many
_TYPED = 6  # rows whose operations are typed: their types do not depend on how many there are
_LEAST = 4  # rows below which rows are repeated, so that half of them can be replaced
_PAIRS = 4  # draws of a half and its complement before a verdict: mixing of a few records may lie outside of one
_CROWDED, _CROWDS = 32, 8  # rows of a batch half of which are one row, and how many such rows are tried
_SCALES = (32.0, -32.0, 1.0, -1.0)  # of rows that reach both sides of a threshold which all rows as they are lie on


@dataclass
class ModelProbe:
    """Repeated probes of one module.

    Attributes:
        model: in train mode.
        cleared: names of state that changed in a probe, alike in both runs.
        times: probes that reached a verdict.
        counts: whether a forward pass changes a number that the model keeps.
        typed: what the record types of the last thorough probe say.
        public: tensors that were declared public.
    """

    model: nn.Module
    cleared: set[str] = field(default_factory=set)
    times: int = 0
    counts: bool = False
    typed: RecordCheck = field(default_factory=RecordCheck)
    public: list[Tensor] = field(default_factory=list)
    _alive: frozenset[int] | None = None

    @property
    def known(self) -> Known:
        """The tensors of known origin."""
        return Known(tuple(self.public), frozenset(self.cleared), self._alive)

    def __call__(
        self, inputs: Inputs, targets: Tensor | None = None, loss: Loss | None = None, *, thorough: bool = False
    ) -> bool:
        """Probe the model on at most 64 rows of `inputs`; False where no row could be tested (none is finite).

        A random half of the rows is replaced, then the other half: a dependence on one row shows in one of the two.

        Args:
            inputs: the batch as the model takes it, rows along the first axis of every tensor.
            targets: of `loss`, replaced with the rows.
            loss: `loss(outputs, targets)`, probed together with the model if given; one value per row.
            thorough: run once more, to find state kept outside of the module.

        Raises:
            UnsupportedModel: a row's output or gradient follows other rows, or state of the module follows the rows;
                the layer or attribute is named, no value is.
        """
        chosen = _finite_rows(inputs if targets is None else (*tensors(inputs), targets))
        if not len(chosen):
            return False
        batch = _Batch(rows(inputs, chosen), None if targets is None else targets[chosen.to(targets.device)], loss)
        if self._alive is None:
            self._alive = tensors_alive()
        with restored_generators() as start, torch.enable_grad(), precise_products():
            try:
                self._replace(batch, start, thorough)
            except UnsupportedModel:
                # Where the types see it too, they name the operation and the line.
                if thorough:
                    start()
                    self._type(batch)
                raise
            if thorough:
                start()
                self._type(batch)
        self.times += 1
        return True

    @property
    def unsteady(self) -> bool:
        """Whether the next forward pass may be another program: it reads draws, or counts in attributes."""
        return self.typed.branches or self.counts

    def observe(self, inputs: Inputs, targets: Tensor | None = None, loss: Loss | None = None) -> None:
        """Type the pass over a whole batch that is about to run, with the generators as they are now.

        Raises:
            MixesRecords: an operation of this pass mixes the records.
        """
        count = len(tensors(inputs)[0])
        if not count:
            return
        places = torch.arange(max(count, 2)) % count
        labels = None if targets is None else targets[places.to(targets.device)]
        with restored_generators():
            self.typed = check_records(self.model, rows(inputs, places), labels, loss, self.known)

    def _type(self, batch: _Batch) -> None:
        """Type the operations of model and loss on a few rows."""
        few = batch.select(torch.arange(min(batch.size, _TYPED)))
        self.typed = check_records(self.model, few.inputs, few.targets, few.loss, self.known)

    def _replace(self, batch: _Batch, start: Callable[[], None], thorough: bool) -> None:
        """Replace halves of the rows and compare; `thorough` as in a call."""
        draw = torch.Generator().manual_seed(random.SystemRandom().getrandbits(60))
        for turn in range(_PAIRS if thorough else 1):
            half = _half(batch.size, draw)
            self._compare(batch, half, start, again=thorough and turn == 0)
            self._compare(batch, ~half, start, again=False)
        if thorough:
            crowd = batch.select(torch.randint(batch.size, (_CROWDED,), generator=draw))
            if not self._crowd_scaled(crowd, start):
                self._crowd(crowd, torch.randperm(_CROWDED, generator=draw)[:_CROWDS], start)

    def _compare(self, batch: _Batch, replaced: Tensor, start: Callable[[], None], *, again: bool) -> None:
        before = {name: _kept(value) for name, value in module_state(self.model).items()}
        kept = KeptValues() if again else None
        first = _run(self.model, batch, ~replaced, start, kept)
        if kept is not None:
            repeated = _run(self.model, batch, ~replaced, start, kept)
            kept.check()
            check_repeats(self.model, first, repeated)
        second = self._second(batch, first, replaced, start)
        check_state(first.state, second.state)
        check_rows(self.model, first, second, ~replaced, batch.loss is not None)
        changed = changed_names(before, first.state)
        self.cleared.update(changed)
        numbers = (name for name in changed if not name.endswith("__len__"))
        self.counts = self.counts or any(isinstance(first.state.get(name), int | float) for name in numbers)

    def _crowd(self, crowd: _Batch, fillers: Tensor, start: Callable[[], None]) -> bool:
        """One half of a batch as copies of one row, then of another: what has a capacity is full for some of them.

        The first half is replaced and then the last: a capacity may go to those who come first, or last.

        Args:
            crowd: a batch of `_CROWDED` rows.
            fillers: places of the rows that are copied.
            start: puts the generators back.

        Returns:
            Whether every run was finite, so that all of them were compared.
        """
        places, compared = torch.arange(_CROWDED), True
        for replaced in (places < _CROWDED // 2, places >= _CROWDED // 2):
            first: ProbeRun | None = None
            for filler in fillers:
                run = _run(self.model, crowd.select(torch.where(replaced, filler, places)), ~replaced, start)
                first = run if first is None else first
                if _finite(run) and _finite(first):
                    check_rows(self.model, first, run, ~replaced, crowd.loss is not None)
                else:
                    compared = False
        return compared

    def _crowd_scaled(self, crowd: _Batch, start: Callable[[], None]) -> bool:
        """The same with rows of both signs and two scales; False where there are none, or some are not taken.

        The copied rows are the first ones at the larger scale, each with both signs.
        """
        if not any(value.is_floating_point() for value in tensors(crowd.inputs)):
            return False
        pairs = torch.arange(_CROWDED) // 2  # every row twice in a row, so that it stands there with both signs
        scales = torch.tensor(_SCALES).repeat(_CROWDED // len(_SCALES))
        fillers = (scales.abs() > 1).nonzero().flatten()[:_CROWDS]
        try:
            return self._crowd(crowd.select(pairs).scaled(scales), fillers, start)
        except UnsupportedModel:
            raise
        except Exception:
            # Values outside of a range: models and losses refuse them in many ways.
            return False

    def _second(self, batch: _Batch, first: ProbeRun, replaced: Tensor, start: Callable[[], None]) -> ProbeRun:
        """The run with other rows: new values, or rows of the batch where the model or its loss takes no new ones."""
        try:
            second = _run(self.model, batch.changed(replaced, new=True), ~replaced, start)
            if _finite(second) or not _finite(first):
                return second
        except Exception:
            # Probabilities outside of [0, 1] and the like: models and losses refuse them in many ways.
            pass
        return _run(self.model, batch.changed(replaced, new=False), ~replaced, start)


@dataclass(frozen=True)
class _Batch:
    """The rows of a probe, and the loss that is probed with the model."""

    inputs: Inputs
    targets: Tensor | None
    loss: Loss | None

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(tensors(self.inputs)[0])

    def select(self, index: Tensor) -> _Batch:
        """The rows `index`, each as often as it is named."""
        targets = None if self.targets is None else self.targets[index.to(self.targets.device)]
        return _Batch(rows(self.inputs, index), targets, self.loss)

    def scaled(self, by: Tensor) -> _Batch:
        """Every row of the real inputs times its number in `by`, shape (rows,)."""
        return _Batch(map_tensors(lambda value: _times(value, by), self.inputs), self.targets, self.loss)

    def changed(self, replaced: Tensor, *, new: bool) -> _Batch:
        """The batch with other rows in place of the `replaced` ones; reals as 1 - 1.5 times another if `new`."""
        inputs = map_tensors(lambda value: with_others(value, replaced, new=new), self.inputs)
        targets = None if self.targets is None else with_others(self.targets, replaced, new=new)
        return _Batch(inputs, targets, self.loss)

    def values(self, module: nn.Module, kept: KeptValues | None) -> object:
        """What is compared row by row: the outputs of `module`, or its losses; `kept` watches the call."""
        fresh = map_tensors(lambda value: value.detach().clone(), self.inputs)
        targets = None if self.targets is None else self.targets.detach().clone()
        given = tensors(fresh) if targets is None else (*tensors(fresh), targets)
        with nullcontext() if kept is None else kept.watched(given):
            outputs = outputs_of(module, fresh)
            return outputs if self.loss is None or targets is None else losses_of(self.loss, outputs, targets)


def _finite(run: ProbeRun) -> bool:
    return all(bool(value.isfinite().all()) for value in (*run.outputs, *run.gradients.values()))


def _run(
    model: nn.Module, batch: _Batch, keep: Tensor, start: Callable[[], None], kept: KeptValues | None = None
) -> ProbeRun:
    module, restore = copy_to_run(model)
    layers: dict[str, tuple[Tensor | None, Tensor]] = {}
    try:
        hooks = [inner.register_forward_hook(_noting(layers, path)) for path, inner in module.named_modules() if path]
        start()
        outputs = _batched(batch.values(module, kept), len(keep))
        gradients = _gradients(module, outputs, keep)
        for hook in hooks:
            hook.remove()
        state = {name: _kept(value) for name, value in module_state(module).items()}
    finally:
        restore()
    return ProbeRun([value.detach() for value in outputs], layers, gradients, state)


def _gradients(module: nn.Module, outputs: list[Tensor], keep: Tensor) -> dict[str, Tensor]:
    """Gradients of sum_{i kept} <w_i, output_i> for fixed uneven w; found mixing may be in the backward pass alone."""
    # Its gradient is divided by counts over whatever runs together; the engine runs it record by record.
    by_frequency = {
        id(value)
        for inner in module.modules()
        if getattr(inner, "scale_grad_by_freq", False)
        for value in inner.parameters(recurse=False)
    }
    trainable = ((name, value) for name, value in module.named_parameters() if value.requires_grad)
    named = {name: value for name, value in trainable if id(value) not in by_frequency}
    readout = sum((_readout(value, keep) for value in outputs if value.requires_grad), start=torch.zeros(()))
    if not named or not isinstance(readout, Tensor) or not readout.requires_grad:
        return {}
    found = torch.autograd.grad(readout, list(named.values()), allow_unused=True)
    return {name: value.detach() for name, value in zip(named, found, strict=True) if value is not None}


def _readout(value: Tensor, keep: Tensor) -> Tensor:
    flat = value[keep.to(value.device)].flatten().float()
    places = torch.arange(1, flat.numel() + 1, device=flat.device, dtype=torch.float32)
    return (flat * (0.5 + (places * 0.6180339887).frac())).sum().cpu()


def _batched(output: object, size: int) -> list[Tensor]:
    """Real-valued tensors of the model's output that have a row for each row of the batch."""
    found = [value for _, value in leaves(output) if isinstance(value, Tensor)]
    return [value for value in found if value.is_floating_point() and value.dim() and len(value) == size]


def _noting(layers: dict[str, tuple[Tensor | None, Tensor]], path: str) -> Callable[[nn.Module, object, object], None]:
    def note(_: nn.Module, given: object, output: object) -> None:
        value, before = _first_real(output), _first_real(given)
        if value is not None:
            layers.setdefault(path, (None if before is None else before.detach().clone(), value.detach().clone()))

    return note


def _first_real(value: object) -> Tensor | None:
    found = (one for _, one in leaves(value) if isinstance(one, Tensor) and one.is_floating_point())
    return next(found, None)


def with_others(value: Tensor, replaced: Tensor, *, new: bool = True) -> Tensor:
    """`value` with other rows in place of the `replaced` ones.

    Args:
        value: shape (rows, ...).
        replaced: which rows, shape (rows,).
        new: reals become 1 - 1.5 times another row, which no row of the batch need be; else another row.

    Example:
        >>> with_others(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
        tensor([-2.,  2.])
    """
    where, other = replaced.to(value.device), torch.roll(value, 1, 0)
    if value.is_floating_point():
        other = 1.0 - 1.5 * other.nan_to_num(0.0, 0.0, 0.0) if new else other
    elif value.numel() and torch.equal(value, other):
        # Rows that are all equal would be replaced by themselves; values that occur stay within what a loss takes.
        known = value.unique()
        other = ~value if value.dtype == torch.bool else known[(torch.searchsorted(known, value) + 1) % len(known)]
    changed = value.clone()
    changed[where] = other[where].to(value.dtype)
    return changed


def _times(value: Tensor, by: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value
    return value * by.to(value).reshape(-1, *[1] * (value.dim() - 1))


def _finite_rows(inputs: Inputs) -> Tensor:
    """Places of at most `_ROWS` rows whose values are all finite; few rows are repeated."""
    given = tensors(inputs)
    finite = torch.ones(len(given[0]), dtype=torch.bool)
    for value in given:
        if value.is_floating_point() and len(value):
            finite &= torch.isfinite(value.detach()).reshape(len(value), -1).all(1).cpu()
    places = finite.nonzero().flatten()[:_ROWS]
    return places if len(places) >= _LEAST or not len(places) else places.repeat(-(-_LEAST // len(places)))


def _kept(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value.copy() if isinstance(value, np.ndarray) else value


def _half(count: int, draw: torch.Generator) -> Tensor:
    replaced = torch.zeros(count, dtype=torch.bool)
    replaced[torch.randperm(count, generator=draw)[: count // 2]] = True
    return replaced


@contextmanager
def restored_generators() -> Iterator[Callable[[], None]]:
    """A function that puts every global generator where it is now; they are put there at the end too."""
    cpu, cuda = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    draws, python = np.random.get_state(), random.getstate()  # noqa: NPY002 (models draw from it)

    def start() -> None:
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        np.random.set_state(draws)  # noqa: NPY002
        random.setstate(python)

    try:
        yield start
    finally:
        start()
