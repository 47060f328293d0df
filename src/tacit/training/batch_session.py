"""What the private model, optimizer and loader tell one another: the batch in hand and its clipped sum."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import TrainingMisuse
from tacit.gradients import FlatGradient, UnitIds
from tacit.sampling import Batch
from tacit.training.plan import PrivateRun, members_of
from tacit.training.release import Release


@dataclass(eq=False)
class Piece:
    """A part of a batch that is in memory at a time: `size` records, and whether it is the batch's last."""

    size: int
    last: bool
    recorded: bool = False


class BatchSession:
    """One logical batch at a time: opened, handed out in pieces, summed up, and released once.

    Attributes:
        run: the plan in motion.
        reduction: what loss the loop gives, see `cotangents`.
        divided: whether the release is divided by the expected batch size.
    """

    def __init__(self, run: PrivateRun, reduction: str = "none", divided: bool = True):
        self.run, self.reduction, self.divided = run, reduction, divided
        self.backwards = 0
        self._batch: Batch | None = None
        self._piece: Piece | None = None
        self._total: FlatGradient | None = None
        self._norms: list[Tensor] = []

    @property
    def members(self) -> UnitIds | None:
        """Which records of the batch in hand are clipped as one; None where each is by itself."""
        return members_of(self._batch) if self._batch is not None else None

    @property
    def complete(self) -> bool:
        """Whether every piece of a batch is summed up, and nothing released yet."""
        return self._piece is not None and self._piece.last and self._piece.recorded

    @property
    def in_hand(self) -> Piece | None:
        """The piece that was handed out and waits for `backward`."""
        return self._piece if self._piece is not None and not self._piece.recorded else None

    def open(self) -> Batch:
        """The batch to hand out next: a new one once the last has been released, else the same from its start."""
        if self.complete:
            raise TrainingMisuse(
                "step must be taken after backward on every batch; got the next batch asked for without one. "
                "For larger batches raise batch_size and bound memory by max_physical_batch_size (BatchMemoryManager)."
            )
        self._batch = self.run.issue()
        self._piece = self._total = None
        self._norms = []
        return self._batch

    def hand_out(self, piece: Piece) -> None:
        """`piece` follows; the one before it must have been recorded, or none of the batch."""
        if self._total is not None and self._piece is not None and not self._piece.recorded:
            raise TrainingMisuse(
                "backward must be called on every piece of a batch; got the next piece asked for without it. "
                "To leave out some records of a batch because of others would not be private."
            )
        if self._piece is not None and self._total is None:
            raise TrainingMisuse("backward must be called on every piece of a batch; got none for the first piece.")
        self._piece = piece

    def check_size(self, sizes: list[int]) -> None:
        """The model is given the piece in hand."""
        if self._piece is None or any(size != self._piece.size for size in sizes):
            raise TrainingMisuse(
                "model must be given the batch that the private loader yielded last; got another. "
                "Iterate the loader that make_private returned, not the original one."
            )

    def check_first(self) -> None:
        """No gradient of the piece in hand has been taken."""
        if self._piece is None or self._piece.recorded:
            raise TrainingMisuse("backward must be called once for each batch; got a second call. Step first.")

    def check_between(self, what: str) -> None:
        """No part of a batch has been summed up yet."""
        if self._total is not None:
            raise TrainingMisuse(f"{what} between batches; got one after backward. Step first.")

    def record(self, total: FlatGradient, norms: Tensor) -> None:
        """Add the clipped sum of the piece in hand, made of gradients with these norms."""
        self.check_first()
        assert self._piece is not None
        self._piece.recorded = True
        self.backwards += 1
        self._norms.append(norms)
        if self._total is None:
            self._total = total
        else:
            self._total.flat.add_(total.flat)

    def release(self) -> Release | None:
        """The noisy gradient of the batch, recorded in the ledger; None while pieces of it are still to come."""
        batch, piece, total = self._batch, self._piece, self._total
        if batch is None or piece is None or total is None or not piece.recorded:
            raise TrainingMisuse(
                "step must follow losses.backward() on a batch of the private loader; got none since the last step. "
                'Compute the losses from model(inputs) in train mode with reduction="none".'
            )
        if not piece.last:
            return None
        self._batch = self._piece = self._total = None
        released = self.run.release(batch, total, torch.cat(self._norms))
        if self.divided:
            return released
        size = self.run.plan.expected_batch_size
        released.mean.flat.mul_(size)
        return replace(released, noise_std=released.noise_std * size)
