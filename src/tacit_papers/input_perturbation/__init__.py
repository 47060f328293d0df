"""Kang, Liu, Niu, Tong, Zhang & Wang: Input Perturbation."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.input_perturbation import comparison, counter_examples, cross_validation, network, tables

PAPER = Paper(
    counter_examples.KEY,
    "Input Perturbation: A New Paradigm between Central and Local Differential Privacy "
    "(Kang, Liu, Niu, Tong, Zhang & Wang, arXiv 2002.08570)",
    (
        counter_examples.ITEM,
        counter_examples.LABEL_FLIP,
        tables.THEORY,
        comparison.ITEMS["figure-2"],
        network.ITEM,
        comparison.ITEMS["figure-4"],
        cross_validation.ITEM,
        cross_validation.CONVERGENCE,
    ),
    reading("tacit_papers.input_perturbation"),
    summary("tacit_papers.input_perturbation"),
)
