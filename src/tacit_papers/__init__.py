"""The papers recomputed: settings, published numbers with tolerances, the code, and one command for all of it."""

from tacit_papers.base import Item, Paper, Row
from tacit_papers.recheck import Checked, check_results
from tacit_papers.registry import PAPERS
from tacit_papers.reproduce import Reproduced, estimate, items_of, reproduce

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
