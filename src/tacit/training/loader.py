"""The loader of a private run: batches of the private sampler, in physical batches that fit into memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from tacit import check
from tacit.accounting import How
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.gradients.module_state import with_leaves
from tacit.sampling import Batch, PoissonSampler, Sampling
from tacit.standing import Standing
from tacit.training.batch_session import DRAWS, BatchSession, PhysicalBatch
from tacit.training.collation import MIXED, MixedRecords, collated, collation_of
from tacit.training.guarded_data import MADE_OF_OWN, GuardedData
from tacit.training.ranks import check_processes
from tacit.training.records import DECLARED, AheadSampler, StreamedRecords

Transform = Callable[[Any, torch.Generator], Any]
"""`transform(record, generator)` makes another record of one record of the data set."""


def records_of(loader: object) -> int:
    """Number of records of a loader that a private sampler can stand in for; raises `InvalidInput` for any other."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        hint = "For a stream give DataLoader(tacit.training.StreamedRecords(stream, public_size=...), batch_size=...)."
        raise check.fail("loader", "a DataLoader of a data set with a length", type(loader).__name__, hint)
    assert isinstance(loader.dataset, Sized)
    sampler = loader.sampler
    plain = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(loader.dataset)
    )
    if loader.batch_size is not None and not plain:
        raise InvalidInput(
            f"loader must be without a sampler of its own, the private sampler takes its place; got "
            f"{type(sampler).__name__}. For a part of the data use torch.utils.data.Subset."
        )
    if loader.num_workers:
        warnings.warn(
            f"num_workers={loader.num_workers} is not used: private batches are gathered in this process. "
            "Decode the records beforehand if that is slow.",
            stacklevel=5,
        )
    return check.count("number of records of loader", len(loader.dataset))


def batches_in_a_pass(sampling: Sampling, records: int, sample_rate: float) -> int:
    """Number of batches in one pass over the data, exact or expected."""
    every = sampling.steps_alike(records, sample_rate)
    return every if every > 1 else max(1, round(1 / sample_rate))


