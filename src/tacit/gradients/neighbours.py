"""Neighbouring batches: half of the records are replaced at fixed shape, and nothing of the others may change.

Two copies of the module run on one batch with the same generator states. In the second run some rows are replaced by
other values. For the rows that were kept, the outputs, the parameter gradients of their outputs, and all state that the
module keeps afterwards must agree. Because both runs have the same shapes, layers that draw noise draw the same noise.
State that changes alike in both runs (call counters, caches that depend on the weights alone) is allowed.

A difference refutes that the module treats records apart; that none was found shows nothing, which the record types of
the operations do.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tacit import check
from tacit.errors import UnsupportedModel
from tacit.gradients.inputs import Inputs, Loss, both_rows, losses_of, map_tensors, outputs_of, rows, tensors
from tacit.gradients.module_state import changed_names, copied_state, copy_to_run, leaves, restored_generators

_OUTPUTS = 1e-5  # rounding of one row between two runs of equal shape, relative to the largest value
_GRADIENTS = 1e-4  # that of a sum over rows
_HALF = 5e-2  # both, in models that compute in half precision
_LEAST = 4  # rows below which rows are repeated, so that half of them can be replaced
_MEND = "Compute each row from its own record and public values alone, e.g. normalise by nn.GroupNorm."
_PAIRS = 4  # draws of a half and its complement before a verdict: mixing of a few records may lie outside of one


@dataclass(frozen=True)
class Leak:
    """One way in which a record affects what the model does with others of its batch.

    Attributes:
        path: of the first layer where it shows; empty for the model itself.
        layer: its type.
        what: "outputs", "losses", "gradients" or "state" (what the forward pass writes into the module).
        change: largest change relative to the largest value.

    Example:
        >>> print(Leak("1", "Centred", "outputs", 0.25))
        layer '1' (Centred) mixes the examples of a batch: outputs of one change by 25.0% when another changes.
    """

    path: str
    layer: str
    what: str
    change: float

    def __str__(self) -> str:
        if self.what == "state":
            return f"{self.where} stores something that depends on the examples it has seen."
        how = f"{self.what} of one change by {self.change:.1%} when another changes"
        return f"{self.where} mixes the examples of a batch: {how}."

    @property
    def where(self) -> str:
        """The layer in words."""
        return f"layer {self.path!r} ({self.layer})" if self.path else f"the model ({self.layer})"


def leakage(model: nn.Module, inputs: Inputs) -> list[Leak]:
    """Ways in which the records of a batch affect each other in train mode; empty when none was found.

    This finds batch statistics in custom layers, attention across records, and time-first tensors where the model
    expects the batch first. It is a test, not a proof: mixing that these inputs do not show stays undetected.

    Args:
        model: any module; it is left as it is.
        inputs: at least two records, as for the model.

    Raises:
        InvalidInput: the model does not take the inputs, or its outputs or gradients on them are not finite.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        >>> leakage(model, torch.eye(3))[0].path
        '1'
    """
    given = tensors(inputs)
    if not given or any(not isinstance(value, Tensor) or len(value) < 2 for value in given):
        raise check.fail("inputs", "tensors with at least two examples", type(inputs).__name__)
    places = torch.arange(max(_LEAST, len(given[0]))) % len(given[0])
    batch, found = ProbedBatch(rows(inputs, places), together=True), dict[tuple[str, str], Leak]()
    modes = [(each, each.training) for each in model.modules()]
    try:
        with restored_generators() as start, torch.enable_grad():
            first = _run(model.train(), batch, torch.ones(batch.size, dtype=torch.bool), start)
            if not first.is_finite():
                hint = "It could not be tested: try inputs of another size, or another start."
                raise check.fail("outputs and gradients", "finite on random inputs", "NaN or infinity", hint)
            for replaced in _halves(batch.size, torch.Generator().manual_seed(0)):
                both = _both(model, batch, replaced, start)
                for leak, _ in _leaks(model, *both, ~replaced, of_loss=False):
                    found.setdefault((leak.path, leak.what), leak)
    finally:
        for each, mode in modes:
            each.training = mode
    return list(found.values())


def main_output(output: object) -> Tensor:
    """The first real-valued tensor of what a model returns."""
    found = _first_real(output)
    if found is None or not found.dim():
        got = type(output).__name__ if found is None else "a single number"
        raise check.fail("model", "a module that returns a real-valued tensor for a batch", got)
    return found


def check_neighbours(model: nn.Module, batch: ProbedBatch, start: Callable[[], None], *, thorough: bool) -> set[str]:
    """Replace halves of the rows, and raise where anything of the others changes; names of state that changes alike.

    Args:
        model: in train mode.
        batch: finite rows, and the loss that is tested with the model.
        start: puts the generators where every run begins.
        thorough: several halves.

    Raises:
        UnsupportedModel: a row's output or gradient follows other rows, or state of the module follows the rows; the
            layer or attribute is named, no value is.
    """
    draw = torch.Generator().manual_seed(random.SystemRandom().getrandbits(60))
    before, changed = copied_state(model), set[str]()
    for _ in range(_PAIRS if thorough else 1):
        for replaced in _halves(batch.size, draw):
            first, second = _both(model, batch, replaced, start)
            for leak, name in _leaks(model, first, second, ~replaced, batch.loss is not None):
                raise UnsupportedModel(_sentence(leak, name, first.state.get(name)))
            changed.update(changed_names(before, first.state))
    return changed


@dataclass(frozen=True)
class ProbedBatch:
    """The rows of a probe, and the loss that is probed with the model.

    Attributes:
        inputs: as the model takes them, rows along the first axis of every tensor.
        targets: of the loss.
        loss: one value per row; None for the outputs of the model.
        together: whether gradients are those of an ordinary backward pass, which may count what runs together.
    """

    inputs: Inputs
    targets: Tensor | None = None
    loss: Loss | None = None
    together: bool = False

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(tensors(self.inputs)[0])

    def select(self, index: Tensor) -> ProbedBatch:
        """The rows `index`, each as often as it is named."""
        inputs, targets = both_rows(self.inputs, self.targets, index)
        return replace(self, inputs=inputs, targets=targets)

    def changed(self, replaced: Tensor, *, new: bool) -> ProbedBatch:
        """The batch with other rows in place of the `replaced` ones; reals as 1 - 1.5 times another if `new`."""
        inputs = map_tensors(lambda value: with_others(value, replaced, new=new), self.inputs)
        targets = None if self.targets is None else with_others(self.targets, replaced, new=new)
        return replace(self, inputs=inputs, targets=targets)


@dataclass
class _Run:
    """One run of a copy: outputs, first output of every layer, gradients of the kept rows' outputs, and state."""

    outputs: list[Tensor]
    layers: dict[str, Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Any]

    def is_finite(self) -> bool:
        """Whether outputs and gradients are."""
        return all(bool(value.isfinite().all()) for value in (*self.outputs, *self.gradients.values()))

    def tolerance(self, usual: float) -> float:
        """`usual` in single precision; half precision rounds otherwise where other rows are scaled along."""
        values = [*self.outputs, *self.layers.values()]
        return _HALF if any(value.dtype in (torch.float16, torch.bfloat16) for value in values) else usual


