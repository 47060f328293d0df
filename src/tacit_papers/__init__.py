"""The papers recomputed: settings, published numbers with tolerances, the code, and one command for all of it."""

from tacit_papers.base import Item, Paper, Row
from tacit_papers.reproduce import PAPERS, Checked, Reproduced, check_results, estimate, items_of, reproduce

__all__ = [
    "PAPERS",
    "Checked",
    "Item",
    "Paper",
    "Reproduced",
    "Row",
    "check_results",
    "estimate",
    "items_of",
    "reproduce",
]
