"""Interruption and resumption of a private run, without understating the privacy that it spent.

`RunFile` says on disk what a `make_private` run under another trainer spent, before it is spent. The trainer keeps
weights and optimizer in checkpoints of its own; each holds a copy of this file beside them. The file of the run is
ahead of the run: it reserves a block of steps before the first of them is taken. A run that resumes, from whichever
checkpoint, takes over what the file of the run holds, so that no step that ran is left out.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tacit import check
from tacit.accounting import Ledger
from tacit.clipping import clip_from_spec
from tacit.errors import TrainingMisuse
from tacit.locking import writing
from tacit.signing import Origin, latest_count, latest_place, new_id
from tacit.standing import Standing
from tacit.training.callbacks import stateful
from tacit.training.checkpoint import Checkpoint, checkpoint_id, read_checkpoint
from tacit.training.execution_record import check_same_run, run_fingerprint
from tacit.training.holdout import PrivateHoldout
from tacit.training.loop import Loop
from tacit.training.make_private import Private
from tacit.training.plan import Plan
from tacit.training.private_run import PrivateRun
from tacit.training.private_step import PrivateUpdate

LOST = "lost in an interruption"
"""Note of ledger entries for steps that a process may have taken after its last checkpoint."""
RUN_FILE = "tacit.safetensors"
"""The name of a `RunFile` in a folder of the trainer."""
BLOCK = 10
"""Steps that are reserved at a time: what a run that is killed counts too many at most, at one write for each block."""


def open_checkpoint(path: str | Path | None, resume: bool) -> Checkpoint | None:
    """The checkpoint to resume from; None for a new run.

    Raises `InvalidInput` where a run would write over the checkpoint of an earlier one, whose ledger would be lost.
    """
    if path is None:
        if resume:
            raise check.fail("checkpoint", "given to resume from it", None, 'Use e.g. checkpoint="run.safetensors".')
        return None
    if not Path(path).exists():
        return None
    if not resume:
        hint = "Give resume=True to go on with that run."
        raise check.fail("checkpoint", "a new file unless resume is given", str(path), hint)
    return read_checkpoint(path)


def file_identity(path: str | Path | None) -> tuple[int, int] | None:
    """Identity of the file `path`: inode and time of modification; None if there is no file."""
    try:
        found = os.stat(path) if path is not None else None
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns) if found is not None else None


class CheckpointFile:
    """The file of a run, of which every version holds what may have run before the next; one process writes it.

    Args:
        what: names it in messages.
        path: the file; each version replaces the one before.
        run: the running plan.
        before: the ledger when the run began.
        fingerprint: of the run, see `run_fingerprint`.
        identity: `file_identity(path)` from before it was read.
    """

    def __init__(
        self,
        what: str,
        path: str | Path,
        run: PrivateRun,
        before: Ledger,
        fingerprint: dict[str, str],
        identity: tuple[int, int] | None,
    ):
        self._what, self._path, self._run, self._before = what, Path(path), run, before
        self._fingerprint, self._identity = fingerprint, identity
        self._id, self._count = new_id(), 0

    def _replace(self, state: dict[str, Any], ahead: int, stopped: str = "") -> None:
        """Write the next version; raises `TrainingMisuse` where another process has.

        It has counted the steps of this one up to here as lost, and writing over its file would lose its own.
        """
        with writing(self._what, self._path):
            if file_identity(self._path) != self._identity:
                raise TrainingMisuse(
                    f"{self._what} must be written by one run at a time; got {str(self._path)!r} from another. "
                    "This run has ended; the other one goes on."
                )
            self._version(state, ahead, stopped).write(self._path)
            self._identity = file_identity(self._path)

    def _version(self, state: dict[str, Any], ahead: int, stopped: str = "") -> Checkpoint:
        """The next version, with `ahead` steps from now on as spent."""
        run, ledger = self._run, self._run.ledger
        self._count = max(self._count, latest_count(self._id)) + 1
        spent = ledger.resumable()
        if run.paid_whole and state:
            state["run"]["lost"] = ahead
        elif ahead > 0:
            reserve_ahead(spent, run.plan, run.taken, ahead)
        return Checkpoint(
            step=run.taken,
            steps=run.plan.steps,
            fingerprint=self._fingerprint,
            before=self._before,
            ledger=ledger.resumable(),
            spent=spent,
            stopped=stopped,
            state=state,
            id=self._id,
            count=self._count,
        )


class CheckpointWriter(CheckpointFile):
    """Writes checkpoints of a run of `fit`, and restores the state of one.

    Args:
        file: arguments of `CheckpointFile`.
        every: steps from one checkpoint to the next, >= 1.
        update: the private update, whose clip is saved.
        loop: the training loop.
        holdout: of the run, whose weights to choose from are kept.
    """

    def __init__(
        self, *file: Any, every: int, update: PrivateUpdate, loop: Loop, holdout: PrivateHoldout | None = None
    ):
        super().__init__("checkpoint", *file)
        self._every, self._update, self._loop, self._holdout = every, update, loop, holdout
        self._written = False

    def save(self, finished: bool) -> None:
        """Write a checkpoint if one is due; no step that it does not cover may be taken before the next.

        Args:
            finished: whether this process takes no further step.

        Raises:
            TrainingMisuse: another process has resumed the run.
        """
        taken = self._loop.taken
        if not finished and taken % self._every and self._written:
            return
        ahead = 0 if finished else min(self._run.left, self._every - taken % self._every)
        self._replace(self._state(), ahead, self._loop.stopped)
        self._written = True

    def restore(self, saved: Checkpoint) -> None:
        """Restore the state of `saved` in the run, the loop, and all that they hold.

        What nobody vouches for lowers the standing of the ledger: a checkpoint that this user's key did not sign, and
        one whose run went on elsewhere.

        Raises:
            InvalidInput: a later checkpoint of this file was written: what ran since would be understated.
        """
        loop, state = self._loop, saved.state
        self._vouch(saved)
        self._run.restore(state["run"], ledger=saved.ledger, spent=saved.spent)
        self._update.clipped.clip = clip_from_spec(state["clip"])
        loop.model.load_state_dict(state["model"])
        loop.optimizer.load_state_dict(state["optimizer"])
        if loop.scheduler is not None:
            loop.scheduler.load_state_dict(state["scheduler"])
        for callback, kept in zip(stateful(loop.callbacks), state["callbacks"], strict=True):
            callback.restore(kept)
        loop.taken, loop.stopped = self._run.taken, saved.stopped
        loop.history.extend(state["history"])
        if self._holdout is not None:
            run = self._run
            self._holdout.resume(run.plan, run.ledger.relation, loop.model, run.taken, state["holdout"])
        _restore_generators(loop.model, state["random"])

    def _vouch(self, saved: Checkpoint) -> None:
        ledger = self._run.ledger
        if saved.origin in (Origin.UNSIGNED, Origin.FOREIGN):
            ledger.mark_unsafe(f"unsafe_checkpoint: {saved.origin.value}", Standing.CLAIMED)
        # A seeded run that starts again from an older state repeats the same releases.
        elif saved.origin is Origin.ROLLED_BACK and saved.state["run"]["stream"] is None:
            if latest_place(saved.id) == str(self._path.resolve()):
                hint = "An older one was put back: what ran since would be understated."
                raise check.fail("checkpoint", "the last one that its run wrote", str(self._path), hint)
            ledger.mark_unsafe("unsafe_checkpoint: its run went on elsewhere", Standing.CLAIMED)
            return
        if saved.id:
            self._id, self._count = saved.id, saved.count

    def _state(self) -> dict[str, Any]:
        loop = self._loop
        return {
            "model": loop.model.state_dict(),
            "optimizer": loop.optimizer.state_dict(),
            "scheduler": loop.scheduler.state_dict() if loop.scheduler is not None else None,
            "callbacks": [callback.state() for callback in stateful(loop.callbacks)],
            "run": self._run.state(),
            "clip": self._update.clipped.clip.spec(),
            "history": loop.history,
            "random": _generator_states(loop.model),
            "holdout": [] if self._holdout is None else self._holdout.state(),
        }


def reserve_ahead(ledger: Ledger, plan: Plan, taken: int, ahead: int) -> None:
    """Record that the `ahead` steps after `taken` may run and be lost.

    Where batches are disjoint within a pass, a broken pass costs what a whole one does: each that is touched counts.

    Args:
        ledger: that takes the entry.
        plan: of the run.
        taken: steps taken so far, >= 0.
        ahead: steps to reserve, >= 1.
    """
    every = plan.sampling.steps_alike(plan.records, plan.sample_rate)
    for number in range(taken // every, (taken + ahead - 1) // every + 1):
        ledger.add(plan.mechanism_at(number * every), every, LOST)


def _generator_states(model: nn.Module) -> dict[str, Any]:
    """States of torch's generators, from which dropout draws; privacy noise never does."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    return {"cpu": torch.get_rng_state()} | {str(device): torch.cuda.get_rng_state(device) for device in devices}


