"""One private update: clip, add noise, divide by the expected batch size, and let any optimizer step.

In mixed precision the model computes in bfloat16; norms, clipped sums, noise and weights stay in float32. With
`mean_of_copies` the loss of a record is the mean over augmented copies of it, made inside of the model's call.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from tacit import check
from tacit.clipping import Clip, clip_of
from tacit.errors import OptimizerMismatch, TrainingMisuse
from tacit.gradients import ClippedSum, FlatGradient, UnitIds, first_batch_check
from tacit.gradients.flat_gradient import trim_memory
from tacit.gradients.inputs import Inputs, Loss, PhysicalBatch, batch_size, check_weights_kept
from tacit.mechanisms import Gaussian
from tacit.noise import SecureStream, Stream
from tacit.training.optimizers import AdamBC, apply_gradients
from tacit.training.plan_options import PRECISIONS, PlanFields, PlanOptions, options_of
from tacit.training.release import Correlation, NoisyMean, Release
from tacit.training.release_monitor import ReleaseMonitor

_OF_THE_CALLER = ("sampling", "noise", "target", "accountant", "epochs", "delta", "precision")
_MEASURED_AFTER = 64
"""Steps after which "auto" measures where their number is not known, and again after twice as many; as many more are
then expected."""


def private_step(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss,
    *,
    options: PlanOptions | None = None,
    stream: Stream | None = None,
    **named: Unpack[PlanFields],
) -> Callable[[Inputs, Tensor], None]:
    """Function `step(inputs, targets)` that makes one private update and accounts for nothing.

        g = (sum_i clipped g_i + N(0, (noise_multiplier * clip_norm)^2 I)) / expected_batch_size;  optimizer.step()

    The guarantee depends on how batches are drawn and how many steps are taken; `fit` and `make_private` draw the
    batches, use this step and write the ledger. An empty batch still adds noise and steps.

    Args:
        model: in train mode whenever a step is taken.
        optimizer: any `torch.optim` optimizer of exactly the model's trainable parameters.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        options: clip, noise multiplier, expected batch size and engine; or its fields as keywords. The divisor is
            `expected_batch_size`, `batch_size`, or sample_rate times `public_size`, never the drawn size, which is
            private. `engine="auto"` measures at the first of `steps` steps, or after 64, 128, ... for as many more
            where `steps` is not given. The plan and its cost are the caller's: `sampling`, `noise`, `target`,
            `accountant`, `epochs`, `delta` and `precision` are refused.
        stream: source of the noise; a new `SecureStream` by default.
        **named: fields of `PlanOptions`, in place of those of `options`.

    Returns:
        The step; inputs of shape (batch, ...), targets of shape (batch, ...).

    Raises:
        InvalidInput: an argument breaks its rule.
        OptimizerMismatch: `optimizer` is not one of all trainable parameters of `model`.

    Example:
        >>> import torch
        >>> from torch.nn.functional import cross_entropy
        >>> model = torch.nn.Linear(3, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> step = private_step(
        ...     model, optimizer, lambda out, y: cross_entropy(out, y, reduction="none"),
        ...     clip_norm=1.0, noise_multiplier=1.0, expected_batch_size=8)
        >>> step(torch.randn(8, 3), torch.zeros(8, dtype=torch.long))

    Source: Abadi et al. 2016, Algorithm 1; the fixed divisor as in Bu et al. 2020 with m = p n.
    """
    options = options_of(options, named, private_step)
    options.refuse(_OF_THE_CALLER, where="private_step, which neither draws batches nor accounts", hint="Use fit.")
    noise = options.noise_multiplier
    if not isinstance(noise, int | float):
        raise check.fail("noise_multiplier", "one number for all steps", noise, "Use e.g. 1.0.")
    Gaussian(noise, options.unsafe_no_noise)
    copies = model, loss, options.augment, options.augmentations, options.engine
    engine, stream = options.engine if options.augment is None else "eager", stream or SecureStream()
    with mean_of_copies(*copies) as mean_loss:
        clip = clip_of(options.clip_norm, options.clipping)
        parts = model, optimizer, mean_loss, clip, _divisor(options), engine, stream
        update = PrivateUpdate(*parts, options.max_physical_batch_size)
    steps = None if options.steps is None else check.count("steps", options.steps)
    number = itertools.count()

    def step(inputs: Inputs, targets: Tensor) -> None:
        taken = next(number)
        if update.stream.secure and steps is not None:
            update.choose_engine(inputs, targets, max(steps - taken, 0))
        elif update.stream.secure and taken >= _MEASURED_AFTER and taken & (taken - 1) == 0:
            update.choose_engine(inputs, targets, taken, final=False)
        with mean_of_copies(*copies):
            update(inputs, targets, noise)

    return step


def _divisor(options: PlanOptions) -> float:
    """The public divisor of the noisy sum, by the one of the fields that names it."""
    rate, size = options.sample_rate, options.public_size
    if (rate is None) != (size is None):
        raise check.fail("public_size", "given exactly when sample_rate is", size, "Or give expected_batch_size.")
    by_rate = None if rate is None else check.probability("sample_rate", rate) * check.count("public_size", size)
    given = [each for each in (options.expected_batch_size, options.batch_size, by_rate) if each is not None]
    if len(given) != 1:
        raise check.fail("expected_batch_size", "given, or batch_size in its place", given or None)
    return check.positive("expected_batch_size", given[0])


class PrivateUpdate:
    """The update of `private_step` for many batches; the noise multiplier is given step by step.

    Args:
        model: in train mode whenever a step is taken.
        optimizer: any `torch.optim` optimizer of exactly the model's trainable parameters.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        clip: the clip of the first step.
        expected_batch_size: > 0.
        engine: as in `PlanOptions`.
        stream: source of the noise.
        max_physical_batch_size: records that go through the model at a time, >= 1, or "auto".
        correlation: of the run's noise; None for noise that is independent from step to step.

    Raises:
        InvalidInput: `max_physical_batch_size` is "auto" with another engine than the eager one.

    Attributes:
        model: that is trained.
        optimizer: of the model.
        loss: one value per record.
        clipped: the clipped sum, with the model's probe and the clip of the next step.
        full_precision: whether the model computes in the precision of its parameters, so that its sums can be compared.
        engine: that of the next step, "eager", "recorded" or "compiled".
        stream: source of the noise.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        clip: Clip,
        expected_batch_size: float,
        engine: str,
        stream: Stream,
        max_physical_batch_size: int | Literal["auto"] | None = None,
        correlation: Correlation | None = None,
    ):
        check_optimizer(model, optimizer)
        self.model, self.optimizer, self.loss, self.stream = model, optimizer, loss, stream
        self._noisy_mean = NoisyMean(stream, correlation=correlation)
        self._expected = expected_batch_size
        self.clipped = ClippedSum(
            model, clip, max_physical_batch_size=max_physical_batch_size, expected_batch_size=expected_batch_size
        )
        # Clips that need the norms are refused by the recorded lanes.
        self._no_norms = torch.zeros(0)
        self._checked, self.full_precision = False, True
        self._compiled = None
        self._chooses = self._chosen = engine == "auto"
        self._max_physical_batch_size: int | Literal["auto"] | None = max_physical_batch_size
        self.engine = "eager" if self._chooses else engine
        if engine in ("recorded", "compiled"):
            from tacit.training.compile import CompiledSum

            if max_physical_batch_size == "auto":
                raise check.fail("max_physical_batch_size", f"a number with the {engine} engine", "auto")
            self._compiled = CompiledSum(
                self.clipped, loss, expected_batch_size, max_physical_batch_size, compiler=engine == "compiled"
            )

    def sizes(self, batches: Iterable[int]) -> set[int]:
        """With how many records the model and the loss run for batches of so many."""
        most, parts = self._max_physical_batch_size, set(batches)
        if isinstance(most, int) and max(parts) > most:
            parts = {size for records in parts for size in (min(records, most), records % most)}
        parts.discard(0)
        return parts if self._compiled is None else set(map(self._compiled.size, parts))

    def check_first_batch(self, inputs: Inputs, targets: Tensor) -> None:
        """Run `first_batch_check` once; call it before the step to run it in another precision than the step's."""
        if not self._checked and batch_size(inputs, targets):
            first_batch_check(self.clipped, self.loss, inputs, targets)
            trim_memory()
            self._checked = True

    def choose_engine(self, inputs: Inputs, targets: Tensor, steps: int, *, final: bool = True) -> None:
        """With the engine "auto", choose the one of the remaining steps, once; see `recorded_where_faster`.

        Args:
            inputs: of a batch.
            targets: of a batch.
            steps: that remain, >= 0.
            final: whether "eager" stays chosen.
        """
        size = self._max_physical_batch_size
        if not self._chooses or size == "auto" or not self.full_precision or not batch_size(inputs, targets):
            return
        from tacit.training.compile import CompiledSum
        from tacit.training.replayed_passes import program_stands, recorded_where_faster

        clipped, loss, expected = self.clipped, self.loss, self._expected
        stands = program_stands(clipped, loss, clipped.is_fixed(loss, inputs, targets))
        if stands is None:
            return
        self._chooses = False
        if not stands:
            return
        record = partial(CompiledSum, clipped, loss, expected, size, compiler=False)
        batch = inputs, targets
        self._compiled = recorded_where_faster(
            clipped.model, partial(clipped, loss), record, batch, expected, steps, loss
        )
        self.engine = "eager" if self._compiled is None else "recorded"
        self._chooses = self._compiled is None and not final

    def __call__(
        self,
        inputs: Inputs,
        targets: Tensor,
        noise_multiplier: float,
        unit_ids: UnitIds | None = None,
        monitor: ReleaseMonitor | None = None,
    ) -> None:
        """Make one update.

        Args:
            inputs: tensor (batch, ...), or a tuple or dict of them.
            targets: shape (batch, ...).
            noise_multiplier: noise std / sensitivity of the clip.
            unit_ids: privacy unit of every record; None where every record is a unit of its own.
            monitor: of a run with a ledger.
        """
        check_mode(self.model)
        first = not self._checked
        self.check_first_batch(inputs, targets)
        clip = self.clipped.clip
        total, norms = None, self._no_norms
        if self._compiled is not None and self._compiled.changed() and self._chosen:
            # What runs from now on is not what was examined.
            self._compiled, self.engine = None, "eager"
        if self._compiled is not None and unit_ids is None:
            total = self._compiled(inputs, targets)
        if total is None:
            total, norms = self.clipped(self.loss, inputs, targets, unit_ids)
        if monitor is not None:
            if monitor.due and self.full_precision:
                monitor.compare_sum(self.clipped, PhysicalBatch(self.loss, inputs, targets), total, clip)
            monitor.summed(clip, total, len(norms))
        released = self._noisy_mean(clip, total, norms, noise_multiplier, self._expected)
        if monitor is not None:
            monitor.released(released, self._expected)
        self.apply(released)
        if first:
            # What the first step allocates once lies between its free memory, which the later ones would not fill.
            trim_memory()

    def summed(
        self, inputs: Inputs, targets: Tensor, unit_ids: UnitIds | None, drawn: int
    ) -> tuple[FlatGradient, Tensor]:
        """Clipped sum and norms of one rank's share of a batch of `drawn` records, for a release by all ranks.

        Args:
            inputs: of the share; as in a call.
            targets: of the share.
            unit_ids: as in a call.
            drawn: number of records of the logical batch.
        """
        check_mode(self.model)
        self.check_first_batch(inputs, targets)
        return self.clipped(self.loss, inputs, targets, unit_ids, drawn=drawn)

    def apply(self, released: Release) -> None:
        """Let the optimizer step on what was released; its clip is that of the next step."""
        self.clipped.clip = released.clip
        apply_release(self.clipped.trainable, self.optimizer, released)