class PrivateLoader:
    """Batches of the original loader's data set as the private sampler draws them.

    One pass yields as many logical batches as the plan has steps in a pass over the data, about 1 / sample_rate; each
    comes in physical batches of at most `max_physical_batch_size` records, and the optimizer steps after the last.

    Args:
        loader: the original loader.
        session: shared with the private model and optimizer.
        max_physical_batch_size: >= 1; None for whole logical batches.
        strict: refuse a `collate_fn` that mixes records; otherwise the ledger and a `PrivacyWarning` state that the
            run's numbers are only claimed.
        transform: `transform(record, generator)` makes another record of one.

    Raises:
        InvalidInput: `max_physical_batch_size` breaks its rule.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        session: BatchSession,
        max_physical_batch_size: int | None = None,
        *,
        strict: bool = True,
        transform: Transform | None = None,
    ):
        if max_physical_batch_size is not None:
            check.count("max_physical_batch_size", max_physical_batch_size)
        self.dataset = loader.dataset
        self.collate_fn = collation_of(loader)
        self.max_physical_batch_size = max_physical_batch_size
        self._original, self.session, self._strict, self._transform = loader, session, strict, transform
        self._guarded: GuardedData | None = None
        if isinstance(loader.dataset, StreamedRecords) and not isinstance(session.run.sampler, AheadSampler):
            self._stream(loader.dataset)

    @property
    def sample_rate(self) -> float:
        """Probability of each record in each batch."""
        return self.session.run.plan.sample_rate

    @property
    def batches(self) -> int:
        """Batches in one pass."""
        plan = self.session.run.plan
        return batches_in_a_pass(plan.sampling, plan.records, plan.sample_rate)

    def with_physical_batches(self, max_physical_batch_size: int) -> PrivateLoader:
        """The same run's loader with another bound on the physical batch size."""
        return PrivateLoader(
            self._original, self.session, max_physical_batch_size, strict=self._strict, transform=self._transform
        )

    def __len__(self) -> int:
        if self.max_physical_batch_size is None:
            return self.batches
        per_batch = max(1.0, self.session.run.plan.expected_batch_size / self.max_physical_batch_size)
        return math.ceil(self.batches * per_batch)

    def __iter__(self) -> Iterator[Any]:
        self._begin_pass()
        run = self.session.run
        run.loops += 1
        try:
            yield from self._batches(run.unfinished)
        finally:
            run.loops -= 1

    def _batches(self, left: int) -> Iterator[Any]:
        """The batches of a pass, at most `left` within the plan."""
        calls = self.session.checks.calls
        calls.end()
        for _ in range(min(self.batches, left) if self.session.within_plan else self.batches):
            batch = self.session.open()
            present = self._present(batch)
            size = self.max_physical_batch_size or max(1, len(batch))
            if batch.owners is not None:
                # A unit of several records is clipped as one, so it stays in one physical batch.
                size = max(1, len(batch))
            starts = range(0, max(1, len(present)), size)
            for start in starts:
                indices = present[start : start + size]
                self.session.issue(PhysicalBatch(len(indices), start == starts[-1]))
                rows = self._traced(self.batch_of(indices))
                calls.begin()
                yield rows
                calls.end()
        if self.session.run.unfinished:
            calls.begin()

    def _present(self, batch: Batch) -> np.ndarray:
        """The records of a batch; of a stream those of its positions that have one."""
        if not isinstance(self.dataset, StreamedRecords):
            return batch.indices
        sampler = self.session.run.sampler
        assert isinstance(sampler, AheadSampler)
        ahead = [int(index) for later in sampler.drawn for index in later.indices]
        return np.array(self.dataset.present(batch.indices.tolist(), ahead), np.int64)

    def _stream(self, dataset: StreamedRecords) -> None:
        """Draw batches of a stream as many steps ahead as one pass serves."""
        run = self.session.run
        if type(run.sampler) is not PoissonSampler or run.processes > 1:
            hint = 'Use sampling="poisson" in one process, or a data set that reads records by number.'
            raise check.fail("sampling of a stream", "poisson in one process", run.plan.sampling.type, hint)
        run.sampler = AheadSampler(run.sampler, dataset.steps_per_pass)

    def _begin_pass(self) -> None:
        """Check that one process trains, and once before the first batch that the data set keeps records apart."""
        checks = self.session.checks
        check_processes(checks.model.model, self.session.run.processes)
        if self._guarded is not None:
            return
        if isinstance(self.dataset, StreamedRecords):
            checks.facts.declare("rows", DECLARED)
            return
        self._guarded = GuardedData(self.dataset, checks.public_identities, self._transform, self.collate_fn)
        checks.facts.note("rows", How.ENFORCED, MADE_OF_OWN)

    def _traced(self, batch: Any) -> Any:
        """The batch with every tensor on its trace."""
        trace = self.session.trace
        assert trace is not None
        DRAWS.begin(trace)
        return with_leaves(
            batch, lambda _, value: trace.root(value) if isinstance(value, Tensor) and value.dim() else value
        )

    def batch_of(self, indices: np.ndarray) -> Any:
        """The records `indices` as the loop gets them, without a trace."""
        if type(self.dataset) is TensorDataset and self._transform is None and self.collate_fn is default_collate:
            index = torch.from_numpy(indices)
            return [tensor.index_select(0, index.to(tensor.device)) for tensor in self.dataset.tensors]
        if len(indices):
            return self._collate(self._records(indices.tolist()))
        # An empty batch still needs its shapes and types: those of the first record, none of its values.
        first = self.collate_fn(self._records([0]))
        return with_leaves(first, lambda _, value: value[:0] if isinstance(value, Tensor) else value)

    def _collate(self, records: list[Any]) -> Any:
        ledger = self.session.run.ledger
        if MIXED in ledger.unsafe:
            return self.collate_fn(records)
        try:
            return collated(self.collate_fn, records)
        except MixedRecords as found:
            if self._strict:
                raise
            ledger.mark_unsafe(MIXED, Standing.CLAIMED)
            warnings.warn(
                f"{found} Until then every epsilon of this run is only claimed.", PrivacyWarning, stacklevel=4
            )
            return self.collate_fn(records)

    def _records(self, indices: list[int]) -> list[Any]:
        """The records `indices`, watched in a run and transformed; a stream gives those that it holds."""
        if isinstance(self.dataset, StreamedRecords):
            records = self.dataset.__getitems__(indices)
        else:
            data = self.dataset if self._guarded is None else self._guarded
            with self.session.checks.marking():
                records = [data[index] for index in indices]
            if self._guarded is not None and self._guarded.doubt:
                self.session.checks.facts.missing("rows", self._guarded.doubt)
        if self._transform is None:
            return records
        # Seeded from torch's generator, as workers of a DataLoader are, so that a seeded run repeats.
        draw = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        return [self._transform(record, draw) for record in records]
