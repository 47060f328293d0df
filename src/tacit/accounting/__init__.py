"""Ledgers of what ran, and accountants of its cost.

Accountants by privacy loss distribution, Renyi divergence, zero-concentrated differential privacy, the central limit
theorem and the classical composition theorems.
"""

from tacit.accounting.base import Accountant
from tacit.accounting.facts import FACTS, Fact, Facts, How
from tacit.accounting.ledger import PUBLIC_SIZE, Entry, Ledger, read_spec, unpaid
from tacit.accounting.registry import ACCOUNTANTS, ALIASES, Account, Result, account, accountant

__all__ = [
    "ACCOUNTANTS",
    "ALIASES",
    "FACTS",
    "PUBLIC_SIZE",
    "Account",
    "Accountant",
    "Entry",
    "Fact",
    "Facts",
    "How",
    "Ledger",
    "Result",
    "account",
    "accountant",
    "read_spec",
    "unpaid",
]
