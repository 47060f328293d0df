"""The papers recomputed: settings, published numbers with tolerances, the code, and one command for all of it."""

from tacit.papers.base import Item, Paper, Row
from tacit.papers.registry import PAPERS
from tacit.papers.reproduce import Reproduced, estimate, items_of, reproduce

__all__ = ["PAPERS", "Item", "Paper", "Reproduced", "Row", "estimate", "items_of", "reproduce"]
