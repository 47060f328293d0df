"""Lottery tickets under differential privacy: prune, choose privately, train the winner privately."""

from tacit.noise.discrete import Scores, choice_mechanism, choose, log_probabilities
from tacit.tickets.budget import MODES, PrivateStop, PublicStop, Spending, TicketPlan, spend
from tacit.tickets.iterative_pruning import iterative_tickets, train_masked, winning
from tacit.tickets.private import PrivateTicket, TicketRun
from tacit.tickets.pruning import (
    Compact,
    by_magnitude,
    compact,
    paper_shares,
    random_masks,
    start_magnitude_masks,
    synflow_masks,
)
from tacit.tickets.ticket import Mask, Ticket, count_scores, paper_scores, prunable, solid, transfer

__all__ = [
    "MODES",
    "Compact",
    "Mask",
    "PrivateStop",
    "PrivateTicket",
    "PublicStop",
    "Scores",
    "Spending",
    "Ticket",
    "TicketPlan",
    "TicketRun",
    "by_magnitude",
    "choice_mechanism",
    "choose",
    "compact",
    "count_scores",
    "iterative_tickets",
    "log_probabilities",
    "paper_scores",
    "paper_shares",
    "prunable",
    "random_masks",
    "solid",
    "spend",
    "start_magnitude_masks",
    "synflow_masks",
    "train_masked",
    "transfer",
    "winning",
]
