"""Small problems, terms and the list of every method, shared by the tests of the room."""

import numpy as np

from tacit.accounting import Ledger
from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.erm.release import Terms
from tacit.erm.solver import Problem
from tacit.noise import SeededStream
from tacit.tradeoff import Epsilon

LOSSES = (Logistic(), Logistic(0.5), Logistic(0.3), Softmax(3), HuberHinge(0.5), HuberHinge(0.05), Squared(0.7))
BINARY = tuple(loss for loss in LOSSES if not isinstance(loss, Softmax | Squared))


def rows(rng, records, width):
    """Rows of the unit ball, some on its surface."""
    x = rng.normal(size=(records, width))
    return x / np.linalg.norm(x, axis=1, keepdims=True) * rng.choice([1.0, 0.5], size=(records, 1))


def targets_of(loss, rng, records):
    if isinstance(loss, Softmax):
        return rng.integers(0, loss.classes, records)
    if isinstance(loss, Squared):
        return rng.uniform(-1, 1, records)
    return rng.integers(0, 2, records).astype(float)


def problem(loss, *, records=40, width=3, strength=2.0, seed=0):
    rng = np.random.default_rng(seed)
    return Problem(rows(rng, records, width), targets_of(loss, rng, records), loss, strength)


def terms(epsilon=1.0, delta=1e-5, *, relation="add_remove", seed=0, target=None):
    return Terms(target or Epsilon(epsilon, delta), Ledger(relation=relation), SeededStream(seed))


def blank(width, records=2):
    """A problem whose records contribute nothing: what a method releases on it is its noise."""
    return Problem(np.zeros((records, width)), np.ones(records), Logistic(), 3.0)


def mean_gap(case, theta, best):
    """(F(theta) - F(best)) / n."""
    return (case.value(theta) - case.value(best)) / case.records
