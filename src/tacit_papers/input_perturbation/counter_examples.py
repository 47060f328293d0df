"""`PaperInput` (Kang, Liu, Niu, Tong, Zhang & Wang, arXiv 2002.08570): claimed, refuted if T is small against n.

Claimed against exact epsilon of the published calibration, on a loss that the theorem covers.

An attack on input perturbation as published: labels are not perturbed, and one of them is flipped.

At the first step every record's gradient is half of its perturbed features, with the sign of its label. Flipping the
label of a record of norm 1 moves their mean by 1 / n, where n noises of deviation sigma / 2 average to one of
sigma / (2 sqrt(n)): mu = 2 / (sqrt(n) sigma) to first order, whatever was claimed.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.attacks import Scores
from tacit.audit import audit_scores
from tacit.erm.base import default_delta
from tacit.erm.losses import Logistic
from tacit.erm.release import Method, Release, Terms, lipschitz
from tacit.erm.solver import Problem
from tacit.mechanisms import Approximate
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff import Epsilon
from tacit.tradeoff.gaussian import gaussian_epsilon, gaussian_mu
from tacit_papers.base import Item, Row, unpublished_rows
from tacit_papers.input_perturbation.input_methods import LABELS, ClaimedRelease, perturbed_rows
from tacit_papers.input_perturbation.objective_methods import approximate


def published_std(
    *,
    lipschitz: float,
    steps: int,
    records: int,
    convexity: float,
    epsilon: float,
    delta: float,
    constant: float = 1.0,
    convexity_power: float = 0.5,
) -> float:
    """Noise standard deviation of equation (9): sigma^2 = c G^2 T log(1/delta) / (n (n - 1) Delta^a epsilon^2).

    Delta is the strong convexity of the mean loss, or its Polyak-Lojasiewicz constant (equation 52). The paper leaves c
    open ("for some constant c") and its proof gives a = 1 where the only public code has a = 1/2.

    Args:
        lipschitz: G, of the loss of one record.
        steps: T >= 1.
        records: n >= 2.
        convexity: Delta > 0.
        epsilon: > 0.
        delta: in (0, 1).
        constant: c > 0.
        convexity_power: a.
    """
    fraction = lipschitz**2 * steps * math.log(1 / delta) / (records * (records - 1) * convexity**convexity_power)
    return math.sqrt(constant * fraction) / epsilon


def true_mu(sigma: float, records: int, relation: Relation = Relation.REPLACE_ONE) -> float:
    """Exact mu of the method on the loss ||theta - x||^2 / 2, which the paper's theorem covers: 2 / (sqrt(n) sigma).

    Gradient descent returns a known multiple of mean(x_i) + N(0, sigma^2 / n I), whatever the number of steps, and one
    replaced record of the unit ball moves the mean by 2 / n (1 / n when it is zeroed). Scaling the loss by a <= G / 2
    gives an instance for any G and Delta = a, so no proof of the theorem can exist below this mu.
    """
    return relation.sensitivity / (math.sqrt(records) * sigma)


@dataclass(frozen=True)
class PaperInput(Method):
    """x_i + N(0, sigma^2 I) once per record, then T full-batch gradient steps; sigma by equation (9).

    The guarantee is the paper's and `claimed`; the release's floor is the proven leakage of the same noise on a loss
    that the theorem covers (`true_mu`). The theorem counts fresh noise in every step; `fresh_noise` draws it so.
    The strong convexity is checked: strength must be positive.

    Args:
        steps: T >= 1.
        constant: c > 0, left open by the paper.
        convexity_power: a, 1/2 or 1 by the two readings.
        fresh_noise: new noise for every record in every step.
        step_scale: step size in units of 1 / smoothness, > 0; the claim does not depend on it.

    Source: Algorithm 1 and equation (9).

    Example:
        >>> PaperInput(steps=10).standing.value
        'claimed'
    """

    family: ClassVar[str] = "input"
    name: ClassVar[str] = "paper"
    standing: ClassVar[Standing] = Standing.CLAIMED
    steps: int = 50
    constant: float = 1.0
    convexity_power: float = 0.5
    fresh_noise: bool = False
    step_scale: float = 1.0

    def __post_init__(self) -> None:
        check.count("steps", self.steps)
        check.positive("step_scale", self.step_scale)
        check.positive("constant", self.constant)
        check.real("convexity_power", self.convexity_power, low=0.0, high=1.0)

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """Strength n / 1000: the paper needs strong convexity and says no more."""
        return 1e-3 * problem.records

    def std(self, problem: Problem, terms: Terms) -> float:
        """Noise standard deviation sigma for this problem."""
        epsilon, delta = approximate(terms, self.name)
        check.positive("strength", problem.strength, "Theorem 1 needs strong convexity.")
        return published_std(
            lipschitz=lipschitz(problem, self.name),
            steps=self.steps,
            records=problem.records,
            convexity=problem.strength / problem.records,
            epsilon=epsilon,
            delta=delta,
            constant=self.constant,
            convexity_power=self.convexity_power,
        )

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the last iterate of gradient descent on the perturbed records."""
        epsilon, delta = approximate(terms, self.name)
        sigma = self.std(problem, terms)
        mechanism = Approximate(epsilon, delta)
        claim_in(terms, mechanism)
        theta = self._descend(problem, terms, sigma)
        return claimed_release(theta, mechanism, terms, sigma, problem.records, self.steps)

    def _descend(self, problem: Problem, terms: Terms, sigma: float) -> np.ndarray:
        eta = self.step_scale / (problem.loss.smoothness + problem.strength / problem.records)
        theta, noisy = problem.zero(), perturbed(problem, terms, sigma)
        for taken in range(self.steps):
            if self.fresh_noise and taken:
                noisy = perturbed(problem, terms, sigma)
            theta = theta - eta / problem.records * noisy.gradient(theta)
        return theta


