"""Gondara, Wang & Carvalho: the differentially private lottery ticket mechanism."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.lottery_ticket import margins, mechanism, study

PAPER = Paper(
    mechanism.KEY,
    "The Differentially Private Lottery Ticket Mechanism (Gondara, Wang & Carvalho, arXiv 2002.11613)",
    (mechanism.MASK_ATTACK, mechanism.CHOICE, *study.ITEMS, margins.ITEM, margins.RANDOM_TICKET),
    reading("tacit_papers.lottery_ticket"),
    summary("tacit_papers.lottery_ticket"),
)
