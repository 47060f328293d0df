"""Jayaraman & Evans: Evaluating Differentially Private Machine Learning in Practice."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.evaluating_dp import attribute_inference, batch_clipping, figures, privacy, table_theory, traces

PAPER = Paper(
    privacy.KEY,
    "Evaluating Differentially Private Machine Learning in Practice (Jayaraman & Evans, USENIX Security 2019)",
    (*privacy.ITEMS, table_theory.ITEM, batch_clipping.ITEM, *figures.ITEMS, attribute_inference.ITEM, traces.ITEM),
    reading("tacit_papers.evaluating_dp"),
    summary("tacit_papers.evaluating_dp"),
)
