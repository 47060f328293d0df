"""Training on several processes, each with a replica of the model: one sampler, one noise, one ledger, at rank 0.

One step releases

    (sum_r S_r + Z) / divisor,   S_r = sum of the clipped gradients of the batch's records on rank r,

with Z ~ N(0, (noise_multiplier sensitivity)^2 I). Rank 0 draws the batch over all records, charges the ledger,
adds the sums of all ranks and Z once. Every record is on one rank, so this is the mechanism of one process, and its
accounting is the same. What one process enforces and several cannot: that all of them run the same loop, and that the
hosts and links between them are trusted with sums before noise; the ledger states this as assumed.

`ShardedRun`: rank k receives the coordinates of its shard alone and adds its coordinates of Z, from a stream of its
own. Streams are independent, and each coordinate is on one rank: so the noise of all ranks is Z, once.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist

from tacit.accounting import How, Ledger
from tacit.clipping import clip_from_spec
from tacit.errors import TacitError, TrainingMisuse
from tacit.gradients import FlatGradient
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.sampling import Batch
from tacit.standing import Standing
from tacit.training.plan import Plan
from tacit.training.plan_options import PlanOptions
from tacit.training.private_run import PrivateRun
from tacit.training.release import Release
from tacit.training.sharded import WholeModel, is_shard

# Wrappers by name, over all base classes, so that nothing is imported to find them.
_PARALLEL = frozenset(
    ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")
)


def check_processes(model: nn.Module | None = None, processes: int = 1) -> None:
    """Raise `TrainingMisuse` where a run would be one of others than its own `processes`.

    Args:
        model: the module to train; none of its submodules may be a wrapper for several devices or processes. None
            where there is none yet.
        processes: how many train together by one plan and one ledger, >= 1.

    Raises:
        TrainingMisuse: the process group or the environment has more than one rank, or a wrapper is found.

    Example:
        >>> check_processes(nn.Linear(2, 1), 1)
    """
    kinds = [kind.__name__ for inner in model.modules() for kind in type(inner).__mro__] if model is not None else []
    wrapper = next((name for name in kinds if name in _PARALLEL), None)
    ranks = world_size()
    if wrapper is None and ranks == processes:
        return
    got = f"{wrapper} around a module" if wrapper is not None else f"{ranks} ranks"
    raise TrainingMisuse(
        f"private training must run in one process on one device; got {got}. Each replica would draw its own batches "
        "and noise, and count only itself. Use make_private(..., distributed=True) with the whole module on each rank "
        "or after fully_shard(module), or start one process (WORLD_SIZE=1) on one device."
    )


def world_size() -> int:
    """How many processes the process group has, or else the launcher says that it started; 1 without either."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    told = os.environ.get("WORLD_SIZE", "1")
    return int(told) if told.isdigit() else 1


TRUSTED = "the processes of the job run the same loop, and are trusted with clipped sums before noise"
Answer = TypeVar("Answer")


