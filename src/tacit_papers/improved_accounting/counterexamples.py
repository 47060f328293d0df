"""Where the paper's numbers fall below the truth: q^2 times a divergence, averages over pairs, concealed state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.accounting import Ledger, accountant
from tacit.accounting.bayesian import Bayesian
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff.gaussian import gaussian_epsilon
from tacit_papers.base import Item, Row, unpublished_rows

KEY = "improved-accounting"
_DELTA = 1e-5
_GENERIC = ((0.01, 0.3, 1), (0.01, 0.5, 1), (0.01, 0.5, 100), (0.001, 0.5, 1000), (0.01, 1.0, 1000),
            (64 / 60000, 1.0, 93750))  # fmt: skip
_SHIFT, _PATHS = 0.01, (100, 1000, 2000)


def generic(sample_rate: float, sigma: float, steps: int, delta: float) -> dict[str, float]:
    """The generic accountant's epsilon, the exact one, and the exact delta at the former.

    Args:
        sample_rate: in (0, 1].
        sigma: noise multiplier, > 0.
        steps: number of steps, >= 1.
        delta: in (0, 1).
    """
    ran = Ledger.of(Gaussian(sigma).poisson(sample_rate) * steps)
    claimed = float(accountant("generic")(ran).epsilon(delta))
    exact = accountant("pld")(ran)
    return {
        "claimed": claimed,
        "exact": float(exact.epsilon(delta).lower or 0.0),
        "delta": float(exact.delta(claimed).lower or 0.0),
        "proven": float(accountant("generic_sound")(ran).epsilon(delta)),
    }


def outliers(share: float, usual: float, steps: int, pairs: int, seed: int) -> dict[str, float]:
    """The Bayesian accountant where a few records are unlike the rest (soundness review, S4).

    60,000 records of which `share` have clipped gradients of norm 1, the others of norm `usual`, in independent random
    directions; rate 64 / 60000, noise multiplier 1. Pairs are drawn at random in each step.

    Returns its epsilon, and for one of the unlike records the exact delta at that epsilon.

    Args:
        share: of the records that are unlike the rest, in (0, 1).
        usual: gradient norm of the others, in [0, 1].
        steps: number of steps, >= 1.
        pairs: drawn in each step.
        seed: of the draws.
    """
    rate, random = 64 / 60000, np.random.default_rng(seed)
    bayesian = Bayesian()
    for _ in range(steps):
        norms = np.where(random.random((pairs, 2)) < share, 1.0, usual)
        bayesian.observe(np.hypot(*norms.T), sample_rate=rate, noise_multiplier=1.0, clip_norm=1.0)
    ran = Ledger.of(Gaussian(1.0).poisson(rate) * steps)
    claimed = float(bayesian(ran).epsilon(_DELTA))
    exact = accountant("pld")(ran)
    return {
        "claimed": claimed,
        "delta": float(exact.delta(claimed).lower or 0.0),
        "exact": float(exact.epsilon(_DELTA).lower or 0.0),
        "share": share,
    }


def concealed(shift: float, steps: int, delta: float) -> dict[str, float]:
    """Released samples of a posterior whose parameters stay concealed, step by step and as they are.

    In every step a record moves the concealed mean by `shift` standard deviations more. Accounting for the steps one by
    one gives mu = sqrt(T) shift; given the past samples the means differ by t shift at step t, so that the released
    path has mu = shift sqrt(sum t^2), exactly.
    """
    claimed = shift * steps**0.5
    true = shift * float(np.sqrt(np.sum(np.arange(1, steps + 1, dtype=float) ** 2)))
    return {
        "claimed_mu": claimed,
        "true_mu": true,
        "last_mu": shift * steps,
        "claimed": gaussian_epsilon(delta, claimed),
        "true": gaussian_epsilon(delta, true),
    }


def _generic_tasks(size: str) -> list[Task]:
    return [
        Task(f"{__name__}:generic", {"sample_rate": q, "sigma": s, "steps": t, "delta": _DELTA}, 1.0)
        for q, s, t in _GENERIC
    ]


_GENERIC_WORDS = {
    "claimed": ("epsilon as claimed", Standing.CLAIMED),
    "exact": ("epsilon, exact", Standing.PROVEN),
    "delta": ("delta at the claimed epsilon (1e-5 asked)", Standing.PROVEN),
    "proven": ("epsilon, sound form", Standing.PROVEN),
}


def _generic_rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        row
        for (q, sigma, steps), value in zip(_GENERIC, values, strict=True)
        for row in unpublished_rows(
            KEY, "generic", f"q {q:.4g}, sigma {sigma:g}, {steps} steps: ", value, _GENERIC_WORDS
        )
    ]


def _outlier_tasks(size: str) -> list[Task]:
    settings = {"share": 0.001, "usual": 0.01, "steps": 9375, "pairs": 64}
    return [Task(f"{__name__}:outliers", settings | {"seed": seed}, 8.0) for seed in range(1 if size == "quick" else 3)]


_OUTLIER_WORDS = {
    "claimed": ("Bayesian epsilon at delta 1e-5", Standing.BAYESIAN),
    "delta": ("delta there for an unlike record", Standing.PROVEN),
    "mean_delta": ("that delta over all records", Standing.PROVEN),
    "exact": ("epsilon, exact", Standing.PROVEN),
}


def _outlier_rows(size: str, values: Sequence[Any]) -> list[Row]:
    rows = []
    for seed, value in enumerate(values):
        value = value | {"mean_delta": value["delta"] * value["share"]}
        rows += unpublished_rows(KEY, "outliers", f"draw {seed}: ", value, _OUTLIER_WORDS)
    return rows


def _concealed_tasks(size: str) -> list[Task]:
    return [Task(f"{__name__}:concealed", {"shift": _SHIFT, "steps": t, "delta": _DELTA}, 0.1) for t in _PATHS]


_CONCEALED_WORDS = {
    "claimed_mu": ("mu step by step", Standing.CLAIMED),
    "true_mu": ("mu of the released path", Standing.PROVEN),
    "last_mu": ("mu of the last sample alone", Standing.PROVEN),
    "claimed": ("epsilon step by step", Standing.CLAIMED),
    "true": ("epsilon of the released path", Standing.PROVEN),
}


def _concealed_rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        row
        for steps, value in zip(_PATHS, values, strict=True)
        for row in unpublished_rows(KEY, "concealed-state", f"{steps} samples: ", value, _CONCEALED_WORDS)
    ]


ITEMS = (
    Item("generic", "the generic accountant against the exact one", _generic_tasks, _generic_rows),
    Item("outliers", "the Bayesian accountant where a few records are unlike the rest", _outlier_tasks, _outlier_rows),
    Item("concealed-state", "samples of a posterior whose parameters are concealed", _concealed_tasks, _concealed_rows),
)
