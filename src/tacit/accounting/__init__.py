"""Ledgers of what ran, and accountants of its cost.

Accountants by privacy loss distribution, Renyi divergence, zero-concentrated differential privacy, the central limit
theorem and the classical composition theorems.
"""

from tacit.accounting.base import Accountant
from tacit.accounting.facts import FACTS, FLOATING, Fact, Facts, How
from tacit.accounting.ledger import PUBLIC_SIZE, Entry, Ledger, unpaid
from tacit.accounting.registry import ACCOUNTANTS, ALIASES, Account, Result, account, accountant
from tacit.accounting.release_facts import EXACT_STEPS, common_facts, exact_steps, one_shot_facts
from tacit.mechanisms.spec import read_spec

__all__ = [
    "ACCOUNTANTS",
    "ALIASES",
    "EXACT_STEPS",
    "FACTS",
    "FLOATING",
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
    "common_facts",
    "exact_steps",
    "one_shot_facts",
    "read_spec",
    "unpaid",
]