def perturbed(problem: Problem, terms: Terms, sigma: float) -> Problem:
    """The problem with N(0, sigma^2) added to every private feature; labels stay."""
    return replace(problem, features=perturbed_rows(problem, terms, sigma))


def claim_in(terms: Terms, mechanism: Approximate) -> None:
    """Write the paper's mechanism into the ledger, whose every number is then at most claimed."""
    terms.ledger.mark_unsafe("claimed_calibration", Standing.CLAIMED)
    terms.ledger.assume(LABELS)
    terms.charge(mechanism, "input perturbation, calibration of the paper")


def claimed_release(
    theta: np.ndarray, mechanism: Approximate, terms: Terms, sigma: float, records: int, steps: int
) -> Release:
    """Release of records that were perturbed as the paper does, with the claim, and the floor beside it.

    Args:
        theta: released parameters.
        mechanism: the claim.
        terms: which set the relation.
        sigma: noise standard deviation of every feature.
        records: n.
        steps: T, for the facts.
    """
    facts = {"noise_std": sigma, "steps": steps}
    floor, standing = true_mu(sigma, records, terms.relation), Standing.CLAIMED
    return ClaimedRelease(theta, mechanism, terms.certified, standing, facts, 2 / sigma, floor)


KEY = "input-perturbation"

ROWS = ((150, 0.25), (984, 0.1), (45222, 0.1), (70000, 0.1), (70000, 0.25))
"""n and the claimed epsilon, T = 50."""
LONGER, STEPS = (45222, 0.1), (500, 3000, 45222)
"""The same with more steps: the claim holds at the last."""


@dataclass(frozen=True)
class Refutation:
    """One row: n records, the epsilon claimed by equation (9), and what is exact for the loss ||theta - x||^2 / 2.

    Attributes:
        delta: min(1e-5, n^-1.1).
        noise_std: sigma by equation (9) with G = 2, Delta = 1.
        mu: exact leakage of the released parameter under replace-one.
        epsilon: the same leakage at `delta`.
        constant: the c that would make the claim true, which grows like n / T.
        local_mu: of a perturbed record itself.
    """

    records: int
    claimed: float
    delta: float
    noise_std: float
    mu: float
    epsilon: float
    constant: float
    local_mu: float


