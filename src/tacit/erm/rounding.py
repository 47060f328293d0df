"""Rounding errors of sums over records in double precision, which noise and tolerances pay for.

With u = 2^-53 and gamma_n = n u / (1 - n u), a sum of n products errs by at most gamma_n times the sum of their sizes,
in any order (Higham 2002, sections 3.1 and 4.2). For contributions of norm <= C the error vector of their sum has norm
at most gamma_n n C, so that neighbouring computed sums are at most C + 2 gamma_n n C apart.
"""

from __future__ import annotations

import numpy as np

from tacit import check
from tacit.erm.solver import BLOCK_ROWS, NORM_SLACK, Array, Problem

UNIT = 2.0**-53
# Rounding of one contribution and of its norm: a few dozen operations on each of its entries.
ELEMENTWISE = 2.0**-40
ROUNDED_DOWN = 1 - 2.0**-40
"""Factor that keeps a rate below its real value, which a few operations in double precision compute."""


def gamma(terms: int) -> float:
    """gamma_n = n u / (1 - n u) of Higham.

    Example:
        >>> gamma(1) == 2.0**-53 / (1 - 2.0**-53)
        True
    """
    return terms * UNIT / (1 - terms * UNIT)


def sum_rounding(records: int) -> float:
    """Share by which the sensitivity of a computed sum over at most `records` records exceeds that of the exact one.

    2 gamma_n n for the sum, and what rows may be longer than 1 by.

    Example:
        >>> sum_rounding(1000) < 1e-8
        True
    """
    return 2 * records * gamma(records) + 2 * NORM_SLACK + ELEMENTWISE


def step_rounding(problem: Problem, theta: Array, bound: float) -> float:
    """`sum_rounding` of clipped gradients at `theta`, whose scores may come out otherwise in another batch.

    A score of one record errs by at most gamma_p ||theta||, its clipped gradient by 2 c times that, c the smoothness,
    and neighbouring batches may err in opposite directions.

    Args:
        problem: the records.
        theta: (p, k), which is released already.
        bound: clipping norm, > 0.
    """
    n = problem.most_records
    moved = 4 * n * problem.loss.smoothness * gamma(theta.shape[0] + 2) * float(np.linalg.norm(theta))
    return sum_rounding(n) + moved / bound


def gradient_rounding(problem: Problem, bound: float, linear_norm: float = 0.0) -> float:
    """Bound on the error of the computed gradient of F + <linear, theta> wherever the solver accepts its answer.

    Sums err by gamma_h n G, G = `bound` and h the roundings of `blocked_sum`. A score errs by gamma_p ||theta||, which
    moves the gradient by c n times that, c the smoothness. The regulariser and the linear term err by a few units. At
    an accepted point strength ||theta|| is at most n G + ||linear|| + 1, so that no term follows the records' values.

    Args:
        problem: F, with a positive strength.
        bound: G, on the gradient of one record.
        linear_norm: norm of the linear term, which follows no record.

    Raises:
        InvalidInput: the strength is 0.
    """
    check.positive("strength", problem.strength, "The answer is that of a strongly convex problem.")
    n, p = problem.most_records, problem.dimension
    pull = n * bound + linear_norm + 1.0
    scores = problem.loss.smoothness * n * gamma(p + 2) * pull / problem.strength
    return gamma(roundings(n)) * n * bound + ELEMENTWISE * n * bound + scores + 8 * UNIT * (pull + linear_norm)


def roundings(records: int) -> int:
    """Roundings that a value of `blocked_sum` meets, and those of its product and of the regulariser."""
    return min(records, BLOCK_ROWS) + records // BLOCK_ROWS + 4
