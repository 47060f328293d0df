"""Every paper by its key."""

from tacit.papers.base import Paper
from tacit.papers.gaussian_dp import PAPER as GAUSSIAN_DP

PAPERS: dict[str, Paper] = {paper.key: paper for paper in (GAUSSIAN_DP,)}
