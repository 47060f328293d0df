"""Approximate minima: the noise that makes a solver's tolerance part of the proof (Iyengar et al. 2019)."""

from __future__ import annotations

import math

import numpy as np

from tacit.erm.losses import Loss
from tacit.erm.problem import Problem
from tacit.erm.release import Terms
from tacit.erm.solver import minimise
from tacit.mechanisms import Compose, Gaussian, ObjectivePerturbation
from tacit.noise import gaussian
from tacit.tradeoff.root import bracketed_root

_LEAST = 1e-12


def rounded_minimiser(
    problem: Problem, terms: Terms, linear: np.ndarray, *, tolerance: float, noise_multiplier: float
) -> np.ndarray:
    """A point of gradient norm <= tolerance of F + <linear, .>, plus Gaussian noise that hides the error.

    Given the exact minimiser (and so, by the change of variables, the linear term), the solver's error is a function
    of the data of norm at most tolerance / strength: it moves by at most 2 tolerance / strength between neighbours,
    whatever the relation. Releasing it is one Gaussian step, std = noise_multiplier * 2 tolerance / (s strength),
    s = 1 or 2 the factor by which an accountant widens a Gaussian step under the relation; it composes adaptively.

    Source: Iyengar, Near, Song, Thakkar, Thakurta & Wang 2019, Algorithm 1, with the composition made explicit.
    """
    found = minimise(problem, linear=linear, tolerance=tolerance)
    std = noise_multiplier * 2 * tolerance / (terms.relation.sensitivity * problem.strength)
    return found.theta + gaussian(terms.stream, problem.shape, std=std)


def strength_for(loss: Loss, log_volume: float) -> float:
    """The smallest strength at which one record adds at most `log_volume` > 0 to log det of the Hessian."""
    if loss.log_volume(_LEAST) <= log_volume:
        return _LEAST
    high = 1.0
    while loss.log_volume(high) > log_volume:
        high *= 4
    return bracketed_root(lambda value: loss.log_volume(value) - log_volume, _LEAST, high) * (1 + 1e-12)


def pulled_strength(problem: Problem, noise_norm: float, prior_norm: float) -> float:
    """A public choice of the strength for a noise term of mean norm N: N / W, the pull of the regulariser at norm W.

    W = prior_norm as long as the noise outweighs the data, that is, N / prior_norm >= n c / p, which stands for the
    mean eigenvalue of the Hessian (c the smoothness; the trace of sum x x^T is at most n). Below that W grows with
    the square root of the ratio, since the spectrum of real tables falls fast and less noise resolves more of it.
    The power was chosen on Bank and a synthetic table, never on Adult; see docs/erm.md.
    """
    strength = noise_norm / prior_norm
    curvature = problem.records * problem.loss.smoothness / problem.shape[0]
    return strength * min(1.0, math.sqrt(strength / curvature))


def with_rounding(objective: ObjectivePerturbation, *, ratio: float = 500.0) -> Compose:
    """`objective` and its rounding step, whose mu is 1 / ratio of that of the linear term."""
    return Compose.of((objective, 1), (Gaussian(ratio * objective.noise_multiplier), 1))
