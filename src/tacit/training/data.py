"""What `fit` accepts as data and model, checked before the first step; where the data lie, and in which precision."""

import os
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from tacit import check
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.gradients import examine
from tacit.gradients.flat_gradient import Buffers
from tacit.gradients.inputs import Inputs, Loss, batch_size, losses_of, map_tensors, outputs_of, tensors
from tacit.gradients.model_probe import check_records
from tacit.gradients.module_state import copy_to_run, restored_generators
from tacit.sampling import Batch
from tacit.training.callbacks import Callback
from tacit.training.collation import collated, collation_of
from tacit.training.guarded_data import GuardedData
from tacit.training.private_step import check_mode, check_optimizer, computed_in
from tacit.verification.calls import flat


@dataclass(frozen=True)
class CheckedRecords:
    """All training records.

    Attributes:
        inputs: tensor (n, ...), or a tuple or dict of them.
        targets: tensor (n, ...).
        device: device of the model, to which batches are moved.
        doubt: why it is not known that each record is made of its own entries; "" where it is.
        buffers: memory of a batch, which the next one takes over.
    """

    inputs: Inputs
    targets: Tensor
    device: torch.device
    doubt: str = ""
    buffers: Buffers = field(default_factory=Buffers)

    def batch(self, batch: Batch) -> tuple[Inputs, Tensor]:
        """Inputs and targets of `batch`, on the device of the model."""
        index, places = torch.from_numpy(batch.indices), count()

        def drawn(values: Tensor) -> Tensor:
            rows = self.buffers.like(next(places), values[:1].expand(len(index), *values.shape[1:]))
            return torch.index_select(values, 0, index.to(values.device), out=rows).to(self.device)

        with torch.no_grad():
            return map_tensors(drawn, self.inputs), drawn(self.targets)

    def check_device(self, asked: str | torch.device | None) -> None:
        """Raise `InvalidInput` unless `asked`, to move all records there, or their device is that of the model."""
        if asked is not None:
            try:
                wanted = torch.device(asked)
            except (RuntimeError, TypeError):
                raise check.fail("device", 'a torch device such as "cpu" or "cuda"', asked) from None
            if (wanted.type, wanted.index or 0) != (self.device.type, self.device.index or 0):
                hint = f"Move the model with model.to({str(asked)!r}) before making its optimizer."
                raise check.fail("device", f"that of the model, {self.device}", str(asked), hint)
            return
        for value in (*tensors(self.inputs), self.targets):
            if value.device != self.device:
                raise InvalidInput(
                    f"inputs and targets must be on the device of the model, {self.device}; got {value.device}. "
                    f'Give device="{self.device}" to have every batch moved there, or move the data once.'
                )


