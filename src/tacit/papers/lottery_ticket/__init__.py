"""Gondara, Wang & Carvalho: the differentially private lottery ticket mechanism."""

from tacit.papers.base import Paper
from tacit.papers.lottery_ticket import choice, mask_attack, study

PAPER = Paper(
    mask_attack.KEY,
    "The Differentially Private Lottery Ticket Mechanism (Gondara, Wang & Carvalho, arXiv 2002.11613)",
    (mask_attack.ITEM, choice.ITEM, *study.ITEMS),
    "The released mask is a function of the private data that nothing protects: one record is found out nearly "
    "always, so the paper's mode carries the standing claimed. The published choice among tickets is close to a draw "
    "at random, whatever its epsilon. What remains of the gain at small epsilon is that fewer coordinates carry noise, "
    "which a random mask or a small dense network gives as well.",
)
