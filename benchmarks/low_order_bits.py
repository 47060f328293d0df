"""Distinguishers of low-order bits against every way to release: what they find at 99 %, beside what is certified.

    python benchmarks/low_order_bits.py [--runs 1000] [--only NAME] [--json FILE]

Each case releases the same statistic of two neighbours, `runs` times each after a fifth as many to learn from. Five
scores are tried in both directions, each at a share of the 1 %: the finest bits that are set, the residues of the
released multiples modulo 4 and modulo 8, the signs of zeros, and the projection on the mean difference of the runs to
learn from. Cases whose name ends in "floats" add noise in floating point, for which nothing is certified: they show
that the scores find low-order bits where there are any (Mironov 2012).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.audit import audit_scores
from tacit.erm.losses import Logistic
from tacit.erm.release import Method, Terms
from tacit.erm.solver import Problem
from tacit.noise import SecureStream
from tacit.noise.discrete import discrete_laplace, exponential_mechanism, permute_and_flip
from tacit.tradeoff import Epsilon
from tacit.tradeoff.gaussian import gaussian_epsilon
from tacit.training import private_step
from tacit.variational import LogisticLikelihood
from tacit_papers.improved_accounting.concealed import infer_concealed
from tacit_papers.improved_accounting.posterior_sampling import Schedule, posterior_samples, sgld
from tacit_papers.input_perturbation.comparison import METHODS
from tacit_papers.input_perturbation.perturbed_table import InputPerturbation, randomised_labels

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.noise import floating

Array = NDArray[np.float64]
DELTA = 1e-5
CONFIDENCE = 0.99
COLUMNS = 800
"""Coordinates of a release: low-order bits of each are a chance to tell the neighbours apart."""
RECORDS = 30


@dataclass(frozen=True)
class Case:
    """A release of one of two neighbours; `certified` is None where nothing is."""

    release: Callable[[bool], Array]
    certified: float | None
    delta: float = DELTA


def input_perturbation(epsilon: float) -> Case:
    """A row of zeros, or of cells that are no sums of a few powers of two."""
    table = InputPerturbation(epsilon=epsilon, delta=DELTA, data_bounds=(0, 1), norm_bound=1.0)
    table.fit(np.zeros((1, COLUMNS)))
    rows = np.zeros((1, COLUMNS)), np.full((1, COLUMNS), 1 / 30)
    return Case(lambda there: table.transform(rows[there])[0], epsilon)


def input_perturbation_in_floats(epsilon: float) -> Case:
    """The same noise in floating point."""
    table = InputPerturbation(epsilon=epsilon, delta=DELTA, data_bounds=(0, 1), norm_bound=1.0)
    std, stream = table.fit(np.zeros((1, COLUMNS))).noise_std_, SecureStream()
    return Case(lambda there: there / 30 + std * stream.normal(COLUMNS), None)


def training(noise_multiplier: float, *, exact: bool = True) -> Case:
    """One full-batch step of private training, whose release `fit` makes too; weights of 0 show the noisy sum."""
    inputs, targets = torch.zeros(2, 8, COLUMNS), torch.zeros(8, dtype=torch.long)
    inputs[1, 0] = torch.from_numpy(np.random.default_rng(0).normal(size=COLUMNS))
    model = nn.Linear(COLUMNS, 1, bias=False)
    step = private_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        lambda outputs, y: nn.functional.softplus(outputs[:, 0]),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        expected_batch_size=8,
    )

    def release(there: bool) -> Array:
        with torch.no_grad():
            model.weight.zero_()
        with nullcontext() if exact else floating():
            step(inputs[int(there)], targets)
        return model.weight.detach().double().numpy().ravel().copy()

    certified = gaussian_epsilon(DELTA, 1 / noise_multiplier) if exact else None
    return Case(release, certified)


def neighbours(columns: int = 20) -> tuple[Problem, Problem]:
    """Two problems, of which the first has a blank record in the place of one of norm 1."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(RECORDS, columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    targets = rng.integers(0, 2, RECORDS).astype(float)
    blank = rows.copy()
    blank[0] = 0.0
    return Problem(blank, targets, Logistic(), 3.0), Problem(rows, targets, Logistic(), 3.0)


def empirical_risk(method: Method, epsilon: float = 0.5) -> Case:
    """A minimiser by one of the methods of `tacit.erm`."""
    problems, delta = neighbours(), 0.0 if method.pure else DELTA

    def release(there: bool) -> Array:
        terms = Terms(Epsilon(epsilon, delta), Ledger(relation="zero_out"), SecureStream())
        return method.release(problems[there], terms).theta.ravel()

    return Case(release, epsilon, delta)


def posterior(count: int = 3) -> Case:
    """Samples around a minimiser."""
    both = neighbours()

    def sampled(there: bool) -> Any:
        problem = both[there]
        settings = {"strength": 20.0, "std": 0.3, "count": count, "ledger": Ledger(relation="zero_out")}
        return posterior_samples(Logistic(), problem.features, problem.targets, **settings)

    ledger = sampled(False).ledger
    return Case(lambda there: sampled(there).samples.ravel(), _epsilon(ledger))


def langevin() -> Case:
    """Two states of DP-SGLD with all records."""
    both, schedule = neighbours(), Schedule(1.0, DELTA, 2.0, 1.0)

    def chain(there: bool) -> Any:
        return sgld(both[there], schedule, batch_size=RECORDS, ledger=Ledger(relation="zero_out"))

    return Case(lambda there: chain(there).states.ravel(), _epsilon(chain(False).ledger))


