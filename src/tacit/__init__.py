"""tacit: differentially private machine learning whose every claim is tested.

The public names load on first use, so that `import tacit` stays light and accounting never imports torch.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "tacit.accounting": ("Account", "Accountant", "Filter", "Ledger", "Slots", "account", "accountant"),
    "tacit.calibration": ("Calibrated",),
    "tacit.data": ("Dataset",),
    "tacit.errors": ("BudgetExceeded", "InvalidInput", "LeakWarning", "Refused", "TacitError"),
    "tacit.judge": ("Checked", "check_bracket"),
    "tacit.mechanisms": ("Exponential", "Gaussian", "Laplace", "Mechanism", "Menu"),
    "tacit.opacus": ("PrivacyEngine",),
    "tacit.relation": ("Relation",),
    "tacit.runs": ("load", "train_table"),
    "tacit.standing": ("Standing",),
    "tacit.tradeoff": ("Advantage", "Epsilon", "Errors", "Mu", "Target", "TradeOff"),
    "tacit.tuning": ("PrivateSearchCV", "Tuned", "tune"),
    "tacit.training": ("Records", "fit", "make_private", "private_step"),
}
_ROOMS = (
    *("accounting", "attacks", "audit", "calibration", "data", "gradients", "judge"),
    *("lora", "losses", "mechanisms", "opacus", "reports", "training"),
)
_NAMES = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _NAMES.get(name) or (f"tacit.{name}" if name in _ROOMS else None)
    if home is None:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        from tacit.errors import missing_extra

        raise missing_extra(error) or error from None
    return getattr(module, name) if name in _NAMES else module


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_ROOMS})