def counter_examples(
    rows: Sequence[tuple[int, float]] = ROWS, *, steps: int = 50, constant: float = 1.0
) -> tuple[Refutation, ...]:
    """The table for (records, claimed epsilon) pairs, `steps` gradient steps and the paper's constant c."""
    return tuple(_refuted(records, claimed, steps, constant) for records, claimed in rows)


def _refuted(records: int, claimed: float, steps: int, constant: float) -> Refutation:
    delta = default_delta(records)
    sigma = published_std(
        lipschitz=2.0,
        steps=steps,
        records=records,
        convexity=1.0,
        epsilon=claimed,
        delta=delta,
        constant=constant,
    )
    mu = true_mu(sigma, records)
    needed = constant * (mu / gaussian_mu(claimed, delta)) ** 2
    return Refutation(records, claimed, delta, sigma, mu, gaussian_epsilon(delta, mu), needed, 2 / sigma)


def exact(records: int, claimed: float, steps: int = 50) -> dict[str, float]:
    """`Refutation` of n = `records`, the epsilon `claimed` and T = `steps`, as plain numbers."""
    (found,) = counter_examples([(records, claimed)], steps=steps)
    return asdict(found)


def _tasks(size: str) -> list[Task]:
    settings = [{"records": records, "claimed": epsilon} for records, epsilon in ROWS]
    settings += [dict(zip(("records", "claimed"), LONGER, strict=True)) | {"steps": steps} for steps in STEPS]
    return [Task(f"{__name__}:exact", each, 0.1) for each in settings]


_WORDS = {
    "claimed": ("epsilon as claimed", Standing.CLAIMED),
    "epsilon": ("epsilon, exact", Standing.PROVEN),
    "mu": ("mu, exact", Standing.PROVEN),
    "constant": ("constant c that would make it true", Standing.PROVEN),
    "constant_over_n": ("that c over n", Standing.PROVEN),
    "local_mu": ("mu of a perturbed record itself", Standing.PROVEN),
}


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    rows = []
    for value, steps in zip(values, [0] * len(ROWS) + list(STEPS), strict=False):
        prefix = f"n {value['records']}, claimed {value['claimed']:g}{f', T {steps}' if steps else ''}: "
        value = value | {"constant_over_n": value["constant"] / value["records"]}
        rows += unpublished_rows(KEY, "counter-examples", prefix, value, _WORDS)
    return rows


ITEM = Item("counter-examples", "claimed and exact epsilon of the published calibration", _tasks, _rows)


_RECORDS, _COLUMNS, _STRENGTH, _STEPS, _CLAIMED = 70_000, 5, 0.01, 20, 0.1
_POWERS = {"quick": (0.5,), "full": (0.5, 1.0)}
_RUNS = {"quick": 100, "full": 300}
_SECONDS = 0.04
_OWN_RUNS, _OWN_SEEDS = 20, 10**6
_DELTA = min(1e-5, _RECORDS**-1.1)


def released(flipped: bool, runs: int, convexity_power: float, seed: int) -> dict[str, Any]:
    """The first parameter of `runs` independent releases by the published method, and the attacker's threshold.

    L2-logistic regression on 70,000 records of norm 1 in 5 dimensions, lambda .01, 20 full-batch steps, claimed
    epsilon .1. The first record is the first unit vector; its label is 0, or 1 if `flipped`. The attacker knows
    all records but that label, and sets the threshold by runs of their own.

    Returns "scores" (runs,), "threshold" and the mu of the first step, "mu".

    Args:
        flipped: whether the label of the first record is 1.
        runs: independent releases.
        convexity_power: exponent of the strong convexity in the published noise variance.
        seed: of the noise.
    """
    method, problem = PaperInput(steps=_STEPS, convexity_power=convexity_power), _problem(flipped)
    streams = (SeededStream(seed * runs + run) for run in range(runs))
    found = [method.release(problem, _terms(stream)).theta[0, 0] for stream in streams]
    std = method.std(problem, _terms(SeededStream(0)))
    return {"scores": [float(value) for value in found], "threshold": _middle(method), "mu": true_mu(std, _RECORDS)}