def apply_release(trainable: dict[str, nn.Parameter], optimizer: Optimizer, released: Release) -> None:
    """Hand the gradients to the optimizer, step, and leave none behind."""
    if isinstance(optimizer, AdamBC):
        optimizer.expect_noise(released.noise_std)
    try:
        apply_gradients(optimizer, trainable, released.mean.parts)
    except RuntimeError as error:
        check_weights_kept(error)
        raise


def check_mode(model: nn.Module) -> None:
    """Raise `TrainingMisuse` for a model in eval mode, in which layers such as dropout differ."""
    if not model.training:
        raise TrainingMisuse("model must be in train mode; got eval mode. Call model.train() first.")


def check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise unless the optimizer holds exactly the trainable parameters of the model."""
    if not isinstance(optimizer, Optimizer):
        raise check.fail("optimizer", "a torch.optim optimizer of the model's parameters", type(optimizer).__name__)
    named = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    if isinstance(optimizer, LBFGS):
        hint = "It runs the loss several times in one step; use SGD or Adam."
        raise check.fail("optimizer", "one that steps once for each batch", "LBFGS", hint)
    foreign = len(held - named.keys())
    if foreign:
        raise OptimizerMismatch(
            f"optimizer must hold the parameters of this model; got {foreign} of another. "
            "Build it from model.parameters()."
        )
    missing = [name for key, name in named.items() if key not in held]
    if missing:
        raise OptimizerMismatch(
            f"optimizer must hold every trainable parameter of the model; got none for {', '.join(missing)}. "
            "Set requires_grad=False on what is not to be trained."
        )


@contextmanager
def computed_in(model: nn.Module, precision: str) -> Iterator[None]:
    """Context in which calls of `model` run in `precision`: "float32", or "bfloat16" by autocast with float32 outputs.

    Only the forward pass, and what autograd makes of it, is in bfloat16. Norms and clipped sums are made in float32
    from the same activations and output gradients, so a clipped contribution stays within the bound.
    """
    if check.choice("precision", precision, PRECISIONS) == "float32":
        yield
        return
    autocast = torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16)

    def enter(module: nn.Module, inputs: Any) -> None:
        autocast.__enter__()

    def leave(module: nn.Module, inputs: Any, outputs: Any) -> Any:
        autocast.__exit__(None, None, None)
        return outputs.float() if isinstance(outputs, Tensor) else outputs

    # Hooks instead of a module around the model: parameters keep their names, on which clipping may depend.
    with model.register_forward_pre_hook(enter), model.register_forward_hook(leave, always_call=True):
        yield


Augment = Callable[..., Any]
"""`augment(*inputs)` makes other rows of a batch's rows, each of its own row alone; for several inputs a tuple."""


