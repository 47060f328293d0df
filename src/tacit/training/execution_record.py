"""`ExecutionRecord`: by what a run was computed, for an audit; and the fingerprint by which a run goes on as itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit import check
from tacit.errors import InvalidInput
from tacit.serialization import versions_of
from tacit.training.callbacks import Callback, stateful
from tacit.training.checkpoint import Checkpoint
from tacit.training.plan import Plan


@dataclass(frozen=True)
class ExecutionRecord:
    """Everything besides settings and mechanisms that decides which code computes a private run, and how.

    Attributes:
        engine: the engine that ran: "eager", "recorded" or "compiled".
        precision: of the forward and backward pass.
        device: of the model, with the name of an accelerator.
        max_physical_batch_size: records that go through the model at a time; None for a whole batch.
        accumulation: "none", or "clipped sums" where physical batches are added up before the noise.
        schedule: how the learning rate changes: class of the scheduler and how often it steps, or "constant".
        threads: of torch.
        versions: of Python and the packages that compute.
        package_hash: SHA-256 of the files of the package as they were imported from.

    Example:
        >>> record = ExecutionRecord.of(nn.Linear(2, 1))
        >>> record.engine, record.differences(record)
        ('eager', ())
    """

    engine: str
    precision: str
    device: str
    max_physical_batch_size: int | None
    accumulation: str
    schedule: str
    threads: int
    versions: Mapping[str, str]
    package_hash: str

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        engine: str = "auto",
        precision: str = "float32",
        max_physical_batch_size: int | None = None,
        scheduler: LRScheduler | None = None,
        scheduler_per: str = "epoch",
    ) -> ExecutionRecord:
        """The record of a run that starts now with these arguments of `fit`.

        Args:
            model: whose device counts.
            engine: one of `ENGINES`.
            precision: one of `PRECISIONS`.
            max_physical_batch_size: >= 1, or None.
            scheduler: of the learning rate.
            scheduler_per: "epoch" or "step".
        """
        return cls(
            engine="eager" if engine == "auto" else engine,
            precision=precision,
            device=_device_of(model),
            max_physical_batch_size=max_physical_batch_size,
            accumulation="none" if max_physical_batch_size is None else "clipped sums",
            schedule="constant" if scheduler is None else f"{type(scheduler).__name__} per {scheduler_per}",
            threads=torch.get_num_threads(),
            versions=versions_of("tacit", "torch", "numpy", "cryptography"),
            package_hash=package_hash(),
        )

    @classmethod
    def from_table(cls, table: Any) -> ExecutionRecord:
        """The record of a JSON table; raises `InvalidInput` where a field is missing, unknown or of another type."""
        given = check.instance("execution record", table, dict, "a table")
        names = [each.name for each in fields(cls)]
        check.keys("the execution record", given, names)
        for missing in (name for name in names if name not in given):
            raise check.fail(f"{missing} of the execution record", "given", None)
        check.count("threads of the execution record", given["threads"])
        if given["max_physical_batch_size"] is not None:
            check.count("max_physical_batch_size of the execution record", given["max_physical_batch_size"])
        versions = check.instance("versions of the execution record", given["versions"], dict, "a table")
        for name in set(names) - {"threads", "max_physical_batch_size", "versions"}:
            check.text(f"{name} of the execution record", given[name])
        return cls(**{**given, "versions": {str(key): str(value) for key, value in versions.items()}})

    def table(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def differences(self, other: ExecutionRecord) -> tuple[str, ...]:
        """What differs in `other`, one phrase for each field; empty where both ran the same way."""
        mine, theirs = _flat(self.table()), _flat(other.table())
        return tuple(
            f"{name}: {mine.get(name, 'nothing')} in the run, {theirs.get(name, 'nothing')} in the audit"
            for name in dict.fromkeys([*mine, *theirs])
            if mine.get(name) != theirs.get(name)
        )


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Context in which torch uses `count` >= 1 threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(check.count("threads", count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def package_hash() -> str:
    """SHA-256 over the names and contents of the package's files, in order of their names."""
    home = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(home).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _device_of(model: nn.Module) -> str:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return f"cuda {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != "versions"} | {
        f"version of {name}": value for name, value in table["versions"].items()
    }


# Name of the grouping in the words; its value is a keyed hash, for the file alone and never for a message.
_GROUPS, _KEY_BYTES = "groups", 16


def run_fingerprint(
    plan: Plan, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler | None, callbacks: Sequence[Callback]
) -> dict[str, str]:
    """Fields of the plan, shapes of the model, and classes of optimizer, schedule and stateful callbacks, in words.

    Args:
        plan: the resolved plan.
        model: the model to train.
        optimizer: the optimizer.
        scheduler: the learning-rate schedule, if there is one.
        callbacks: all callbacks of the run.
    """
    words = plan_in_words(plan)
    words |= {f"model {name}": f"{value.dtype} {tuple(value.shape)}" for name, value in model.state_dict().items()}
    words["optimizer"] = type(optimizer).__name__
    words["scheduler"] = type(scheduler).__name__ if scheduler is not None else "none"
    words[_GROUPS] = _grouping(plan, os.urandom(_KEY_BYTES))
    words["callbacks"] = ", ".join(type(callback).__name__ for callback in stateful(callbacks)) or "none"
    return words


def plan_in_words(plan: Plan) -> dict[str, str]:
    """Every field of the plan, in words."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return {name: str(value.spec()) if hasattr(value, "spec") else repr(value) for name, value in values.items()}


def check_same_run(saved: Checkpoint, plan: Plan, fingerprint: dict[str, str]) -> None:
    """Raise `InvalidInput` that names the first difference between the saved run and this one, of `plan`.

    `fingerprint` takes over the key under which the grouping of the saved run was hashed.
    """
    theirs = saved.fingerprint.get(_GROUPS, "")
    ours = _grouping(plan, bytes.fromhex(theirs.partition(":")[0])) if theirs else ""
    if theirs != ours or bool(theirs) != bool(fingerprint.get(_GROUPS)):
        hint = "Give another run a checkpoint of its own."
        raise check.fail("groups", "those with which the run of the checkpoint began", "others", hint)
    fingerprint[_GROUPS] = ours
    for name in [*fingerprint, *saved.fingerprint]:
        if name == _GROUPS:
            continue
        theirs, ours = saved.fingerprint.get(name, "nothing"), fingerprint.get(name, "nothing")
        if theirs != ours:
            raise InvalidInput(
                f"{name} must be {theirs}, with which the run of the checkpoint began; got {ours}. "
                "Give another run a checkpoint of its own."
            )


def _grouping(plan: Plan, key: bytes) -> str:
    """The key and the keyed hash of which records form a unit; empty where every record is its own."""
    found = plan.sampling.grouping(key)
    return f"{key.hex()}:{found}" if found else ""
