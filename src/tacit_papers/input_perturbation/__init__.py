"""Kang, Liu, Niu, Tong, Zhang & Wang: Input Perturbation."""

from tacit_papers.base import Paper, reading, summary
from tacit_papers.input_perturbation import (
    comparison,
    convergence,
    counter_examples,
    cross_validation,
    label_flip,
    network,
    theory,
)

PAPER = Paper(
    counter_examples.KEY,
    "Input Perturbation: A New Paradigm between Central and Local Differential Privacy "
    "(Kang, Liu, Niu, Tong, Zhang & Wang, arXiv 2002.08570)",
    (
        counter_examples.ITEM,
        label_flip.ITEM,
        theory.ITEM,
        comparison.ITEMS["figure-2"],
        network.ITEM,
        comparison.ITEMS["figure-4"],
        cross_validation.ITEM,
        convergence.ITEM,
    ),
    reading("tacit_papers.input_perturbation"),
    summary("tacit_papers.input_perturbation"),
)
