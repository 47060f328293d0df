"""Triastcyn & Faltings: improved accounting for differentially private learning."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.improved_accounting import accuracy, counterexamples, mnist, table_1

PAPER = Paper(
    counterexamples.KEY,
    "Improved Accounting for Differentially Private Learning (Triastcyn & Faltings, arXiv 1901.09697)",
    (
        *table_1.ITEMS,
        *mnist.ITEMS,
        table_1.NEEDED_DISTANCE,
        *mnist.FIGURES,
        *table_1.TIMING,
        *accuracy.ITEMS,
        *accuracy.COVERAGE,
        *counterexamples.ITEMS,
    ),
    reading("tacit_papers.improved_accounting"),
    summary("tacit_papers.improved_accounting"),
)