class Ranks:
    """Messages between the processes of one run.

    All of them go over the processor (gloo), whatever the devices of the models: noise is drawn there.

    Raises:
        TrainingMisuse: no process group is initialised.

    Attributes:
        rank: of this process, 0 first.
        size: number of processes.
    """

    def __init__(self) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise TrainingMisuse(
                "distributed=True must be used in an initialised process group; got none. "
                'Start by torchrun and call torch.distributed.init_process_group("gloo") first.'
            )
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo")

    def decided(self, decide: Callable[[], Answer], told: Callable[[Answer], Answer] = lambda found: found) -> Answer:
        """What `decide` returns at rank 0, which alone calls it; what it raises there is raised everywhere.

        Args:
            decide: makes a value that can be pickled.
            told: makes of it what the other ranks get.
        """
        box: list[Any] = [None, None]
        found, failure = None, None
        if not self.rank:
            try:
                found = decide()
                box[0] = told(found)
            except Exception as error:
                failure = error
                says = str(error) if isinstance(error, TacitError) else f"rank 0 failed with {type(error).__name__}."
                box[1] = type(error) if isinstance(error, TacitError) else TrainingMisuse, says
        dist.broadcast_object_list(box, src=0, group=self._group)
        if failure is not None:
            raise failure
        if box[1] is not None:
            kind, says = box[1]
            raise kind(says)
        return box[0] if self.rank else found  # type: ignore[return-value]  (what `decide` returned)

    def everyone(self, value: Answer) -> list[Answer]:
        """The values of all ranks, in their order."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._group)
        return found

    def check_same(self, words: Mapping[str, str]) -> None:
        """Raise `TrainingMisuse`, on every rank, that names the first entry in which ranks differ."""
        others = self.everyone(dict(words))
        for name in {name: None for theirs in others for name in theirs}:
            if len({theirs.get(name) for theirs in others}) > 1:
                raise TrainingMisuse(
                    f"{name} must be the same on all ranks; got different ones. Build data set, model, optimizer and "
                    "the arguments of make_private alike in every process."
                )

    def summed(self, values: Tensor, at: int = 0) -> Tensor:
        """At rank `at` the sum of the vectors of all ranks, in double precision; another rank gets its own."""
        total = values.detach().to("cpu", torch.float64, copy=True)
        dist.reduce(total, dst=at, op=dist.ReduceOp.SUM, group=self._group)
        return total

    def copied(self, values: Tensor) -> Tensor:
        """The values of rank 0, on the device of `values`."""
        here = values.detach().to("cpu", copy=True).contiguous()
        dist.broadcast(here, src=0, group=self._group)
        return here.to(values.device)

    def replicate(self, model: nn.Module) -> None:
        """Give every rank the parameters and buffers of rank 0, whose names and shapes must be those of all.

        Sharded parameters are one tensor over all ranks already.
        """
        values = [*model.named_parameters(), *model.named_buffers()]
        self.check_same({f"shape of {name}": f"{value.dtype} {tuple(value.shape)}" for name, value in values})
        with torch.no_grad():
            for _, value in values:
                if not is_shard(value):
                    value.copy_(self.copied(value))

    def ledger(self, ledger: Ledger | None) -> Ledger:
        """The ledger of rank 0; other ranks get a copy that says the same, and write no file."""
        own = ledger if ledger is not None else Ledger()
        spec = self.decided(own.spec)
        return Ledger.from_spec(spec) if self.rank else own


def share_of(batch: Batch, rank: int, size: int) -> Batch:
    """The records of `batch` that rank `rank` of `size` holds: those of its units.

    A unit goes by the number of its first record, whatever else is in the batch, so that one more or less changes the
    sum of one rank alone.

    Example:
        >>> share_of(Batch(np.array([0, 3, 4, 7])), 1, 2).indices.tolist()
        [3, 7]
    """
    if batch.owners is None:
        return Batch(batch.indices[batch.indices % size == rank])
    first = np.full(int(batch.owners.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, batch.owners, batch.indices)
    mine = first[batch.owners] % size == rank
    owners = np.unique(batch.owners[mine], return_inverse=True)[1].astype(np.int64)
    return Batch(batch.indices[mine], owners, batch.average)


class RankedRun(PrivateRun):
    """A running plan over several processes; see the module.

    Args:
        plan: what runs, for all records of the union.
        ranks: the processes.
        **named: as `PrivateRun`, at rank 0; other ranks follow it.
    """

    def __init__(self, plan: Plan, ranks: Ranks, **named: Any):
        super().__init__(plan, **named)
        self.ranks = ranks
        self.processes, self.writes = ranks.size, not ranks.rank
        self._whole: Batch | None = None
        self._share = Batch(np.empty(0, np.int64))
        self._drawn = 0

    def drawn(self, batch: Batch) -> int:
        """Number of records of the logical batch that `batch` is the share of."""
        return self._drawn

    def issue(self) -> Batch:
        """This rank's share of the next batch, which rank 0 draws.

        Raises:
            BudgetExceeded: on every rank, when no further step may be taken.
        """
        found = self.ranks.decided(self._draw)
        if found is not None:
            self._share, self._drawn = share_of(found, self.ranks.rank, self.ranks.size), len(found)
        self.monitor.issued(self._share, self.taken + 1)
        return self._share

    def _draw(self) -> Batch | None:
        """The batch at rank 0; None where it is the one before, which was not stepped on."""
        whole = super().issue()
        if whole is self._whole:
            return None
        self._whole = whole
        return whole

    def release(self, batch: Batch, total: FlatGradient, norms: Tensor) -> Release:
        """Noisy mean of the sums of all ranks, equal on all of them.

        The ledger is charged before any rank sends its sum. A process that is lost afterwards leaves the step counted.
        """
        if batch is not self._share:
            raise TrainingMisuse("batch must be the share that was issued last; got another. Use the private loader.")
        gathered = self.clip.statistics or self.clip.of_mean
        reports = self.ranks.everyone((self._findings(), norms.detach().cpu() if gathered else None))
        for findings, _ in reports:
            self._take(findings)
        noise_multiplier = self.ranks.decided(self._charge_whole)
        if self.ranks.rank:
            step, self.taken = self.taken, self.taken + 1
            self.count(step)
        if gathered:
            norms = torch.cat([theirs for _, theirs in reports if theirs is not None])
        released = self._combined(total, norms, noise_multiplier)
        self.clip = released.clip
        return released

    def _charge_whole(self) -> float:
        assert self._whole is not None
        whole, self._whole = self._whole, None
        return self.charge(whole)

    def _combined(self, total: FlatGradient, norms: Tensor, noise_multiplier: float) -> Release:
        """The release of rank 0 on every rank."""
        union = self.ranks.summed(total.flat)
        kind = total.released_in or total.flat.dtype

        def release() -> tuple[Tensor | None, float, Any]:
            flat = FlatGradient.of(union, total.parts)
            flat = replace(flat, slack=total.slack, released_in=kind)
            found = self._noisy_mean(self.clip, flat, norms, noise_multiplier, self.plan.expected_batch_size)
            return found.mean.flat, found.noise_std, found.clip.spec()

        mean, noise_std, clip = self.ranks.decided(release, lambda found: (None, *found[1:]))
        mean = self.ranks.copied(torch.empty(total.flat.shape, dtype=kind) if mean is None else mean)
        mean = mean.to(total.flat.device)
        return Release(FlatGradient.of(mean, total.parts), noise_std, clip_from_spec(clip))

    def _findings(self) -> tuple[list[tuple[str, str]], list[str], str]:
        """What the checks of this rank found missing, and the marks of its ledger."""
        found = [(fact.id, fact.says) for fact in self.ledger.facts.found_missing]
        return found, list(self.ledger.unsafe), self.ledger.standing.value

    def _take(self, findings: tuple[list[tuple[str, str]], list[str], str]) -> None:
        missing, unsafe, standing = findings
        for name, says in missing:
            if all(fact.id != name for fact in self.ledger.facts.found_missing):
                self.ledger.facts.missing(name, says)
        for switch in unsafe:
            if switch not in self.ledger.unsafe:
                self.ledger.mark_unsafe(switch, Standing(standing))


def note_processes(run: PrivateRun) -> None:
    """Note in the ledger of `run` how it is known that no process trains beside it."""
    if run.processes > 1:
        run.ledger.facts.note("one_process", How.ASSUMED, TRUSTED)
    else:
        run.ledger.facts.note("one_process", How.ENFORCED, "several processes and parallel wrappers are refused")


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
        held: dict[str, Any] = dict(self._model.sharded.named_parameters())
        return {name: held[name] for name in trainable}

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


def start_run(
    options: PlanOptions,
    plan: Plan,
    ledger: Ledger,
    stream: Stream | None = None,
    ranks: Ranks | None = None,
    whole: WholeModel | None = None,
    *,
    goes_on: bool = False,
) -> PrivateRun:
    """The run of `plan` that records in `ledger` and takes no step past the target.

    Args:
        options: their target and its accountant are read.
        plan: what runs.
        ledger: where its steps are recorded.
        stream: source of sampling and noise; a new secure one by default.
        ranks: the processes that run it together; this one alone by default.
        whole: the model that steps compute with, where parameters are sharded over the ranks.
        goes_on: whether a checkpoint is restored next.
    """
    named = {"stream": stream, "ledger": ledger, "budget": options.target, "accountant": options.accountant}
    if ranks is not None:
        return RankedRun(plan, ranks, **named) if whole is None else ShardedRun(plan, ranks, whole, **named)
    return PrivateRun(plan, **named, goes_on=goes_on)


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
    seed = hashlib.sha256(f"tacit shard {rank} of seed {stream.seed}".encode()).digest()
    return SeededStream(int.from_bytes(seed, "big")) if rank else stream
