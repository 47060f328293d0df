"""What ran, and what it costs: the ledger and one file per accountant."""

from tacit.accounting.base import Accountant
from tacit.accounting.ledger import PUBLIC_SIZE, Entry, Ledger, read_spec, unpaid
from tacit.accounting.registry import ACCOUNTANTS, Account, Result, account, accountant

__all__ = [
    "ACCOUNTANTS",
    "PUBLIC_SIZE",
    "Account",
    "Accountant",
    "Entry",
    "Ledger",
    "Result",
    "account",
    "accountant",
    "read_spec",
    "unpaid",
]