def _run(model: nn.Module, batch: ProbedBatch, keep: Tensor, start: Callable[[], None]) -> _Run:
    layers: dict[str, Tensor] = {}
    with copy_to_run(model, by_record=not batch.together) as module:
        inner = [(path, each) for path, each in module.named_modules() if path]
        hooks = [each.register_forward_hook(partial(_note, layers, path)) for path, each in inner]
        start()
        with _WithoutRejection():
            returned = outputs_of(module, map_tensors(lambda value: value.detach().clone(), batch.inputs))
            if batch.loss is not None and batch.targets is not None:
                returned = losses_of(_copied(batch.loss), returned, batch.targets.detach().clone())
        outputs = _batched(returned, len(keep))
        gradients = _gradients(module, outputs, keep)
        for hook in hooks:
            hook.remove()
        state = copied_state(module)
    return _Run([value.detach() for value in outputs], layers, gradients, state)


def _middle_slope(x: Tensor, noise: Tensor, lower: float, upper: float, *_: object) -> Tensor:
    return x * noise.copy_(torch.where(x < 0, (lower + upper) / 2, 1.0))


class _WithoutRejection(TorchDispatchMode):
    """Draws by rejection give a value of their law in the middle, entry by entry.

    How many numbers of the generator such a draw takes follows its parameters, and moves the draws of other records.
    """

    _MIDDLES: ClassVar[dict[str, Callable[..., Tensor]]] = {
        "_standard_gamma": lambda shape, *_: shape.clone(),
        "_sample_dirichlet": lambda weights, *_: weights / weights.sum(-1, keepdim=True),
        "poisson": lambda rate, *_: rate.round(),
        "binomial": lambda count, rate, *_: (count * rate).round(),
        "rrelu_with_noise": _middle_slope,
        "rrelu_with_noise_": lambda x, *given: x.copy_(_middle_slope(x, *given)),
    }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        middle = self._MIDDLES.get(func.__name__.partition(".")[0])
        return func(*args, **kwargs or {}) if middle is None else middle(*args)


def _copied(loss: Loss) -> Loss:
    """A copy of an object, so that one that counts its calls is at the same count in every run of the probe."""
    with suppress(Exception):  # Whatever the user's own code raises where it cannot be copied.
        return loss if isinstance(loss, nn.Module | FunctionType | MethodType) else copy.deepcopy(loss)
    return loss


def _note(layers: dict[str, Tensor], path: str, _: nn.Module, __: object, output: object) -> None:
    if (value := _first_real(output)) is not None:
        layers.setdefault(path, value.detach().clone())


def _gradients(module: nn.Module, outputs: list[Tensor], keep: Tensor) -> dict[str, Tensor]:
    """Gradients of sum_{i kept} <w_i, output_i> for fixed uneven w; found mixing may be in the backward pass alone."""
    named = {name: value for name, value in module.named_parameters() if value.requires_grad}
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
    return [value for value in _reals(output) if value.dim() and len(value) == size]


