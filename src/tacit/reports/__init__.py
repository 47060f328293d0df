"""Reports: the privacy card, its figures and terminal tables. They format; they never compute.

All names load on first use: a terminal table needs neither a card nor its pages.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.reports.audit_page import audit_files, audit_table_of, write_audit
    from tacit.reports.card import Card, card_markdown, card_table, write_card
    from tacit.reports.tables import account_table, audit_table, facts_table, plain_table, sweep_table
    from tacit.reports.words import coarse_seconds

__all__ = [
    "Card",
    "account_table",
    "audit_files",
    "audit_table",
    "audit_table_of",
    "card_markdown",
    "card_table",
    "coarse_seconds",
    "facts_table",
    "plain_table",
    "sweep_table",
    "write_audit",
    "write_card",
]

_HOMES = ("words", "tables", "card", "audit_page")  # light ones first


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"tacit.reports.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'tacit.reports' has no attribute {name!r}")
