"""Lottery tickets under differential privacy: prune, choose privately, train the winner privately."""

from tacit.tickets.budget import TicketPlan
from tacit.tickets.iterative_pruning import iterative_tickets, winning
from tacit.tickets.private import PrivateTicket, TicketRun
from tacit.tickets.pruning import compact, random_masks, start_magnitude_masks, synflow_masks
from tacit.tickets.ticket import Ticket, count_scores, paper_scores, prunable, solid, transfer

__all__ = [
    "PrivateTicket",
    "Ticket",
    "TicketPlan",
    "TicketRun",
    "compact",
    "count_scores",
    "iterative_tickets",
    "paper_scores",
    "prunable",
    "random_masks",
    "solid",
    "start_magnitude_masks",
    "synflow_masks",
    "transfer",
    "winning",
]