def _reals(output: object) -> list[Tensor]:
    return [value for _, value in leaves(output) if isinstance(value, Tensor) and value.is_floating_point()]


def _first_real(output: object) -> Tensor | None:
    return next(iter(_reals(output)), None)


def _both(model: nn.Module, batch: ProbedBatch, replaced: Tensor, start: Callable[[], None]) -> tuple[_Run, _Run]:
    """A run on the batch, and one with other rows in place of the `replaced` ones."""
    first = _run(model, batch, ~replaced, start)
    try:
        second = _run(model, batch.changed(replaced, new=True), ~replaced, start)
        if second.is_finite() or not first.is_finite():
            return first, second
    except Exception:
        # Probabilities outside of [0, 1] and the like: models and losses refuse them in many ways.
        pass
    return first, _run(model, batch.changed(replaced, new=False), ~replaced, start)


def _sentence(leak: Leak, name: str, value: object) -> str:
    """What a user is told of a leak of private records, into state `name` of such a value: no number of them."""
    if leak.what == "state":
        return kept_state(name, value)
    if leak.what == "losses":
        return "the loss of an example depends on the other examples of its batch. Compute each from its own outputs."
    return f"{leak.where} mixes the examples of a batch, or what runs before it does. {_MEND}"


def kept_state(name: str, value: object) -> str:
    """The sentence for state `name` of a model, of such a value, that follows the records."""
    kind = "state" if name.endswith("__len__") or not isinstance(value, Tensor) else "tensor"
    return (
        f"{kind} {name.removesuffix('.__len__')!r} of the model follows the records that pass through the model, which "
        "would carry private data from one step into the next. Remove the statistic, or compute it on public data."
    )


def _leaks(model: nn.Module, first: _Run, second: _Run, keep: Tensor, of_loss: bool) -> Iterator[tuple[Leak, str]]:
    """Leaks into state, and into outputs and gradients of the rows in `keep`, each with the name of what differs."""
    layers = dict(model.named_modules())
    for name in changed_names(first.state, second.state)[:1]:
        path = name.rpartition(".")[0]
        path = path if path in layers else ""
        yield Leak(path, type(layers[path]).__name__, "state", 1.0), name
    own, other, tolerance = first.outputs, second.outputs, first.tolerance(_OUTPUTS)
    shapes = [value.shape for value in own] == [value.shape for value in other]
    if not shapes or not all(is_near(two[keep], one[keep], tolerance) for one, two in zip(own, other, strict=True)):
        change = max((_change(one, two, keep) for one, two in zip(own, other, strict=False)), default=1.0)
        own_name = "losses" if of_loss else "outputs"
        yield _first_layer(layers, first, second, keep) or Leak("", type(model).__name__, own_name, change), own_name
    allowed = first.tolerance(_GRADIENTS) * _largest(first.gradients.values())
    for name, gradient in first.gradients.items():
        difference = (gradient - second.gradients[name]).abs()
        # Rows that overflow leave NaN in a sum over all of them, whatever their weight: such a draw decides nothing.
        if bool((difference > allowed).any()) and bool(difference.isfinite().all()):
            path = name.rpartition(".")[0]
            change = float(difference.max()) / max(_largest([gradient]), 1e-12)
            yield Leak(path, type(layers[path]).__name__, "gradients", change), name
            return


def _first_layer(layers: dict[str, nn.Module], first: _Run, second: _Run, keep: Tensor) -> Leak | None:
    """The first layer whose rows differ."""
    for name, output in first.layers.items():
        later = second.layers.get(name)
        if later is None or output.shape != later.shape or not output.dim() or len(output) != len(keep):
            continue
        if not is_near(later[keep], output[keep], first.tolerance(_OUTPUTS)):
            return Leak(name, type(layers[name]).__name__, "outputs", _change(output, later, keep))
    return None


def is_near(found: Tensor, before: Tensor, tolerance: float) -> bool:
    """Whether a value is the one of another run, but for rounding.

    Args:
        found: the value.
        before: that of the other run, of the same shape.
        tolerance: largest difference in units of the largest value, in single or double precision.
    """
    if not found.is_floating_point():
        return torch.equal(found, before)
    tolerance = _HALF if found.dtype in (torch.float16, torch.bfloat16) else tolerance
    near = (found - before).abs() <= tolerance * _largest([before]) + torch.finfo(found.dtype).tiny
    return bool((near | (found == before) | (found.isnan() & before.isnan())).all())


def _change(one: Tensor, other: Tensor, keep: Tensor) -> float:
    """Largest change of the rows in `keep`, relative to the largest value before."""
    if one.shape != other.shape:
        return 1.0
    where = keep.to(one.device)
    return _largest([(one - other)[where].float()]) / max(_largest([one]), 1e-12)


def _largest(values: Any) -> float:
    found = [float(value.abs().nan_to_num(0.0, 0.0, 0.0).max()) for value in values if value.numel()]
    return max(found, default=0.0)


def _halves(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random half of `count` rows, and the others."""
    replaced = torch.zeros(count, dtype=torch.bool)
    replaced[torch.randperm(count, generator=draw)[: count // 2]] = True
    return replaced, ~replaced


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
