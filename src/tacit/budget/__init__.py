"""The registry of what every run spent on a data set: reservations, caps and totals over months, shared by processes.

One SQLite file in the project folder by default; PostgreSQL by a URL.
"""

from tacit.budget.registry import DatasetBudget, Registry, find_registry
from tacit.budget.scopes import Scope
from tacit.budget.shared_ledger import Reservation, SharedLedger

__all__ = ["DatasetBudget", "Registry", "Reservation", "Scope", "SharedLedger", "find_registry"]
