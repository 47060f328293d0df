"""Bu, Dong, Long & Su: Deep Learning with Gaussian Differential Privacy."""

from tacit.papers.base import Paper, reading
from tacit.papers.gaussian_dp import curves, figures, rate, tables

PAPER = Paper(
    "gaussian-dp",
    "Deep Learning with Gaussian Differential Privacy (Bu, Dong, Long & Su, arXiv 1911.11607)",
    (*tables.ITEMS, *figures.ITEMS, rate.ITEM, *curves.ITEMS),
    reading("tacit.papers.gaussian_dp"),
)
