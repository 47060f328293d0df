"""Jayaraman & Evans: Evaluating Differentially Private Machine Learning in Practice."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.evaluating_dp import attacks, batch_clipping, figures, privacy

PAPER = Paper(
    privacy.KEY,
    "Evaluating Differentially Private Machine Learning in Practice (Jayaraman & Evans, USENIX Security 2019)",
    (*privacy.ITEMS, privacy.THEORY, batch_clipping.ITEM, *figures.ITEMS, attacks.ITEM, attacks.TRACES),
    reading("tacit_papers.evaluating_dp"),
    summary("tacit_papers.evaluating_dp"),
)
