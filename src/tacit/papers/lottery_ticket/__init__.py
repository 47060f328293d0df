"""Gondara, Wang & Carvalho: the differentially private lottery ticket mechanism."""

from tacit.papers.base import Paper
from tacit.papers.lottery_ticket import choice, mask_attack, study

_READING = """\
The released mask is a function of the private data that nothing protects, so the paper's mode carries the standing
*claimed*: of 200 runs a world the order of the initial weights is violated in
{{ ours("mask-attack", "paper: runs with the order violated, record lit") }} with the record and in
{{ ours("mask-attack", "paper: runs with the order violated, record dark") }} without it, which refutes its claim of
epsilon 1 (epsilon is at least {{ ours("mask-attack", "paper: epsilon at least (claimed 1, delta 1e-5)") }}). The same
attack on the sound modes finds no violation; with so many runs it would have found an epsilon of
{{ ours("mask-attack", "T2: smallest epsilon that would have been found") }}.

The published choice among tickets is close to a draw at random, whatever its epsilon: at epsilon 1 the likeliest ticket
is {{ ours("choice", "epsilon 1: likeliest over unlikeliest ticket, published score") }} times as likely as the
unlikeliest. `tacit tickets --explain` shows the same for any tickets.

What remains of the gain at small epsilon is that fewer coordinates carry noise. On MNIST at epsilon .2,
means over the repeats that have run:

| network | test accuracy % | standing of the mode |
|---|---:|---|
{% for name, standing in [
    ("dense, the paper's settings", "proven"),
    ("T1, random mask", "proven"),
    ("T1, public ticket", "proven"),
    ("T2, private ticket", "proven"),
    ("dense, tuned", "proven; the tuning is not paid for"),
    ("paper mode (claimed)", "claimed"),
] -%}
| {{ name }} | {{ ours("table-2-mnist", "epsilon 0.2, " ~ name ~ ": test accuracy %") }} | {{ standing }} |
{% endfor %}
So a sparse network beats the dense one at the paper's settings with a mask that has seen no data at all, and a small
dense network that is tuned does as well or better: sparsity helps because it is smallness. What the paper's mode has
beyond that is what its unprotected mask carries. The same rows for the other data sets are below, each cell as
measured, beside the paper's number where Table 2 has one.
"""

PAPER = Paper(
    mask_attack.KEY,
    "The Differentially Private Lottery Ticket Mechanism (Gondara, Wang & Carvalho, arXiv 2002.11613)",
    (mask_attack.ITEM, choice.ITEM, *study.ITEMS),
    _READING,
)
