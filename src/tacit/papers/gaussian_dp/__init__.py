"""Bu, Dong, Long & Su: Deep Learning with Gaussian Differential Privacy."""

from tacit.papers.base import Paper
from tacit.papers.gaussian_dp import curves, figures, rate, tables

PAPER = Paper(
    "gaussian-dp",
    "Deep Learning with Gaussian Differential Privacy (Bu, Dong, Long & Su, arXiv 1911.11607)",
    (*tables.ITEMS, *figures.ITEMS, rate.ITEM, *curves.ITEMS),
    "The moments accountant's and the CLT's numbers come out to the printed digits. The CLT's epsilon is a limit, not "
    "a bound: on five of the six MNIST rows it lies below the exact value, and the noise that it allows at the moments "
    "accountant's epsilon is too little. The exact accountant allows less noise than the moments accountant too, and "
    "is proven.",
)
