"""Triastcyn & Faltings: improved accounting for differentially private learning."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.improved_accounting import (
    accuracy,
    counterexamples,
    coverage,
    figures,
    mnist,
    needed_distance,
    table_1,
    timing,
)

PAPER = Paper(
    counterexamples.KEY,
    "Improved Accounting for Differentially Private Learning (Triastcyn & Faltings, arXiv 1901.09697)",
    (
        *table_1.ITEMS,
        *mnist.ITEMS,
        needed_distance.ITEM,
        *figures.ITEMS,
        *timing.ITEMS,
        *accuracy.ITEMS,
        *coverage.ITEMS,
        *counterexamples.ITEMS,
    ),
    reading("tacit_papers.improved_accounting"),
    summary("tacit_papers.improved_accounting"),
)
