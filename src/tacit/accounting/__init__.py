"""Ledgers of what ran, and accountants of its cost.

Accountants by privacy loss distribution, Renyi divergence, zero-concentrated differential privacy, the central limit
theorem and the classical composition theorems.
"""

from tacit.accounting.adaptivity import Slots
from tacit.accounting.base import Accountant
from tacit.accounting.claims import Claim
from tacit.accounting.classical import last_iterate_heuristic
from tacit.accounting.facts import FACTS, FLOATING, Entry, Fact, Facts, How, unpaid
from tacit.accounting.filters import Filter, Odometer
from tacit.accounting.ledger import DECLARED_SIZE, PLACES, PUBLIC_SIZE, Ledger
from tacit.accounting.registry import ACCOUNTANTS, Account, Result, account, accountant
from tacit.accounting.release_facts import EXACT_RELEASE, common_facts, exact_path, exact_steps, one_shot_facts
from tacit.mechanisms.spec import read_spec

__all__ = [
    "ACCOUNTANTS",
    "DECLARED_SIZE",
    "EXACT_RELEASE",
    "FACTS",
    "FLOATING",
    "PLACES",
    "PUBLIC_SIZE",
    "Account",
    "Accountant",
    "Claim",
    "Entry",
    "Fact",
    "Facts",
    "Filter",
    "How",
    "Ledger",
    "Odometer",
    "Result",
    "Slots",
    "account",
    "accountant",
    "common_facts",
    "exact_path",
    "exact_steps",
    "last_iterate_heuristic",
    "one_shot_facts",
    "read_spec",
    "unpaid",
]
