"""The facts of a run that hold by construction, and those that its call declares."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, Dataset

from tacit.accounting.facts import Fact, How
from tacit.training.dataset_probe import dataset_probe
from tacit.training.plan import PrivateRun

UNTESTED = "the data set could not be tested: store records as tensors, or change them by transform= in make_private"


def begin(run: PrivateRun) -> None:
    """Begin a run in its ledger, with the facts that hold by construction and those that the call declares."""
    enforced = {
        "batches": "one step for each batch drawn",
        "one_process": "several processes and parallel wrappers are refused",
        "arithmetic": "bounds of the gradient engine",
    }
    declared = {
        "unit": f"one {run.plan.sampling.unit}",
        "settings": "arguments of the call",
        "whole_ledger": "",
        "preprocessing": "",
        "package": "",
    }
    if run.stream.secure:
        enforced["randomness"] = "AES under a key from the operating system"
    run.ledger.begin(
        *(Fact(name, How.ENFORCED, says=says) for name, says in enforced.items()),
        *(Fact(name, How.DECLARED, says=says) for name, says in declared.items()),
    )


def begin_whole(run: PrivateRun, inputs: Any) -> None:
    """`begin` for a run without a loop of the user's: what a loop could do wrong cannot happen.

    Args:
        run: about to start.
        inputs: arrays, or the data set or loader that the records were read from.

    Raises:
        InvalidInput: records of the data set depend on others.
    """
    begin(run)
    facts = run.ledger.facts
    facts.note("numbers_read", How.ENFORCED, "no loop of the user's runs")
    facts.note("weights", How.ENFORCED, "no loop of the user's runs")
    data = inputs.dataset if isinstance(inputs, DataLoader) else inputs
    if not isinstance(data, Dataset):
        facts.note("rows", How.ENFORCED, "rows of arrays")
    elif dataset_probe(data):
        facts.note("rows", How.CHECKED, "entries of other records replaced in the data set")
    else:
        facts.missing("rows", UNTESTED)


def note_probed(run: PrivateRun) -> None:
    """Record that model and loss were probed on a batch."""
    for name in ("model_rows", "model_state", "loss_rows"):
        run.ledger.facts.note(name, How.CHECKED, "half of the records replaced by others, then the other half")
