"""Jayaraman & Evans: Evaluating Differentially Private Machine Learning in Practice."""

from tacit.papers.base import Paper
from tacit.papers.evaluating_dp import batch_clipping, figures, privacy, table_theory

PAPER = Paper(
    privacy.KEY,
    "Evaluating Differentially Private Machine Learning in Practice (Jayaraman & Evans, USENIX Security 2019)",
    (*privacy.ITEMS, table_theory.ITEM, batch_clipping.ITEM, *figures.ITEMS),
    "At an equal nominal epsilon the paper's calibrations differ by factors of ten and more in what they guarantee, so "
    "that its figures compare amounts of noise: the figures by sigma and by the exact epsilon, which the paper could "
    "not draw, compare the methods themselves. zCDP holds for add/remove and fails for replace-one, which is how the "
    "paper defines neighbours. Not paid for, as in the paper: principal components of all records, hyper-parameters "
    "chosen on the test set, and the training loss that the attacker is given.",
)
