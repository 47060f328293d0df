"""`ShardedRun`: a plan over several processes that each hold, step on and make noise for a shard of the parameters.

A step releases, as in `tacit.training.ranks`, (sum_r S_r + Z) / divisor with Z ~ N(0, (noise_multiplier
sensitivity)^2 I). Here rank k receives the coordinates of its shard alone and adds its coordinates of Z, from a stream
of its own. Streams are independent, and each coordinate is on one rank: so the noise of all ranks is Z, once, and the
release has the law of one process.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.clipping import clip_from_spec
from tacit.errors import TacitError, TrainingMisuse
from tacit.gradients import FlatGradient
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.training.plan import Plan
from tacit.training.ranks import RankedRun, Ranks
from tacit.training.release import Release
from tacit.training.sharded import WholeModel


class ShardedRun(RankedRun):
    """A running plan over several processes with sharded parameters; see the module.

    Args:
        plan: what runs, for all records of the union; noise independent from step to step, and no clip of the mean.
        ranks: the processes.
        whole: the model that steps compute with.
        stream: source of sampling, at rank 0, and noise: secure, or seeded; every rank draws from one of its own.
        **named: as `PrivateRun`.

    Raises:
        TrainingMisuse: the plan correlates noise or clips the mean of the batch, or the stream is another one.
    """

    def __init__(self, plan: Plan, ranks: Ranks, whole: WholeModel, *, stream: Stream | None = None, **named: Any):
        if plan.correlation is not None or plan.clip.of_mean:
            got = "correlated noise" if plan.correlation is not None else "a clip of the batch mean"
            raise TrainingMisuse(
                f"sharded parameters must be trained with independent noise and clips of records; got {got}. "
                "Use whole parameters on each rank."
            )
        super().__init__(plan, ranks, stream=stream_of(stream, ranks.rank), **named)
        self.whole = self._model = whole

    def stepped_on(self, trainable: dict[str, Any]) -> dict[str, Any]:
        """The shards of the parameters `trainable`, which the optimizer holds."""
        return self._model.shards(trainable)

    def restore(self, state: dict[str, Any], **ledgers: Any) -> None:
        """As `PrivateRun.restore`; raises `TrainingMisuse` for a seeded stream, of which rank 0 alone saves its own."""
        if isinstance(self.stream, SeededStream):
            raise TrainingMisuse("a resumed run with sharded parameters must have a secure stream; got a seeded one.")
        super().restore(state, **ledgers)

    def _combined(self, total: FlatGradient, norms: Tensor, noise_multiplier: float) -> Release:
        """The release of this rank's shard; that of all of them, or none."""
        own = self._own(total)
        found, failure = None, None
        try:
            found = self._noisy_mean(self.clip, own, norms, noise_multiplier, self.plan.expected_batch_size)
        except TacitError as error:
            failure = error
        failures = [each for each in self.ranks.everyone(failure and (type(failure), str(failure))) if each]
        if failures:
            kind, told = failures[0]
            raise kind(told)
        assert found is not None
        # The count of an adaptive clip is released once: rank 0's.
        clip = clip_from_spec(self.ranks.decided(found.clip.spec))
        mean = found.mean.flat.to(total.flat.device)
        parts = FlatGradient.of(mean, own.parts).parts
        shards = {name: self._model.as_shard(name, part) for name, part in parts.items()}
        return Release(FlatGradient(mean, shards), found.noise_std, clip)

    def _own(self, total: FlatGradient) -> FlatGradient:
        """The sum of all ranks in this rank's shard, in double precision."""
        pieces = {name: self._model.pieces(name, part) for name, part in total.parts.items()}
        mine = total.flat
        for rank in range(self.ranks.size):
            segment = torch.cat([parts[rank].flatten() for parts in pieces.values()])
            reduced = self.ranks.summed(segment, rank)
            mine = reduced if rank == self.ranks.rank else mine
        shapes = {name: parts[self.ranks.rank] for name, parts in pieces.items()}
        kind = total.released_in or total.flat.dtype
        return replace(FlatGradient.of(mine, shapes), slack=total.slack, released_in=kind)


def stream_of(stream: Stream | None, rank: int) -> Stream:
    """A stream for this rank that is independent of those of others: seeds are told apart by the rank.

    Raises:
        TrainingMisuse: the stream is neither secure nor seeded.

    Example:
        >>> stream_of(SeededStream(3), 0).seed == 3, stream_of(SeededStream(3), 1).seed == 3
        (True, False)
    """
    if stream is None or type(stream) is SecureStream:
        return stream or SecureStream()
    if not isinstance(stream, SeededStream):
        raise TrainingMisuse(
            f"stream must be a SecureStream or a SeededStream with sharded parameters; got {type(stream).__name__}."
        )
    return SeededStream(_seed(stream.seed, rank)) if rank else stream


def _seed(seed: int, rank: int) -> int:
    return int.from_bytes(hashlib.sha256(f"tacit shard {rank} of seed {seed}".encode()).digest(), "big")
