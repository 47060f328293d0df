"""Every paper by its key."""

from tacit.papers.base import Paper
from tacit.papers.evaluating_dp import PAPER as EVALUATING_DP
from tacit.papers.gaussian_dp import PAPER as GAUSSIAN_DP
from tacit.papers.improved_accounting import PAPER as IMPROVED_ACCOUNTING
from tacit.papers.input_perturbation import PAPER as INPUT_PERTURBATION
from tacit.papers.lottery_ticket import PAPER as LOTTERY_TICKET

PAPERS: dict[str, Paper] = {
    paper.key: paper for paper in (GAUSSIAN_DP, EVALUATING_DP, LOTTERY_TICKET, IMPROVED_ACCOUNTING, INPUT_PERTURBATION)
}
