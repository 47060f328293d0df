"""`clipped_sum`: what every private training step needs from a batch."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from tacit import check
from tacit.clipping import Clip, FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients.buffers import Buffers
from tacit.gradients.capture import Uncovered
from tacit.gradients.engine import Captured, Trace, captured, without_gradients
from tacit.gradients.fallback import add_by_example
from tacit.gradients.flat_gradient import FlatGradient
from tacit.gradients.identity import identity_of
from tacit.gradients.inputs import Inputs, Loss, batch_size, call, losses_of, outputs_of, rows, tensors
from tacit.gradients.privacy_units import PrivacyUnits, UnitIds
from tacit.gradients.validate import examine
from tacit.gradients.verify_capture import Verdict, verify_capture

_FAR = 1e30  # squared norms beyond this are left to the fallback, which rescales
_HELD = 2**26  # values that contributions may hold at a time
_LATEST = 256  # verdicts of one model that are kept

_VERDICTS: weakref.WeakKeyDictionary[nn.Module, dict[tuple[object, ...], Verdict]] = weakref.WeakKeyDictionary()


def clipped_sum(
    model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor, *, clip_norm: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Sum over the batch of every example's gradient, clipped to L2 norm `clip_norm`, and the unclipped norms.

        sum_i g_i min(1, clip_norm / |g_i|),  g_i the gradient of loss_i in all trainable parameters together

    One example changes the sum by at most `clip_norm` (1 + 1e-6), whatever its values: an example whose gradient is
    NaN or infinite contributes exactly 0, one whose squares overflow is clipped like any other. The norms are private
    data: they must not be released.

    Args:
        model: any module whose layers treat examples independently; its mode and gradients are left alone.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        inputs: tensor (batch, ...), or a tuple or dict of such tensors for models with several arguments.
        targets: tensor (batch, ...).
        clip_norm: in [1e-9, 1e12].

    Returns:
        Parameter name -> clipped sum of that parameter's shape, in float32 or wider, and norms, shape (batch,).

    Raises:
        InvalidInput: `loss` returns one number or a mean, or inputs and targets differ in length.
        UnsupportedModel: a layer mixes the examples of a batch (its path and the fix are named).

    Source: Abadi et al. 2016, Algorithm 1.
    """
    total, norms = ClippedSum(model, FlatClip(clip_norm))(loss, inputs, targets)
    return total.parts, norms