@contextmanager
def mean_of_copies(
    model: nn.Module, loss: Loss, augment: Augment | None, augmentations: int, engine: str = "eager"
) -> Iterator[Loss]:
    """Context in which `model` in train mode runs on copies of each record; gives the loss that goes with it.

    Row i of the inputs becomes K rows, each by a call of `augment`, and row i of the outputs (K, ...) theirs. The
    gradient of a record is then the mean of its copies', before it is clipped: one record of one sensitivity, whatever
    K is. The copies are made where the model is typed, so that the record types see what `augment` reads.

    Source: De et al. 2022 (arXiv 2204.13650), augmentation multiplicity.

    Args:
        model: takes tensors by position; left as it was at the end.
        loss: of the outputs of one copy of each record, and its target.
        augment: see `Augment`; None for the records as they are.
        augmentations: K, copies of a record in one step, >= 1.
        engine: that was asked for.

    Raises:
        InvalidInput: copies are asked for without `augment` or of another engine, or `augment` gives another number of
            rows.
    """
    count = check.count("augmentations", augmentations)
    if augment is None:
        if count > 1:
            raise check.fail("augment", "given with augmentations", None, "Or leave out augmentations.")
        yield loss
        return
    if engine not in ("auto", "eager"):
        raise check.fail("engine", "eager with augment", engine, "A recording would repeat its draws.")
    copies = _Copies(augment, count)
    # Hooks instead of a module around the model: parameters keep their names, on which clipping may depend.
    with model.register_forward_pre_hook(copies.spread), model.register_forward_hook(copies.gather):
        yield _MeanLoss(loss, count)


