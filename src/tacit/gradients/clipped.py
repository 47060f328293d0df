"""`clipped_sum`: the sum of clipped per-sample gradients that every private training step needs from a batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from types import CodeType, FunctionType, MethodType
from typing import Literal

import torch
from torch import Tensor, nn

from tacit import check
from tacit.clipping import Clip, FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients.capture import Uncovered
from tacit.gradients.engine import CapturedGradients, Trace, capture_gradients, without_gradients
from tacit.gradients.fallback import add_clipped_rows
from tacit.gradients.flat_gradient import Buffers, FlatGradient, Total, held_values, out_of_memory, trim_memory, wide
from tacit.gradients.inputs import Inputs, Loss, PhysicalBatch, batch_size, call, form_of
from tacit.gradients.model_probe import ModelProbe
from tacit.gradients.privacy_units import PrivacyUnits, UnitIds
from tacit.gradients.rounding import blocks, single_slack, slack
from tacit.gradients.validate import examine
from tacit.gradients.verify_capture import Verification, verify_capture

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def identity_of(function: object) -> tuple[object, ...]:
    """A key that equals another only if both functions run the same code on the same captured objects.

    Captured are the values of closure cells and defaults, the object of a method, and what the code names among its
    globals. A loop that writes its loss as a lambda makes a new function each time, and the key stays the same; any
    other callable is its own key. What happens inside a captured object does not show.
    """
    if isinstance(function, MethodType):
        return (_key(function.__self__), *identity_of(function.__func__))
    if not isinstance(function, FunctionType):
        return (_key(function),)
    return (function.__code__, *map(_key, _captured(function)))


def _captured(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # A name that is not bound yet.
            yield cell
    yield from function.__defaults__ or ()
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        yield from (name, value)
    for name in _names(function.__code__):
        yield function.__globals__.get(name)


def _names(code: CodeType) -> Iterator[str]:
    """Names that the code and the functions written inside it may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _key(value: object) -> object:
    return (type(value), value) if isinstance(value, _PLAIN) else IdentityKey(value)


class IdentityKey:
    """A key that compares an object by identity; an object that is gone equals no other.

    The key holds a weak reference where it can, so that verifications of a model do not keep it alive.
    """

    def __init__(self, value: object):
        self._hash = id(value)
        try:
            self._refer = weakref.ref(value)
        except TypeError:
            self._refer = lambda: value

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, IdentityKey) and self._same(other))

    def _same(self, other: IdentityKey) -> bool:
        mine = self._refer()
        return mine is not None and mine is other._refer()


# Squared norms beyond this are left to the fallback, which rescales: products of them would overflow in float32.
_LARGEST_SQUARE = 1e30
# Values that per-sample gradients may hold at a time: 256 MB in float32.
_HELD_VALUES = 2**26
# Verifications of one model that are kept: one for each loss and input size, and training uses few of either.
_KEPT_VERIFICATIONS = 256

_VERIFICATIONS: weakref.WeakKeyDictionary[nn.Module, dict[tuple[object, ...], Verification]] = (
    weakref.WeakKeyDictionary()
)