class ClippedSum:
    """`clipped_sum` for many batches of one model, whose trainable parameters are those of now, under any clip.

    Args:
        clip: of the next batch; may be exchanged for another of the same groups between batches.
        max_physical_batch_size: records that go through the model at a time; the sum does not depend on it. A unit of
            several records is never split.
    """

    def __init__(self, model: nn.Module, clip: Clip, *, max_physical_batch_size: int | None = None):
        examine(model)
        self.model, self.clip = model, clip
        self.trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.groups = clip.groups(list(self.trainable))
        self.units = PrivacyUnits(self.groups)
        self._most = _HELD
        if max_physical_batch_size is not None:
            self._most = check.count("max_physical_batch_size", max_physical_batch_size)
        self._scratch = Buffers()
        self._verdicts = _VERDICTS.setdefault(model, {})
        self._parameters = tuple((id(parameter), parameter.shape) for parameter in self.trainable.values())

    def __call__(
        self, loss: Loss, inputs: Inputs, targets: Tensor, members: UnitIds | None = None
    ) -> tuple[FlatGradient, Tensor]:
        """The clipped sum and the norms of one batch; see `clipped_sum`. A clip of the mean has yet to `finish` it.

        Args:
            members: which records are clipped as one; every record by itself by default. There is one norm a unit.
        """
        batch = batch_size(inputs, targets)
        total = FlatGradient.zeros(self.trainable)
        if not batch:
            return total, total.flat.new_zeros(0)
        verdict = self._verdict(loss, inputs, targets)
        if members is None:
            norms = self._add_pieces(loss, inputs, targets, verdict, total.parts, self.units)
        else:
            norms = total.flat.new_zeros(members.count)
            for owners, index, weights in members.blocks(targets.device):
                units = PrivacyUnits(self.groups, index.shape[1], weights.flatten().to(total.flat.dtype))
                x, y = rows(inputs, index.flatten()), targets[index.flatten()]
                norms[owners] = self._add_pieces(loss, x, y, verdict, total.parts, units).to(norms.dtype)
        return total, norms

    def _add_pieces(
        self,
        loss: Loss,
        inputs: Inputs,
        targets: Tensor,
        verdict: Verdict,
        sums: dict[str, Tensor],
        units: PrivacyUnits,
    ) -> Tensor:
        """`_add` on so many records at a time as may be held."""
        size = max(1, self._chunk(verdict) // units.size) * units.size
        if len(targets) <= size:
            return self._add(loss, inputs, targets, verdict, sums, units)
        norms = []
        for start in range(0, len(targets), size):
            part = slice(start, start + size)
            norms.append(self._add(loss, rows(inputs, part), targets[part], verdict, sums, units.part(part)))
        return torch.cat(norms)

    def _chunk(self, verdict: Verdict) -> int:
        """How many records may go through the model at a time."""
        held = verdict.trace.held if verdict.trace is not None else 1
        return max(1, min(self._most, _HELD // max(1, held)))

    def factors(self, squared_norms: Tensor) -> Tensor:
        """Clipping factor of every squared norm, shape (groups, units), all within range."""
        return self.clip.factors(squared_norms.sqrt(), rounding=torch.finfo(squared_norms.dtype).eps)

    @staticmethod
    def within_range(squared_norms: Tensor) -> Tensor:
        """Which examples may be clipped by a factor; the others overflow, or are not finite."""
        return squared_norms < _FAR

    def trace(self, loss: Loss, inputs: Inputs, targets: Tensor) -> Trace:
        """The path that captures follow; raises `UnsupportedModel` for a model that goes through the fallback."""
        verdict = self._verdict(loss, inputs, targets)
        if verdict.trace is None:
            raise UnsupportedModel(f'the model cannot be compiled: {verdict.reason}. Use engine="eager".')
        return verdict.trace

    def why_slow(self, loss: Loss, inputs: Inputs, targets: Tensor) -> str:
        """Why this model goes through the fallback; empty when its gradients are captured."""
        return self._verdict(loss, inputs, targets).reason

    def _add(
        self,
        loss: Loss,
        inputs: Inputs,
        targets: Tensor,
        verdict: Verdict,
        sums: dict[str, Tensor],
        units: PrivacyUnits,
    ) -> Tensor:
        """Add the clipped gradients of all units to `sums`; their norms."""
        if verdict.trace is None:
            return self._add_slowly(loss, inputs, targets, verdict, sums, units)
        try:
            with without_gradients(self.trainable):
                found = captured(
                    partial(call, self.model),
                    dict(self.trainable),
                    loss,
                    inputs,
                    targets,
                    verdict.trace,
                    scratch=self._scratch,
                    units=units,
                )
        except Uncovered:
            return self._add_slowly(loss, inputs, targets, replace(verdict, vectorised=False), sums, units)
        except Exception:
            # Where the batch does not fit the model or the loss, they say so without capture as well.
            with torch.no_grad():
                losses_of(loss, outputs_of(self.model, inputs), targets)
            raise
        return self._add_found(found, loss, inputs, targets, verdict, sums, units)

    def _add_found(
        self,
        found: Captured,
        loss: Loss,
        inputs: Inputs,
        targets: Tensor,
        verdict: Verdict,
        sums: dict[str, Tensor],
        units: PrivacyUnits,
    ) -> Tensor:
        near = self.within_range(found.squared)
        if not near.all():
            return self._add_apart(loss, inputs, targets, verdict, sums, units, ~near.all(0))
        found.add_weighted(sums, self.factors(found.squared))
        return (found.squared[0] if len(found.squared) == 1 else found.squared.sum(0)).sqrt()

    def _add_slowly(
        self,
        loss: Loss,
        inputs: Inputs,
        targets: Tensor,
        verdict: Verdict,
        sums: dict[str, Tensor],
        units: PrivacyUnits,
    ) -> Tensor:
        vectorised = verdict.vectorised
        return add_by_example(self.model, loss, inputs, targets, self.clip, sums, vectorised=vectorised, units=units)

    def _add_apart(
        self,
        loss: Loss,
        inputs: Inputs,
        targets: Tensor,
        verdict: Verdict,
        sums: dict[str, Tensor],
        units: PrivacyUnits,
        far: Tensor,
    ) -> Tensor:
        """Units out of range go through the fallback, the others again without them: 0 times NaN is NaN."""
        norms = torch.empty(far.shape, dtype=next(iter(sums.values())).dtype, device=far.device)
        for chosen, add in ((far, self._add_slowly), (~far, self._add)):
            if chosen.any():
                index = chosen.repeat_interleave(units.size).nonzero().flatten()
                x, y = rows(inputs, index), targets[index]
                norms[chosen] = add(loss, x, y, verdict, sums, units.part(index)).to(norms.dtype)
        return norms

    def _verdict(self, loss: Loss, inputs: Inputs, targets: Tensor) -> Verdict:
        given = [*tensors(inputs), targets]
        # Rules choose their way by sizes (one position or several, Gram or matrix): another size is examined anew.
        forms = [(value.shape[1:], value.dtype) for value in given]
        key = (identity_of(loss), self.model.training, self._parameters, *forms)
        verdict = self._verdicts.get(key)
        if verdict is None:
            # A run that goes on examines the model again: what that draws must not shift the run's own randomness.
            with torch.random.fork_rng([targets.device] if targets.is_cuda else []):
                verdict = verify_capture(self.model, self.trainable, loss, inputs, targets)
            if verdict.final:
                self._verdicts[key] = verdict
                if len(self._verdicts) > _LATEST:
                    del self._verdicts[next(iter(self._verdicts))]
        return verdict