def _restore_generators(model: nn.Module, state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    for device in {parameter.device for parameter in model.parameters()}:
        if str(device) in state and device.type == "cuda":
            torch.cuda.set_rng_state(state[str(device)], device)


class RunFile(CheckpointFile):
    """The file of one run, and its copies in the trainer's checkpoints.

    Args:
        private: the running private parts.
        path: the file; a new one unless `resume` follows.
        every: steps reserved at a time, >= 1.

    Raises:
        InvalidInput: `every` is no positive integer.
    """

    def __init__(self, private: Private, path: str | Path, every: int = BLOCK):
        run = private.model.session.run
        fingerprint = run_fingerprint(run.plan, private.model.module, private.optimizer.original, None, ())
        super().__init__("ledger of the run", path, run, private.ledger.copy(), fingerprint, file_identity(path))
        self._private, self._every, self._covered = private, check.count("every", every), 0

    def begin(self) -> None:
        """Reserve the first block of a new run.

        Raises:
            InvalidInput: the file is that of an earlier run, whose ledger would be lost.
        """
        if self._path.exists():
            hint = "Resume that run, or choose another folder."
            raise check.fail("folder of the run", "without the ledger of an earlier one", str(self._path), hint)
        self._reserve()

    def resume(self, copy: str | Path) -> None:
        """Continue the run from the copy in one of its checkpoints, with all that ran since, and reserve a block.

        Args:
            copy: a file that `save` wrote; weights and optimizer are those that the trainer saved with it.

        Raises:
            InvalidInput: the copy is missing, edited, or of another plan.
            TrainingMisuse: the run has begun.
        """
        saved = read_checkpoint(copy)
        if not saved.state:
            raise check.fail("checkpoint", "the copy in a checkpoint of the trainer", str(copy))
        if self._run.taken:
            raise TrainingMisuse("a run must be resumed before its first step; got one after it.")
        check_same_run(saved, self._run.plan, self._fingerprint)
        spent, whole = saved.spent, saved.origin is Origin.OWN
        place = latest_place(saved.id) if saved.id else ""
        for path in {str(self._path.resolve()), place} - {""}:
            if saved.id and checkpoint_id(path) == saved.id:
                later = read_checkpoint(path)
                if later.count >= max(saved.count, latest_count(saved.id)) and later.origin is Origin.OWN:
                    spent, whole = later.spent, True
        self._run.restore(saved.state["run"], ledger=saved.ledger, spent=spent)
        if not whole:
            told = "its run went on elsewhere" if saved.origin is Origin.ROLLED_BACK else saved.origin.value
            self._run.ledger.mark_unsafe(f"unsafe_checkpoint: {told}", Standing.CLAIMED)
        self._run.clip = self._private.model.clipped.clip = clip_from_spec(saved.state["clip"])
        self._id, self._count = saved.id or self._id, saved.count
        self._before = saved.before
        self._reserve()

    def before_step(self) -> None:
        """Reserve the next block where the one before is used up; nothing of a step may be released before.

        Raises:
            TrainingMisuse: another process has resumed the run.
        """
        if self._run.taken >= self._covered:
            self._reserve()

    def save(self, copy: str | Path) -> None:
        """Write a copy for the trainer's checkpoint, before the trainer writes the weights.

        Args:
            copy: the file, replaced if there is one.
        """
        self._private.model.session.check_between("a checkpoint must be taken")
        if self._run.writes:
            state = {"run": self._run.state(), "clip": self._run.clip.spec()}
            self._version(state, self._covered - self._run.taken).write(copy)
        # Last, so that the file of the run is the latest version of the two.
        self._update_file()

    def finish(self) -> None:
        """Give back the reserved steps that were not taken: no further one will be."""
        self._covered = self._run.taken
        self._update_file()

    def _reserve(self) -> None:
        self._covered = self._run.taken + max(1, min(self._every, self._run.left))
        self._update_file()

    def _update_file(self) -> None:
        if self._run.writes:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # No state: a batch may be open, whose records must stay secret, and runs resume from copies.
            self._replace({}, self._covered - self._run.taken)
