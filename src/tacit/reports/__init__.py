"""Reports: the privacy card, its figures and terminal tables. They format; they never compute."""

from tacit.reports.audit_page import audit_files, audit_table_of, write_audit
from tacit.reports.card import Card, card_table, coarse_seconds, write_card
from tacit.reports.exports import card_markdown
from tacit.reports.tables import account_table, audit_table, facts_table, plain_table, sweep_table

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