def as_inputs(inputs: Any) -> Inputs:
    """Arrays or tensors (one, or a tuple or dict of them) as tensors; raises where a value is NaN or infinite."""
    if isinstance(inputs, dict):
        return {name: _tensor(name, value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_tensor(f"inputs[{i}]", value) for i, value in enumerate(inputs))
    return _tensor("inputs", inputs)


def check_data(model: nn.Module, loss: Loss, records: CheckedRecords, *, private: bool = True) -> int:
    """Number of records, after the model and the loss have run on the first two of them.

    Args:
        model: in train mode.
        loss: one value per record.
        records: to train on.
        private: whether records must not mix, nor be kept; tested before a call that could keep something.

    Raises:
        InvalidInput: data are empty, lengths or widths do not fit, labels lie outside the model's classes, or the loss
            does not give one value per example.
        UnsupportedModel: the model mixes these records, or keeps values of them.
    """
    count = batch_size(records.inputs, records.targets)
    check.that(count, "inputs", "at least one record", 0)
    if private:
        check_records(model, *records.batch(Batch(np.arange(2) % count)), loss)
    with torch.no_grad(), restored_generators():
        _check_call(model, loss, records)
    return count


def _check_call(model: nn.Module, loss: Loss, records: CheckedRecords) -> None:
    """Call a copy of the model, as some keep values of their first batch, on at most two records."""
    few, targets = records.batch(Batch(np.arange(min(2, len(records.targets)))))
    with copy_to_run(model) as module:
        outputs = outputs_of(module, few)
        if isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1:
            _check_labels(records.targets, outputs.shape[1])
        losses_of(loss, outputs, targets)


def _check_labels(targets: Tensor, classes: int) -> None:
    if targets.dim() != 1 or targets.is_floating_point():
        return
    outside = torch.nonzero((targets < 0) | (targets >= classes)).flatten()
    if len(outside):
        found = check.private_values(targets[outside[:5]].tolist())
        raise InvalidInput(
            f"targets must be labels in 0..{classes - 1}, the classes that the model puts out; got {found!r} at row "
            f"{int(outside[0])}. Encode them with the declared classes."
        )


def _tensor(name: str, value: Any) -> Tensor:
    try:
        # Data frames return read-only views, which torch does not share.
        tensor = (
            value if isinstance(value, Tensor) else torch.as_tensor(np.require(np.asarray(value), requirements="W"))
        )
    except (TypeError, ValueError) as error:
        # What numpy says may quote a value of the data.
        told = error if check.values_shown() else f"{type(error).__name__}."
        raise InvalidInput(f"{name} must be an array of numbers; got {type(value).__name__}. {told}") from None
    if tensor.dtype == torch.float64 and not isinstance(value, Tensor):
        tensor = tensor.float()
    if tensor.is_floating_point():
        bad = torch.nonzero(~torch.isfinite(tensor))
        if len(bad):
            raise InvalidInput(f"{name} must be finite; got NaN or infinity at {_locations(bad)}. Impute or drop them.")
    return tensor


def _locations(bad: Tensor) -> str:
    found = f"rows {_first_few(bad[:, 0].unique().tolist())}"
    return found + (f", columns {_first_few(bad[:, 1].unique().tolist())}" if bad.shape[1] > 1 else "")


def _first_few(values: Sequence[int]) -> str:
    listed = ", ".join(str(value) for value in values[:5])
    return listed + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def stacked(dataset: Dataset[Any] | DataLoader[Any], public: Iterable[object] = ()) -> tuple[Any, Any, str]:
    """Inputs and targets of every record, in order, and the doubt of `GuardedData` about them.

    A record is (input, target) or (input, ..., target).

    A loader gives its data set and `collate_fn`; its order and batches do not matter. Every record is read once, so a
    random augmentation would be frozen: `make_private` reads records anew for each batch.

    Raises:
        InvalidInput: the data set has no length or does not fit in memory, records have another form, or `collate_fn`
            makes a record's row depend on other records, as padding to the longest does.
    """
    collate = collation_of(dataset)
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        hint = "Private sampling draws records by number."
        raise check.fail("inputs", "a data set with a length", type(dataset).__name__, hint)
    if isinstance(dataset, TensorDataset) and collate is default_collate:
        return *_split(dataset.tensors), ""
    check.that(len(dataset), "inputs", "at least one record", 0)
    _check_memory(collate([dataset[0]]), len(dataset))
    guarded = GuardedData(dataset, map(id, public), collate)
    columns = _split(collated(collate, [guarded[i] for i in range(len(dataset))]))
    return *columns, guarded.doubt


def _split(columns: Any) -> tuple[Any, Tensor]:
    if not isinstance(columns, list | tuple) or len(columns) < 2:
        kind = f"{len(columns)} values" if isinstance(columns, list | tuple) else type(columns).__name__
        raise check.fail("records of inputs", "pairs (input, target)", kind, "Return both from the data set.")
    *inputs, targets = columns
    return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets


def _check_memory(batch: Any, records: int) -> None:
    """Raise `InvalidInput` where so many records, of which `batch` holds one, do not fit in memory."""
    needed = sum(leaf.numel() * leaf.element_size() for leaf in flat(batch) if isinstance(leaf, Tensor)) * records
    free = _free_memory()
    # CheckedRecords are held one by one and then stacked, so both are there at once.
    if free is not None and 2 * needed > free:
        raise InvalidInput(
            f"inputs must be a data set that fits in memory twice; got one of about {needed / 2**30:.1f} GiB for "
            f"{free / 2**30:.1f} GiB free. Use make_private, which reads the records of a batch when it is drawn."
        )


def _free_memory() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


SCHEDULER_PERIODS = ("epoch", "step")


def validate_inputs(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    loss: Loss,
    optimizer: Optimizer,
    precision: str,
    device: str | torch.device | None,
    public: Iterable[object] = (),
    *,
    private: bool = True,
) -> tuple[CheckedRecords, int]:
    """The records as tensors and their number, after the checks of `fit`.

    Args:
        model: in train mode; no layer may mix examples.
        inputs: array, tensor, tuple or dict of them, or a `torch.utils.data` data set or loader.
        targets: array or tensor; None for a data set.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        optimizer: of exactly the trainable parameters of `model`.
        precision: "float32" or "bfloat16".
        device: that of the model, to have each batch moved there; None when the data lie there.
        public: what the data set reads and was declared public.
        private: whether the records must not mix.

    Raises:
        InvalidInput: data, loss, optimizer, precision or device break their rule.
        UnsupportedModel: a layer cannot be trained privately.
        TrainingMisuse: `model` is in eval mode, or `optimizer` is not one of all its trainable parameters.
    """
    examine(model)
    check_mode(model)
    check_optimizer(model, optimizer)
    doubt = ""
    if isinstance(inputs, Dataset | DataLoader):
        if targets is not None:
            raise check.fail("targets", "left out with a data set, which holds them", type(targets).__name__)
        inputs, targets, doubt = stacked(inputs, public)
    elif targets is None:
        raise check.fail("targets", "given unless inputs is a torch.utils.data data set", None)
    home = next(parameter.device for parameter in model.parameters() if parameter.requires_grad)
    records = CheckedRecords(as_inputs(inputs), _tensor("targets", targets), home, doubt)
    records.check_device(device)
    with computed_in(model, precision):
        return records, check_data(model, loss, records, private=private)


def check_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """`callbacks`, if each is one."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise check.fail("callbacks", "made of tacit.training.Callback objects", type(callback).__name__)
    return list(callbacks)


def check_scheduler(optimizer: Optimizer, scheduler: object, scheduler_per: str) -> LRScheduler | None:
    """`scheduler`, if it is a schedule of `optimizer` that needs no metric."""
    check.choice("scheduler_per", scheduler_per, SCHEDULER_PERIODS)
    if scheduler is None:
        return None
    if isinstance(scheduler, ReduceLROnPlateau) or not isinstance(scheduler, LRScheduler):
        hint = "Step one that looks at a held-out metric in on_epoch."
        raise check.fail("scheduler", "a torch.optim schedule of the step counter", type(scheduler).__name__, hint)
    if scheduler.optimizer is not optimizer:
        raise TrainingMisuse("scheduler must be one of this optimizer; got one of another. Build it from optimizer.")
    return scheduler


def batch_size_of(inputs: Any, batch_size: float | None, sample_rate: float | None) -> float | None:
    """The batch size that is given, or that of a loader when neither size nor rate is."""
    given = batch_size is not None or sample_rate is not None
    return inputs.batch_size if isinstance(inputs, DataLoader) and not given else batch_size
