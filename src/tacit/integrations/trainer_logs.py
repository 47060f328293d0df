"""What the logs of another trainer show of a private run."""

from __future__ import annotations

from typing import Any

from tacit.accounting import Ledger, accountant

REPORTED = "epsilon"
"""Name of epsilon in logs."""
_PRIVATE = ("loss", "train_loss", "grad_norm", "total_flos")
"""Numbers that trainers compute from the records of a batch."""


def epsilon_of(ledger: Ledger, delta: float) -> float:
    """Epsilon at `delta` after the steps in `ledger`, an upper bound; 0 before the first."""
    return float(accountant("pld").rough()(ledger).epsilon(delta)) if ledger.steps else 0.0


def private_logs(logs: dict[str, Any], ledger: Ledger, delta: float) -> None:
    """Replace in `logs` what was computed from private records by epsilon at `delta`."""
    for name in _PRIVATE:
        logs.pop(name, None)
    logs[REPORTED] = epsilon_of(ledger, delta)