def _terms(stream: SeededStream) -> Terms:
    return Terms(Epsilon(_CLAIMED, _DELTA), Ledger(relation=Relation.REPLACE_ONE), stream)


@cache
def _records() -> tuple[np.ndarray, np.ndarray]:
    """Directions at random, labels by a noisy linear rule; the first record is the one in question."""
    random = np.random.default_rng(0)
    x = random.normal(size=(_RECORDS, _COLUMNS))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[0] = np.eye(_COLUMNS)[0]
    y = (x.sum(axis=1) + random.normal(size=_RECORDS) > 0).astype(float)
    return x, y


def _problem(flipped: bool) -> Problem:
    x, y = _records()
    return Problem(x, np.append(float(flipped), y[1:]), Logistic(), _STRENGTH * _RECORDS)


def _middle(method: PaperInput) -> float:
    """Midpoint of the means under either label in the attacker's own runs, whose noise no audited run shares."""
    own = [
        method.release(_problem(flipped), _terms(SeededStream(_OWN_SEEDS + 2 * run + flipped))).theta[0, 0]
        for run in range(_OWN_RUNS)
        for flipped in (False, True)
    ]
    return float(np.mean(own))


def _flip_tasks(size: str) -> list[Task]:
    return [
        Task(
            f"{__name__}:released",
            {"flipped": flipped, "runs": _RUNS[size], "convexity_power": power, "seed": int(flipped)},
            _SECONDS * (_RUNS[size] + 2 * _OWN_RUNS),
        )
        for power in _POWERS[size]
        for flipped in (True, False)
    ]


def _flip_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """What the audit proves at 95 %, and the smallest violation that it would have been expected to find."""
    make, rows = partial(Row, KEY, "label-flip"), []
    claim = accountant("naive")(Approximate(_CLAIMED, _DELTA), relation=Relation.REPLACE_ONE)
    for power, flipped, kept in zip(_POWERS[size], values[::2], values[1::2], strict=True):
        found = audit_scores(
            Scores("label flip", np.array(flipped["scores"]), np.array(kept["scores"]), flipped["threshold"]),
            delta=_DELTA,
            estimator="fixed",
            trials="independent",
            relation=Relation.REPLACE_ONE,
            claim=claim,
        )
        fpr, tpr = (float(np.mean(np.array(runs["scores"]) >= runs["threshold"])) for runs in (kept, flipped))
        prefix = f"exponent {power:g}, {_RUNS[size]} runs with either label: "
        rows += [
            make(f"{prefix}true positive rate", None, tpr),
            make(f"{prefix}false positive rate", None, fpr),
            make(f"{prefix}epsilon as claimed", None, _CLAIMED, standing=Standing.CLAIMED),
            make(f"{prefix}epsilon at least, at 95 %", None, found.epsilon_lower),
            make(f"{prefix}mu at least, at 95 %, were it Gaussian", None, found.mu_lower),
            make(f"{prefix}smallest epsilon that the audit would detect", None, found.detectable_epsilon),
            make(f"{prefix}claim refuted (1 yes, 0 no)", None, float(found.refutes(claim))),
            make(f"{prefix}mu of the first step by formula", None, flipped["mu"], None, Standing.ASYMPTOTIC),
            make(
                f"{prefix}epsilon of that mu", None, gaussian_epsilon(_DELTA, flipped["mu"]), None, Standing.ASYMPTOTIC
            ),
        ]
    return rows


LABEL_FLIP = Item("label-flip", "attack on one flipped label in the released parameters", _flip_tasks, _flip_rows)
