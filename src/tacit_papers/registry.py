"""Every paper by its key."""

from tacit_papers.base import Paper
from tacit_papers.evaluating_dp import PAPER as EVALUATING_DP
from tacit_papers.gaussian_dp import PAPER as GAUSSIAN_DP
from tacit_papers.improved_accounting import PAPER as IMPROVED_ACCOUNTING
from tacit_papers.input_perturbation import PAPER as INPUT_PERTURBATION
from tacit_papers.lottery_ticket import PAPER as LOTTERY_TICKET

PAPERS: dict[str, Paper] = {
    paper.key: paper for paper in (GAUSSIAN_DP, EVALUATING_DP, LOTTERY_TICKET, IMPROVED_ACCOUNTING, INPUT_PERTURBATION)
}
