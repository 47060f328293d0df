"""`BatchMemoryManager`: logical batches as physical batches that fit into memory."""

from __future__ import annotations

from types import TracebackType

from tacit import check
from tacit.training.loader import PrivateLoader
from tacit.training.wrappers import PrivateOptimizer


class BatchMemoryManager:
    """Context in which the private loader yields physical batches of at most `max_physical_batch_size` records.

        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=64, optimizer=optimizer) as batches:
            for inputs, targets in batches:
                optimizer.zero_grad()
                criterion(model(inputs), targets).backward()
                optimizer.step()

    `step` does nothing until the last physical batch of a logical batch; then it adds noise once, to the whole sum. The
    result does not depend on `max_physical_batch_size`.

    Args:
        data_loader: the loader that `make_private` returned.
        max_physical_batch_size: >= 1.
        optimizer: the optimizer that the same call returned.

    Raises:
        InvalidInput: an argument breaks its rule.
    """

    def __init__(self, *, data_loader: PrivateLoader, max_physical_batch_size: int, optimizer: PrivateOptimizer):
        if not isinstance(data_loader, PrivateLoader):
            rule = "the loader that make_private returned"
            raise check.fail("data_loader", rule, type(data_loader).__name__)
        if not isinstance(optimizer, PrivateOptimizer) or not optimizer.steps_on(data_loader):
            rule = "the optimizer that make_private returned together with data_loader"
            raise check.fail("optimizer", rule, type(optimizer).__name__)
        check.count("max_physical_batch_size", max_physical_batch_size)
        self._loader = data_loader.with_physical_batches(max_physical_batch_size)

    def __enter__(self) -> PrivateLoader:
        return self._loader

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to undo: the original loader was left as it is."""