def clipped_sum(
    model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor, *, clip_norm: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Sum over the batch of the per-sample gradients, each clipped to L2 norm `clip_norm`, and the unclipped norms.

        sum_i g_i min(1, clip_norm / |g_i|),  g_i the gradient of loss_i in all trainable parameters together

    One record changes the sum by at most `clip_norm` (1 + nu), nu = .4 %, whatever its values, rounding included (see
    `tacit.gradients.rounding`; of the exact sum of what is added it is 1e-4): a record whose gradient is
    NaN or infinite contributes exactly 0, one whose squares overflow is clipped like any other. The norms are private
    data: they must not be released.

    Args:
        model: any module whose layers treat records independently; its mode and gradients are left alone.
        loss: `loss(outputs, targets)` gives one value per record, shape (batch,).
        inputs: tensor (batch, ...), or a tuple or dict of such tensors for models with several arguments.
        targets: tensor (batch, ...).
        clip_norm: in [1e-9, 1e12].

    Returns:
        Parameter name -> clipped sum of that parameter's shape, in float32 or wider, and norms, shape (batch,).

    Raises:
        InvalidInput: `loss` returns one number or a mean, or inputs and targets differ in length.
        UnsupportedModel: a layer mixes the records of a batch (its path and the fix are named).

    Source: Abadi et al. 2016, Algorithm 1.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> inputs = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> sums, norms = clipped_sum(model, lambda y, t: y[:, 0] - t, inputs, torch.zeros(2), clip_norm=1.0)
        >>> norms
        tensor([5.0000, 0.5000])
        >>> sums["weight"]
        tensor([[0.9000, 1.2000]])
    """
    gradient, norms = ClippedSum(model, FlatClip(clip_norm))(loss, inputs, targets)
    return gradient.as_released().parts, norms


class ClippedSum:
    """`clipped_sum` for many batches of one model, whose trainable parameters are those of now, under any clip.

    The model and the loss are probed before the first batch of each form: see `ModelProbe`.

    Args:
        model: any module whose layers treat records independently.
        clip: of the next batch; may be exchanged for another of the same groups between batches.
        max_physical_batch_size: records that go through the model at a time; the sum does not depend on it. A privacy
            unit of several records is never split. "auto" takes as many as half of the free memory holds, and half as
            many where memory runs out.
        expected_batch_size: units of a batch on average, which must be public: `slack` depends on it.

    Raises:
        UnsupportedModel: a layer of the model cannot be trained privately.
        InvalidInput: `max_physical_batch_size` is no count.

    Example:
        >>> import torch
        >>> from tacit.clipping import FlatClip
        >>> clipped = ClippedSum(torch.nn.Linear(2, 1, bias=False), FlatClip(1.0))
        >>> gradient, norms = clipped(lambda y, t: y[:, 0] - t, torch.tensor([[3.0, 4.0]]), torch.zeros(1))
        >>> gradient.flat
        tensor([0.6000, 0.8000])
    """

    def __init__(
        self,
        model: nn.Module,
        clip: Clip,
        *,
        max_physical_batch_size: int | Literal["auto"] | None = None,
        expected_batch_size: float | None = None,
    ):
        examine(model)
        self.model, self.clip = model, clip
        self.trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.privacy_units = PrivacyUnits(
            clip.groups(list(self.trainable)), single_slack=single_slack(expected_batch_size)
        )
        self._max_physical_batch_size = _HELD_VALUES
        self._auto = max_physical_batch_size == "auto"
        if max_physical_batch_size is not None and max_physical_batch_size != "auto":
            self._max_physical_batch_size = check.count("max_physical_batch_size", max_physical_batch_size)
        self._buffers = Buffers()
        # Physical batches below the expected one say that memory is short.
        self._gives_back = expected_batch_size is not None and self._max_physical_batch_size < expected_batch_size
        self.probe = ModelProbe(model)
        self._probed: dict[tuple[object, ...], bool] = {}
        self._verifications = _VERIFICATIONS.setdefault(model, {})
        self._parameters = tuple((id(parameter), parameter.shape) for parameter in self.trainable.values())

    def __call__(
        self, loss: Loss, inputs: Inputs, targets: Tensor, unit_ids: UnitIds | None = None, *, drawn: int | None = None
    ) -> tuple[FlatGradient, Tensor]:
        """The clipped sum and the norms of one batch; see `clipped_sum`. A clip of the mean has yet to `finish` it.

        Args:
            loss: `loss(outputs, targets)` gives one value per record, shape (batch,).
            inputs: tensor (batch, ...), or a tuple or dict of such tensors.
            targets: tensor (batch, ...).
            unit_ids: which records are clipped together; every record by itself by default.
            drawn: records of the logical batch that these are a part of; those at hand by default.

        Returns:
            The clipped sum, and one norm for each privacy unit.

        Raises:
            InvalidInput: `loss` returns one number or a mean, or inputs and targets differ in length.
            UnsupportedModel: a layer mixes the records of a batch.
        """
        total, norms = Total(self.trainable), []
        if not batch_size(inputs, targets):
            return self._result(total, norms)
        verified = self._verification(loss, inputs, targets)
        if unit_ids is None:
            units = replace(self.privacy_units, drawn=len(targets) if drawn is None else drawn)
            batch = PhysicalBatch(loss, inputs, targets, units)
            norms.append(self._add(batch, verified, total))
            return self._result(total, norms)
        batch = PhysicalBatch(loss, inputs, targets)
        found = torch.zeros(unit_ids.count, dtype=self.dtype, device=targets.device)
        for owners, index, weights in unit_ids.blocks(targets.device):
            weights = weights.flatten().to(self.dtype)
            units = replace(self.privacy_units, size=index.shape[1], weights=weights, drawn=unit_ids.count)
            block = replace(batch.select(index.flatten()), privacy_units=units)
            found[owners] = self._add(block, verified, total).to(self.dtype)
        return self._result(total, [found])

    @cached_property
    def dtype(self) -> torch.dtype:
        """Type that clipped sums are released in, whatever a batch was summed in."""
        return max((wide(each.dtype) for each in self.trainable.values()), key=lambda dtype: dtype.itemsize)

    @property
    def slack(self) -> float:
        """Nu: share by which the sensitivity of a computed sum exceeds that of the clip; no record enters it."""
        return 0.0 if self.clip.of_mean else self._slack_of_sums

    @cached_property
    def _slack_of_sums(self) -> float:
        dtypes = {wide(each.dtype) for each in self.trainable.values()}
        return max(slack(dtype, len(self.trainable), self.privacy_units.single_slack) for dtype in dtypes)

    def _result(self, total: Total, norms: list[Tensor]) -> tuple[FlatGradient, Tensor]:
        gradient = replace(total.gradient(), slack=self.slack, released_in=self.dtype)
        empty = gradient.flat.new_zeros(0, dtype=self.dtype)
        return gradient, torch.cat([empty, *(norm.to(self.dtype) for norm in norms)])

    def factors(self, squared_norms: Tensor) -> Tensor:
        """Clipping factor of every squared norm, shape (groups, units), all within range."""
        return self.clip.factors(squared_norms.sqrt(), rounding=torch.finfo(squared_norms.dtype).eps)

    @staticmethod
    def within_range(squared_norms: Tensor) -> Tensor:
        """Which gradients may be clipped by a factor; the others overflow, or are not finite."""
        return squared_norms < _LARGEST_SQUARE

    def trace(self, loss: Loss, inputs: Inputs, targets: Tensor) -> Trace:
        """The path that captures follow; raises `UnsupportedModel` for a model that goes through the fallback."""
        verified = self._verification(loss, inputs, targets)
        if verified.trace is None:
            raise UnsupportedModel(f'the model cannot be compiled: {verified.reason}. Use engine="eager".')
        return verified.trace

    def fallback_reason(self, loss: Loss, inputs: Inputs, targets: Tensor) -> str:
        """Why this model, or some of its modules, take a slower method; empty when all gradients are captured."""
        return self._verification(loss, inputs, targets).reason

    def _add(self, batch: PhysicalBatch, verified: Verification, total: Total) -> Tensor:
        """Add the clipped gradients of all units, as many records at a time as may be held; their norms."""
        unit = batch.privacy_units.size
        size = max(1, self._chunk(verified) // unit) * unit
        whole = batch.privacy_units.weights is None and batch.privacy_units.drawn == len(batch)
        if whole and size < len(batch) and not self._auto:
            batch = self._in_parts(batch, size, total)
        start, norms = 0, []
        while start < len(batch) or not norms:
            size = max(1, self._chunk(verified) // unit) * unit
            chunk = batch if len(batch) <= size else batch.select(slice(start, start + size))
            # A chunk that is tried again must not be in the sum already.
            added = Total(self.trainable) if self._auto else total
            try:
                found = self._add_chunk(chunk, verified, added)
            except (RuntimeError, MemoryError) as error:
                if not self._auto or len(chunk) <= unit or not out_of_memory(error):
                    raise
                self._max_physical_batch_size = len(chunk) // 2
                continue
            if added is not total:
                total.add(added.gradient())
            norms.append(found)
            start += len(chunk)
        if self._gives_back:
            trim_memory()
        return norms[0] if len(norms) == 1 else torch.cat(norms)

    def _in_parts(self, batch: PhysicalBatch, size: int, total: Total) -> PhysicalBatch:
        """Begin `total` for a whole logical batch of which `size` records go through the model at a time.

        Only one sum of the model's size is held. A part is added at most twice: records out of range have a sum of
        their own.
        """
        units, additions = batch.privacy_units, 2 * -(-len(batch) // size)
        found = blocks(size, len(batch), self.dtype, units.single_slack, additions)
        total.begin(found.dtype)
        additions = additions if found.dtype == torch.float32 else 0
        return replace(batch, privacy_units=replace(units, additions=additions))

    def _chunk(self, verified: Verification) -> int:
        """Number of records that may go through the model at a time."""
        values = verified.trace.values_per_record if verified.trace is not None else 1
        held = held_values(next(iter(self.trainable.values())).device) if self._auto else _HELD_VALUES
        return max(1, min(self._max_physical_batch_size, held // max(1, values)))

    def _add_chunk(self, batch: PhysicalBatch, verified: Verification, total: Total) -> Tensor:
        if verified.trace is None:
            return self._add_by_fallback(batch, verified, total)
        try:
            with without_gradients(self.trainable):
                model = partial(call, self.model)
                found = capture_gradients(model, self.trainable, batch, verified.trace, self._buffers)
        except Uncovered:
            return self._add_by_fallback(batch, replace(verified, vectorised=False), total)
        except Exception:
            # Where the batch does not fit the model or the loss, they say so without capture as well.
            with torch.no_grad():
                batch.checked_losses(self.model)
            raise
        return self._add_captured(found, batch, verified, total)

    def _add_captured(
        self, found: CapturedGradients, batch: PhysicalBatch, verified: Verification, total: Total
    ) -> Tensor:
        squared = found.squared_norms
        within = self.within_range(squared)
        if not within.all():
            return self._add_by_range(within.all(0), batch, verified, total)
        if total.in_place:
            found.add_weighted_sum(total.gradient(), self.factors(squared))
        else:
            total.add(found.weighted_sum(self.trainable, self.factors(squared)))
        return (squared[0] if len(squared) == 1 else squared.sum(0)).sqrt()

    def _add_by_fallback(self, batch: PhysicalBatch, verified: Verification, total: Total) -> Tensor:
        gradient = FlatGradient.zeros(self.trainable, torch.float64)
        norms = add_clipped_rows(self.model, batch, self.clip, gradient.parts, vectorised=verified.vectorised)
        total.add(gradient)
        return norms

    def _add_by_range(self, within: Tensor, batch: PhysicalBatch, verified: Verification, total: Total) -> Tensor:
        """Units out of range go through the fallback, the others again without them: 0 times NaN is NaN."""
        norms = torch.empty(within.shape, dtype=self.dtype, device=within.device)
        for chosen, way in ((~within, self._add_by_fallback), (within, self._add_chunk)):
            if chosen.any():
                index = chosen.repeat_interleave(batch.privacy_units.size).nonzero().flatten()
                norms[chosen] = way(batch.select(index), verified, total).to(norms.dtype)
        return norms

    def is_fixed(self, loss: Loss, inputs: Inputs, targets: Tensor) -> bool | None:
        """Whether every pass of model and loss is one program, see `Verification`; None before the first batch."""
        verified = self._verifications.get(self._form(loss, inputs, targets))
        return None if verified is None else verified.fixed

    def _form(self, loss: Loss, inputs: Inputs, targets: Tensor) -> tuple[object, ...]:
        # Rules choose a form by sizes (one position or several, Gram or matrix): another size is verified anew.
        forms = (*form_of(inputs), targets.shape[1:], targets.dtype)
        return (identity_of(loss), self.model.training, self._parameters, *forms)

    def _verification(self, loss: Loss, inputs: Inputs, targets: Tensor) -> Verification:
        key = self._form(loss, inputs, targets)
        verified = self._verifications.get(key)
        if verified is None:
            # First, as it neither runs under vmap, where a model that writes into `.data` ends the process, nor
            # writes into the model.
            self._probe_once(key, loss, inputs, targets)
            # A run that goes on examines the model again: what that draws must not shift the run's own randomness.
            with torch.random.fork_rng([targets.device] if targets.is_cuda else []):
                batch = PhysicalBatch(loss, inputs, targets)
                if self.probe.typed.branches:
                    # Two passes may be two programs, so that none stands for the other: one record at a time.
                    verified = Verification(None, "a forward pass that branches on draws")
                else:
                    verified = verify_capture(self.model, self.trainable, batch, stateful=bool(self.probe.cleared))
            verified = replace(verified, fixed=self._probed.get(key, False))
            if verified.final:
                self._verifications[key] = verified
                if len(self._verifications) > _KEPT_VERIFICATIONS:
                    del self._verifications[next(iter(self._verifications))]
        return verified

    def _probe_once(self, key: tuple[object, ...], loss: Loss, inputs: Inputs, targets: Tensor) -> None:
        """Probe model and loss, unless this was done for another batch whose verification was not final."""
        if key in self._probed:
            return
        if self.probe.covers(inputs, targets, loss) or self.probe(inputs, targets, loss, thorough=True):
            self._probed[key] = self.probe.typed.fixed
