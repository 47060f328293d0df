"""Verification that capture gives a model's per-sample gradients.

Capture sees operations. That it sees all of them, and along the right axis, is tested on a few records, whose
gradients are made both ways: captured together, and by ordinary backward passes one record at a time. A model that
fails keeps the fallback.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tacit import check
from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients.capture import Uncovered
from tacit.gradients.engine import CapturedGradients, Trace, capture_gradients, without_gradients
from tacit.gradients.fallback import by_vmap, one_at_a_time
from tacit.gradients.flat_gradient import MOST_KEPT_VALUES, row_squares
from tacit.gradients.inputs import Inputs, PhysicalBatch, call, doubled, rows, tensors

# Batch sizes to examine a model with: primes, which divide few other sizes, and at least 7 records to compare.
_PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101)
# Relative difference that float32 rounding of two orders of summation explains; a missed use differs by far more.
_TOLERANCE = 2e-3
# The same where activations lie on either side of a kink of the model.
_KINKS = 0.1
# Captures of the model with more and more of its modules run by vmap.
_ATTEMPTS = 20


@dataclass(frozen=True)
class Verification:
    """Result of `verify_capture`: how the per-sample gradients of a model are made.

    Attributes:
        trace: the path for captures to follow; None when gradients go through the fallback.
        reason: why there is no trace, or which of its modules run by vmap; empty when every operation is covered.
        vectorised: whether the fallback may use `torch.func`; one record at a time otherwise.
        final: whether other records could not show more.
        fixed: whether every pass of model and loss is one program, as their record types show.
    """

    trace: Trace | None
    reason: str = ""
    vectorised: bool = False
    final: bool = True
    fixed: bool = False


@dataclass(frozen=True)
class _Reference:
    """Gradients of separate passes, of which no more than one pass is held.

    Attributes:
        squared_norms: over all parameters, shape (batch,).
        sums: parameter name -> sum with the uneven weights of `_weights`.
        losses: shape (batch,).
    """

    squared_norms: Tensor
    sums: dict[str, Tensor]
    losses: Tensor

    @classmethod
    def of(cls, passes: Iterable[tuple[dict[str, Tensor], Tensor]], count: int) -> _Reference:
        """Per-sample gradients, name -> (some records, *shape), and losses of passes over `count` records."""
        squares, losses, sums, start = list[Tensor](), list[Tensor](), dict[str, Tensor](), 0
        for gradients, found in passes:
            squares.append(torch.stack([row_squares(each) for each in gradients.values()]).sum(0))
            losses.append(found)
            for name, each in gradients.items():
                part = torch.tensordot(_weights(count, each)[start : start + len(each)], each, dims=1)
                sums[name] = sums[name].add_(part) if name in sums else part
            start += len(found)
        return cls(torch.cat(squares), sums, torch.cat(losses))

    @classmethod
    def one_at_a_time(cls, model: nn.Module, batch: PhysicalBatch) -> _Reference:
        """Those of ordinary backward passes, record by record."""
        records = (batch.select(slice(place, place + 1)) for place in range(len(batch)))
        return cls.of((one_at_a_time(model, record) for record in records), len(batch))

    def finite(self) -> bool:
        """Whether all losses and gradients are."""
        return all(bool(value.isfinite().all()) for value in (self.losses, self.squared_norms))


def _weights(count: int, like: Tensor) -> Tensor:
    """Weights of records, which show an exchange of two."""
    return 1.0 + torch.arange(count, device=like.device, dtype=like.dtype).sin()


def verify_capture(
    model: nn.Module, trainable: dict[str, nn.Parameter], batch: PhysicalBatch, *, stateful: bool = False
) -> Verification:
    """Test on a few records of `batch`, dropout off, whether capture gives this model's per-sample gradients.

    Args:
        model: one that the model probe cleared, which also covers layers that are random beyond dropout.
        trainable: its trainable parameters.
        batch: of the run.
        stateful: whether the forward pass writes state, which must not happen under `torch.func`.

    Returns:
        The path for captures to follow, or why there is none.

    Raises:
        UnsupportedModel: the forward pass writes into a parameter; the layer is named.
    """
    constants = [*model.parameters(), *model.buffers()]
    probe = PhysicalBatch(batch.loss, *probe_records(constants, batch.inputs, batch.targets))
    with NoDropout(), _perturbed(trainable):
        versions = {name: value._version for name, value in model.named_parameters()}
        try:
            reference = _Reference.one_at_a_time(model, probe)
        except InvalidInput:
            # Probabilities with noise lie outside of [0, 1]; a batch of few records then repeats them as they are.
            probe = PhysicalBatch(batch.loss, *probe_records(constants, batch.inputs, batch.targets, noise=0.0))
            reference = _Reference.one_at_a_time(model, probe)
        _check_state(model, versions)
        if not reference.finite():
            return Verification(None, "examples with a loss or gradient that is not finite", final=False)
        _check_loss(model, probe)
        verified = _verify(model, trainable, probe, reference, stateful)
        if verified.trace is not None or stateful:
            return verified
        return replace(verified, vectorised=_vectorised(model, probe, reference))


def _vectorised(model: nn.Module, probe: PhysicalBatch, reference: _Reference) -> bool:
    """Whether `torch.func` runs this model and sees every use of its parameters, those in the loss among them."""
    values = sum(each.numel() for each in reference.sums.values())
    size = max(1, MOST_KEPT_VALUES // max(1, values))
    parts = [slice(start, start + size) for start in range(0, len(probe), size)]
    try:
        passes = ((by_vmap(model, probe.select(part)), reference.losses[part]) for part in parts)
        found = _Reference.of(passes, len(probe))
    except Exception:
        # Operations without a batching rule fail in many ways; one record at a time they do run.
        return False
    return not _differing(found.sums, found.squared_norms, reference)


def _check_loss(model: nn.Module, probe: PhysicalBatch) -> None:
    with torch.enable_grad():
        losses = probe.checked_losses(model)
    if not losses.requires_grad:
        hint = "Compute it from the outputs, without detach() or no_grad()."
        raise check.fail("loss", "one that depends on the model's trainable parameters", "a constant", hint)


def _verify(
    model: nn.Module, trainable: dict[str, nn.Parameter], probe: PhysicalBatch, reference: _Reference, stateful: bool
) -> Verification:
    copies, modules, reason = False, dict[str, nn.Module](), ""
    for _ in range(_ATTEMPTS):
        try:
            with without_gradients(trainable):
                start = Trace(copies=copies, modules_by_vmap=tuple(modules.values()))
                found = capture_gradients(partial(call, model), trainable, probe, start)
        except Uncovered as error:
            reason, wrong = str(error), error.names
        except Exception as error:
            # Activations that are overwritten need copies; else a model may object in many ways, yet it did run alone.
            if copies:
                return Verification(None, f"{type(error).__name__}: {error}")
            copies = True
            continue
        else:
            alike, wrong = _close(found.losses, reference.losses), _captured_otherwise(found, reference)
            equal = alike and not wrong
            if equal or (not modules and _equal_in_double(model, probe, found, reference)):
                slower = f"{', '.join(modules)} by copies of its parameters ({reason})" if modules else ""
                return Verification(found.trace, slower)
            if not alike:
                return Verification(None, "random operations other than dropout")
            reason = f"an operation that capture does not see uses {', '.join(wrong)}"
        if stateful or not _add_modules(model, wrong, modules):
            break
    return Verification(None, reason)


def _add_modules(model: nn.Module, names: Sequence[str], modules: dict[str, nn.Module]) -> bool:
    """Add the innermost module around each of `names` that is not among `modules`; False where that is the model."""
    for name in names:
        path = name.rpartition(".")[0]
        while path in modules:
            path = path.rpartition(".")[0]
        if not path:
            return False
        for inner in [known for known in modules if known.startswith(f"{path}.")]:
            del modules[inner]
        modules[path] = model.get_submodule(path)
    return bool(names)


def _equal_in_double(model: nn.Module, probe: PhysicalBatch, found: CapturedGradients, reference: _Reference) -> bool:
    """Whether capture along the path of `found` gives the gradients of ordinary backward passes in double precision.

    Of millions of activations some are zero up to rounding; the two ways then take either side of a kink, each right.
    Such a difference is gone in double precision, and small in single precision. A missed use stays.
    """
    if _captured_otherwise(found, reference, _KINKS):
        return False
    try:
        wider = copy.deepcopy(model).double()
        trainable = {name: value for name, value in wider.named_parameters() if value.requires_grad}
        records = doubled(probe)
        expected = _Reference.one_at_a_time(wider, records)
        with without_gradients(trainable):
            again = capture_gradients(partial(call, wider), trainable, records, Trace(copies=found.trace.copies))
    except Exception:
        # Models with a fixed precision or state that cannot be copied fail in many ways.
        return False
    same_path = (again.trace.axes, again.trace.operations) == (found.trace.axes, found.trace.operations)
    return same_path and _close(again.losses, expected.losses) and not _captured_otherwise(again, expected)


def _captured_otherwise(found: CapturedGradients, expected: _Reference, tolerance: float = _TOLERANCE) -> list[str]:
    """Parameters whose unevenly weighted sum is another by capture than in `expected`; all when norms differ."""
    weights = _weights(len(expected.squared_norms), expected.squared_norms)
    sums = found.weighted_sum(expected.sums, weights).parts
    return _differing(sums, found.squared_norms, expected, tolerance)


def _differing(
    sums: Mapping[str, Tensor], squared_norms: Tensor, expected: _Reference, tolerance: float = _TOLERANCE
) -> list[str]:
    norms = expected.squared_norms.sqrt()
    allowed = tolerance * float((_weights(len(norms), norms) * norms).sum()) + 1e-12
    wrong = [name for name in sums if float((sums[name] - expected.sums[name]).norm()) > allowed / len(sums) ** 0.5]
    return wrong or ([] if _close(squared_norms.sqrt(), norms, tolerance) else list(sums))


def _close(left: Tensor, right: Tensor, tolerance: float = _TOLERANCE) -> bool:
    scale = float(right.abs().max()) if len(right) else 0.0
    return bool(((left - right).abs() <= tolerance * right.abs() + 1e-4 * scale + 1e-12).all())


def probe_records(
    constants: Iterable[Tensor], inputs: Inputs, targets: Tensor, noise: float = 0.1
) -> tuple[Inputs, Tensor]:
    """A prime number of records that divides no size of `constants` or of the inputs, so that it marks the batch axis.

    When the batch has fewer, records repeat with a little noise on real-valued inputs.

    Args:
        constants: parameters and buffers of the model.
        inputs: of the batch.
        targets: of the batch.
        noise: its standard deviation, in units of the mean absolute value.
    """
    count = marking_size(constants, inputs)
    index = torch.arange(count, device=targets.device) % len(targets)
    probe = rows(inputs, index)
    if len(targets) < count:
        generator = torch.Generator().manual_seed(0)
        for value in tensors(probe):
            if value.is_floating_point():
                normals = torch.randn(value.shape, generator=generator).to(value)
                value += noise * value.abs().mean().nan_to_num(0.0, 0.0, 0.0) * normals
    return probe, targets[index]


def marking_size(constants: Iterable[Tensor], inputs: Inputs) -> int:
    """A prime number that divides no size of `constants` or of one record of the inputs."""
    sizes = {size for value in constants for size in value.shape} | {s for x in tensors(inputs) for s in x.shape[1:]}
    return next((prime for prime in _PRIMES if all(size % prime for size in sizes)), _PRIMES[-1])


_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
_DROPOUT_POSITION = {
    **dict.fromkeys(_RECURRENT, 5),
    F.multi_head_attention_forward: 10,
    F.scaled_dot_product_attention: 4,
}


class NoDropout(TorchFunctionMode):
    """Dropout is left out, so that a model runs twice alike."""

    _DROPOUT = frozenset(
        function
        for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
        for function in (getattr(F, name, None), getattr(torch, name, None))
        if function is not None
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._DROPOUT:
            return args[0] if args else kwargs["input"]
        kwargs = dict(kwargs or {})
        if "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0
        at = _DROPOUT_POSITION.get(func)
        if at is not None and len(args) > at:
            at += func in _RECURRENT and not isinstance(args[3], bool)  # packed sequences come with their sizes
            args = (*args[:at], 0.0, *args[at + 1 :])
        return func(*args, **kwargs)


@contextmanager
def _perturbed(trainable: dict[str, nn.Parameter]) -> Iterator[None]:
    """Parameters moved a little, so that one that is zero hides no gradient behind it; put back exactly afterwards."""
    generator = torch.Generator().manual_seed(0)
    before = {name: parameter.detach().clone() for name, parameter in trainable.items()}
    try:
        for parameter in trainable.values():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.data += 0.1 * torch.where(parameter == 0, 0.3, parameter.detach()) * noise
        yield
    finally:
        for name, parameter in trainable.items():
            parameter.data.copy_(before[name])


def _check_state(model: nn.Module, versions: dict[str, int]) -> None:
    written = [name for name, value in model.named_parameters() if value._version != versions.get(name, 0)]
    if written:
        raise UnsupportedModel(
            f"layer {written[0].rpartition('.')[0]!r} writes the parameter {written[0]!r} during training, which would "
            "change weights without a private release. Keep such state in a buffer that does not follow the records."
        )
