"""The facts of a run that hold by construction, and those that its call declares."""

from __future__ import annotations

from tacit.accounting.facts import Fact, How
from tacit.training.plan import PrivateRun


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
