"""Gondara, Wang & Carvalho: the differentially private lottery ticket mechanism."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.lottery_ticket import choice, margins, mask_attack, random_ticket, study

PAPER = Paper(
    mask_attack.KEY,
    "The Differentially Private Lottery Ticket Mechanism (Gondara, Wang & Carvalho, arXiv 2002.11613)",
    (mask_attack.ITEM, choice.ITEM, *study.ITEMS, margins.ITEM, random_ticket.ITEM),
    reading("tacit_papers.lottery_ticket"),
    summary("tacit_papers.lottery_ticket"),
)
