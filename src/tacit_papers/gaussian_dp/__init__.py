"""Bu, Dong, Long & Su: Deep Learning with Gaussian Differential Privacy."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.gaussian_dp import curves, figure_4, tables

PAPER = Paper(
    "gaussian-dp",
    "Deep Learning with Gaussian Differential Privacy (Bu, Dong, Long & Su, arXiv 1911.11607)",
    (*tables.ITEMS, curves.FIGURE_2, figure_4.ITEM, figure_4.READINGS, *curves.ITEMS),
    reading("tacit_papers.gaussian_dp"),
    summary("tacit_papers.gaussian_dp"),
)
