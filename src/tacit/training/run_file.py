"""`RunFile`: what a `make_private` run under another trainer spent, on disk before it is spent.

The trainer keeps weights and optimizer in checkpoints of its own; each holds a copy of this file beside them. The file
of the run is ahead of the run: it reserves a block of steps before the first of them is taken. A run that resumes,
from whichever checkpoint, takes over what the file of the run holds, so that no step that ran is left out.
"""

from __future__ import annotations

from pathlib import Path

from tacit import check
from tacit.clipping import clip_from_spec
from tacit.errors import TrainingMisuse
from tacit.signing import Origin, latest_count, latest_place
from tacit.standing import Standing
from tacit.training.checkpoint import checkpoint_id, read_checkpoint
from tacit.training.execution_record import check_same_run, run_fingerprint
from tacit.training.make_private import Private
from tacit.training.resume import CheckpointFile, file_identity

NAME = "tacit.safetensors"
"""The file's name in a folder of the trainer."""
BLOCK = 10
"""Steps that are reserved at a time: what a run that is killed counts too many at most, at one write for each block."""


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
