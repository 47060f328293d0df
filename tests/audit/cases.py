"""Scores whose leakage is known exactly, and claims about them."""

import numpy as np

from tacit.attacks import Scores
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, TradeOff


def coin_scores(draw, mu, canaries=400):
    """One run of `canaries` fair coins with independent scores, exactly mu-GDP each; nobody is left out."""
    inside = draw.random(canaries) < 0.5
    inside[:2] = True, False
    values = draw.normal(size=canaries) + mu * (inside - 0.5)
    return Scores("coins", values[inside], values[~inside], 0.0)


def claim(mu, standing=Standing.PROVEN):
    return TradeOff(GaussianCurve(mu), standing, Relation.ADD_REMOVE, "claim")


def generator(seed):
    return np.random.default_rng(seed)
