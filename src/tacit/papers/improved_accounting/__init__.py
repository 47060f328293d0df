"""Triastcyn & Faltings: improved accounting for differentially private learning."""

from tacit.papers.base import Paper
from tacit.papers.improved_accounting import accuracy, counterexamples, coverage, figures, mnist, table_1, timing

PAPER = Paper(
    counterexamples.KEY,
    "Improved Accounting for Differentially Private Learning (Triastcyn & Faltings, arXiv 1901.09697)",
    (
        *table_1.ITEMS,
        *mnist.ITEMS,
        *figures.ITEMS,
        *timing.ITEMS,
        *accuracy.ITEMS,
        *coverage.ITEMS,
        *counterexamples.ITEMS,
    ),
    "The moments and generic accountants' numbers come out to the printed digits. The generic one is below the exact "
    "value even in the published row, and by any factor elsewhere: subsampling does not multiply a divergence by q^2. "
    "The Bayesian one averages over pairs, and a few unlike records have thousands of times the stated delta. "
    "Concealed parameters do not make samples free: what one step moves stays moved.",
)