def concealed() -> Case:
    """The samples of an inference with concealed parameters."""
    settings = {"clip_norm": 1.0, "steps": 2, "sample_rate": 1.0, "noise_multiplier": 8.0, "learning_rate": 0.1}
    both = [(torch.from_numpy(each.features).float(), torch.from_numpy(each.targets).long()) for each in neighbours()]

    def inferred(there: bool) -> Any:
        return infer_concealed(
            LogisticLikelihood(), *both[there], samples=2, ledger=Ledger(relation="zero_out"), **settings
        )

    return Case(lambda there: inferred(there).path.double().numpy().ravel(), _epsilon(inferred(False).ledger))


def _epsilon(ledger: Ledger) -> float:
    return float(accountant("pld")(ledger).epsilon(DELTA))


def labels(epsilon: float = 0.5) -> Case:
    """Randomised response of one label."""
    kept = partial(randomised_labels, classes=[0, 1], epsilon=epsilon, stream=SecureStream())
    return Case(lambda there: np.array([float(kept([int(there)], ledger=Ledger())[0])]), epsilon, 0.0)


def counts(epsilon: float = 0.5) -> Case:
    """A count with discrete Laplace noise."""
    stream, scale = SecureStream(), 1 / Fraction(epsilon)
    return Case(lambda there: np.array([there + discrete_laplace(stream, scale)], float), epsilon, 0.0)


def selection(choose: Callable[..., int], epsilon: float = 0.5) -> Case:
    """A choice among three scores, of which one record moves each by 1."""
    stream, both = SecureStream(), ([3, 2, 2], [2, 3, 3])
    given = {"epsilon": Fraction(epsilon), "sensitivity": Fraction(1)}
    return Case(lambda there: np.array([float(choose(stream, both[there], **given) == 0)]), epsilon, 0.0)


CASES: dict[str, Callable[[], Case]] = {
    "input perturbation, epsilon 1": lambda: input_perturbation(1.0),
    "input perturbation, epsilon .1": lambda: input_perturbation(0.1),
    "input perturbation, epsilon 1, floats": lambda: input_perturbation_in_floats(1.0),
    "training step, noise 8": lambda: training(8.0),
    "training step, noise 2": lambda: training(2.0),
    "training step, noise 2, floats": lambda: training(2.0, exact=False),
    "randomised response": labels,
    "count, discrete Laplace": counts,
    "selection, permute and flip": lambda: selection(permute_and_flip),
    "selection, exponential": lambda: selection(exponential_mechanism),
    "posterior samples": posterior,
    "Langevin dynamics": langevin,
    "concealed inference": concealed,
} | {
    f"{family} {name}": partial(lambda kind: empirical_risk(kind()), kind)
    for family in ("output", "objective")
    for name, kind in METHODS[family].items()
}


def scores(releases: Array, learnt: Array) -> dict[str, Array]:
    """The scores of every release, (runs, values) -> (runs,).

    Args:
        releases: of both neighbours together.
        learnt: direction of the projection, shape (values,).
    """
    bits = lowest_bits(releases)
    grid = np.exp2(bits.min())
    multiples = np.fmod(releases / grid, 8)
    return {
        "finest bit": bits.min(axis=1),
        "bits": bits.mean(axis=1),
        "residues": (np.fmod(multiples, 4) == 0).mean(axis=1) + 0.01 * (multiples == 0).mean(axis=1),
        "signs of zeros": ((releases == 0) & np.signbit(releases)).mean(axis=1),
        "projection": releases @ learnt,
    }


def lowest_bits(values: Array) -> Array:
    """Power of two of the lowest bit that is set in each value; that of the largest power for 0."""
    fraction, exponent = np.frexp(values)
    whole = np.abs(fraction * 2.0**53).astype(np.int64)
    found = np.log2(np.maximum(whole & -whole, 1).astype(float)) + exponent - 53
    return np.where(values == 0, found[values != 0].max(initial=0.0), found)


def measured(case: Case, runs: int, confidence: float = CONFIDENCE) -> float:
    """The lower bound on epsilon that the best score finds; above the true one with probability 1 - confidence."""
    draw = [np.array([case.release(there) for _ in range(runs + runs // 5)]) for there in (False, True)]
    without, with_one = (each[: runs // 5].mean(axis=0) for each in draw)
    kept = [each[runs // 5 :] for each in draw]
    found = scores(np.concatenate(kept), with_one - without)
    share = 1 - (1 - confidence) / (2 * len(found))
    best = 0.0
    for name, score in found.items():
        for sign in (1.0, -1.0):
            pair = Scores(name, sign * score[runs:], sign * score[:runs], float(np.median(sign * score)))
            audit = audit_scores(pair, delta=case.delta, trials="independent", relation="zero_out", confidence=share)
            best = max(best, float(audit.tradeoff.epsilon(case.delta)))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: dict[str, Any] = {}
    for name in given.only or CASES:
        case = CASES[name]()
        rows[name] = {"certified": case.certified, "delta": case.delta, "measured": measured(case, given.runs)}
        said = "nothing" if case.certified is None else f"{case.certified:.3g} at delta {case.delta:g}"
        print(f"{name}: certified {said}, measured at least {rows[name]['measured']:.3g}", flush=True)
        if given.json is not None:
            given.json.write_text(
                json.dumps({"runs": given.runs, "confidence": CONFIDENCE, "cases": rows}, indent=1) + "\n"
            )
    beyond = [row for row in rows.values() if row["certified"] is not None and row["measured"] > row["certified"]]
    raise SystemExit(bool(beyond))


if __name__ == "__main__":
    main()
