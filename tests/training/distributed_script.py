"""Private training of one small model on the processes that torchrun or a test starts; writes what rank 0 found."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

from torch import distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger
from tacit.noise import SeededStream
from tacit.training import make_private
from tacit.training.run_file import RunFile
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model


def train(batch_size=20.0, seed=3, steps=8, lost=None, file=None, resume=False, **arguments):
    """One run; the weights after every step, and the parts.

    Args:
        batch_size: expected size of a batch of all processes.
        seed: of sampling and noise; None for a secure stream.
        steps: planned and taken.
        lost: the step at which rank 1 is lost, after the charge and before it sends its sum.
        file: path of the ledger on disk.
        resume: whether to continue from it.
        **arguments: of `make_private`.
    """
    inputs, targets = blobs()
    rank = int(os.environ.get("RANK", "0"))
    model = small_model(rank)  # replicas differ until rank 0 tells its own
    stream = SeededStream(seed) if seed is not None else None
    named = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": steps, "stream": stream} | arguments
    named |= {"sample_rate": batch_size / len(inputs), "expected_batch_size": batch_size}
    if named.get("sampling") == "fixed_size":
        named["ledger"] = Ledger(relation="replace_one")
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=20)
    private = make_private(model, plain_sgd(model), loader, **named)
    written = None
    if file is not None:
        written = RunFile(private, file)
        written.resume(f"{file}.copy") if resume else written.begin()
        if not resume:
            written.save(f"{file}.copy")
    weights = []
    while len(weights) < steps:
        for x, y in private.loader:
            if written is not None and private.optimizer.batch_complete is False:
                written.before_step()
            if rank and private.ledger.steps + 1 == lost:
                private.model.session.run.ranks.summed = lambda values: os._exit(1)
            cross_entropy(private.model(x), y).backward()
            complete = private.optimizer.batch_complete
            try:
                private.optimizer.step()
            except RuntimeError:
                return weights, private  # another rank is lost
            if complete:
                weights.append(flat(model).tolist())
            if len(weights) == steps:
                break
    if written is not None:
        written.finish()
    return weights, private


def main(out, **arguments):
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    weights, private = train(distributed=True, **arguments)
    found = {"weights": weights, "steps": private.ledger.steps, "standing": private.ledger.standing.value}
    found["now"] = flat(private.model.module).tolist()
    found["missing"] = [fact.id for fact in private.ledger.facts.found_missing]
    Path(out, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    if arguments.get("lost") is None:
        dist.destroy_process_group()  # else a thread of gloo may outlive the interpreter, which aborts
    else:
        os._exit(0)  # the other rank is gone, and waiting for it would end in a timeout


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