@dataclass(frozen=True)
class _Copies:
    augment: Augment
    count: int

    def spread(self, model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The inputs of all copies, those of one record in a row."""
        if not model.training:
            return None
        if not inputs:
            raise check.fail("inputs", "a tensor or a tuple of them with augment", "a dict")
        made = [self._rows(inputs) for _ in range(self.count)]
        return tuple(torch.stack(each, dim=1).flatten(0, 1) for each in zip(*made, strict=True))

    def gather(self, model: nn.Module, inputs: tuple[Any, ...], outputs: Any) -> Any:
        """The outputs, (B, K, ...)."""
        if not model.training:
            return None
        return outputs.unflatten(0, (outputs.shape[0] // self.count, self.count))

    def _rows(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        found = self.augment(*inputs)
        rows = found if isinstance(found, tuple) else (found,)
        if [len(each) for each in rows] != [len(each) for each in inputs]:
            raise check.fail(
                "augment", "a function that gives a row for each row", [tuple(each.shape) for each in rows]
            )
        return rows


@dataclass(frozen=True)
class _MeanLoss:
    loss: Loss
    count: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of the copies of each record, (B,)."""
        losses = self.loss(outputs.flatten(0, 1), targets.repeat_interleave(self.count, 0))
        return losses.reshape(targets.shape[0], self.count).mean(1)
