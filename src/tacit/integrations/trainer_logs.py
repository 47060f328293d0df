"""What the logs of another trainer show of a private run."""

from collections.abc import Mapping
from typing import Any, cast

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.training.make_private import make_private
from tacit.training.plan_options import PlanFields, options_of

REPORTED = "epsilon"
"""Name of epsilon in logs."""
PRIVATE = ("loss", "train_loss", "grad_norm", "total_flos")
"""Numbers that trainers compute from the records of a batch."""


def reported_delta(privacy: Mapping[str, Any]) -> float:
    """Delta of the arguments of `make_private`, at which logs show epsilon; 1e-5 where they have none."""
    named = {name: value for name, value in privacy.items() if name in PlanFields.__annotations__}
    delta = options_of(privacy.get("options"), cast(PlanFields, named), make_private).reported_delta
    return 1e-5 if delta is None else check.delta(delta)


def epsilon_of(ledger: Ledger, delta: float) -> float:
    """Epsilon at `delta` after the steps in `ledger`, an upper bound; 0 before the first."""
    return float(accountant("pld").rough()(ledger).epsilon(delta)) if ledger.steps else 0.0
