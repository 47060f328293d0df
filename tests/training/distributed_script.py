"""Private training of one small model on the processes that torchrun or a test starts; writes what rank 0 found."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger
from tacit.clipping import clip_from_spec
from tacit.noise import SeededStream
from tacit.training import make_private
from tacit.training.resume import RunFile
from tacit.training.sharded import is_shard, local
from tests.training.cases import blobs, cross_entropy, plain_sgd, small_model


def train(batch_size=20.0, seed=3, steps=8, sharded=False, batches=None, **arguments):
    """One run; the weights after every step, and the parts.

    Args:
        batch_size: expected size of a batch of all processes.
        seed: of sampling and noise; None for a secure stream.
        steps: planned and taken.
        sharded: whether each rank holds a shard of the parameters.
        batches: seed of the sampling alone.
        **arguments: of `make_private`, and:
            lost: the step at which rank 1 is lost, after the charge and before it sends its sum.
            file: path of the ledger on disk.
            resume: whether to continue from it.
    """
    lost, file, resume = (arguments.pop(name, None) for name in ("lost", "file", "resume"))
    inputs, targets = blobs()
    if isinstance(arguments.get("clipping"), str):
        arguments["clipping"] = clip_from_spec(json.loads(arguments["clipping"]))
    rank = int(os.environ.get("RANK", "0"))
    model = small_model(0 if sharded else rank)  # replicas differ until rank 0 tells its own
    if sharded:
        fully_shard(model[0])
        fully_shard(model)
    stream = SeededStream(seed) if seed is not None else None
    named = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": steps, "stream": stream} | arguments
    named |= {"sample_rate": batch_size / len(inputs), "expected_batch_size": batch_size}
    if named.get("sampling") == "fixed_size":
        named["ledger"] = Ledger(relation="replace_one")
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=20)
    private = make_private(model, plain_sgd(model), loader, **named)
    if batches is not None:  # the noise of one process and that of shards take other numbers of bits
        run = private.model.session.run
        run.sampler = run.plan.sampling.sampler(len(inputs), run.plan.sample_rate, SeededStream(batches))
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
                private.model.session.run.ranks.summed = lambda *values: os._exit(1)
            cross_entropy(private.model(x), y).backward()
            complete = private.optimizer.batch_complete
            try:
                private.optimizer.step()
            except RuntimeError:
                return weights, private  # another rank is lost
            if complete:
                weights.append((parts if lost else whole)(model).tolist())
            if len(weights) == steps:
                break
    if written is not None:
        written.finish()
    return weights, private


def whole(model):
    """All weights of a model; of a sharded one those of all ranks, which every rank must ask for."""
    values = [value.full_tensor() if is_shard(value) else value for value in model.parameters()]
    return torch.cat([value.detach().flatten() for value in values])


def parts(model):
    """The weights that this rank holds."""
    return torch.cat([local(value).flatten() for value in model.parameters()])


def main(out, **arguments):
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    weights, private = train(distributed=True, **arguments)
    found = {"weights": weights, "steps": private.ledger.steps, "standing": private.ledger.standing.value}
    run = private.model.session.run
    found["now"] = parts(run.whole.sharded if run.whole is not None else private.model.module).tolist()
    found["missing"] = [fact.id for fact in private.ledger.facts.found_missing]
    Path(out, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    if arguments.get("lost") is None:
        dist.destroy_process_group()  # else a thread of gloo may outlive the interpreter, which aborts
    else:
        os._exit(0)  # the other rank is gone, and waiting for it would end in a timeout


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
