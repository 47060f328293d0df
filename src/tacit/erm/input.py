"""Input perturbation that is proven: records, or their sum of statistics, with Gaussian noise (modes A1 to A3)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.calibration import smallest
from tacit.erm.losses import HuberHinge, Logistic, Squared
from tacit.erm.release import Method, Release, Terms
from tacit.erm.solver import Problem
from tacit.mechanisms import Approximate, Gaussian, Mechanism
from tacit.noise import gaussian
from tacit.relation import Relation
from tacit.root_finding import bracketed_root
from tacit.standing import Standing
from tacit.tradeoff.gaussian import gaussian_mu

Array = np.ndarray

SHARES = "every one of the n places sends its message, a removed record the message of a zero row"


def moments(problem: Problem) -> tuple[float, Array]:
    """(curvature h, answers (n, k)) of the quadratic that stands in for the loss: h theta^T H theta / 2 - g theta.

    H = sum x x^T, g = sum x answer^T. Squared loss: h = 1, answer = y, exact for |y| <= 1. Logistic loss:
    log 2 - m / 2 + m^2 / 8, its expansion at 0, so h = 1/4 and answer = +-1/2. Softmax likewise: h = 1/k and answer
    e_y - 1/k (the expansion's curvature is at most that of h I on the scores). Huber hinge: h = 1, answer = +-1.
    """
    loss, y = problem.loss, problem.targets
    if isinstance(loss, Squared):
        return 1.0, np.clip(y, -1.0, 1.0)[:, None]
    if isinstance(loss, Logistic):
        return 0.25, (y - 0.5)[:, None]
    if isinstance(loss, HuberHinge):
        return 1.0, (2.0 * y - 1.0)[:, None]
    return 1 / loss.outputs, np.eye(loss.outputs)[y] - 1 / loss.outputs


def answer_bound(problem: Problem) -> float:
    """Bound on the norm of one record's answer in `moments`."""
    loss = problem.loss
    if isinstance(loss, Squared | HuberHinge):
        return 1.0
    return 0.5 if isinstance(loss, Logistic) else math.sqrt(1 - 1 / loss.outputs)


def ridge(problem: Problem, curvature: float, second: Array, first: Array, floor: float) -> Array:
    """(h H + strength I)^{-1} g after symmetrising H, lifting its eigenvalues to 0 and the strength to `floor`."""
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    lifted = curvature * np.maximum(values, 0.0) + max(problem.strength, floor)
    return vectors @ ((vectors.T @ first) / lifted[:, None])


def symmetric_noise(terms: Terms, width: int, std: float) -> Array:
    """A symmetric matrix whose svec (off-diagonal entries times sqrt(2)) has independent N(0, std^2) entries."""
    full = gaussian(terms.stream, (width, width), std=std)
    upper = np.triu(full, 1) / math.sqrt(2)
    return np.diag(np.diag(full)) + upper + upper.T


@dataclass(frozen=True)
class Aggregate(Method):
    """A2: the trainer sees only sum_i (phi_i + w_i), phi_i = (a svec(x x^T), c x answer^T / A), w_i ~ N(0, s^2 / n I).

    ||phi_i|| <= Phi = sqrt(a^2 + c^2), so the sum is one Gaussian step, mu = Phi / s (zero-out: the record's
    contribution is zeroed, its share of noise kept) or 2 Phi / s (replace-one), whatever is computed from it. Each
    contributor adds its own w_i before a secure sum, so against whoever sees a single message it has
    mu_local = 2 Phi sqrt(n) / s: the exchange rate between local and central is exactly sqrt(n), times 2 / s.
    theta solves the ridge equations of `moments`, with the strength lifted to the spectral norm that the noise has
    in expectation, a public number.

    Args:
        second_share: a^2 / Phi^2 in (0, 1), how much of the budget the second moments get.
        withheld: k >= 0 contributors who may withhold or know their noise: s^2 counts as s^2 (n - k) / n.

    Source: sufficient statistics perturbation (Vu & Slavkovic 2009; Wang 2018), distributed; derived here.
    """

    family: ClassVar[str] = "input"
    name: ClassVar[str] = "aggregate"
    standing: ClassVar[Standing] = Standing.PROVEN
    verdict: ClassVar[str] = "exact Gaussian mechanism on summed statistics; central and local at once"
    second_share: float = 0.5
    withheld: int = 0

    def __post_init__(self) -> None:
        check.probability("second_share", self.second_share, open_low=True, open_high=True)
        check.count("withheld", self.withheld, minimum=0)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        n, width = problem.records, problem.shape[0]
        if self.withheld >= n:
            raise check.fail("withheld", f"below the number of records {n}", self.withheld)
        step = Gaussian(terms.gaussian())
        std = step.noise_multiplier * math.sqrt(n / (n - self.withheld))
        terms.ledger.assume(SHARES)
        terms.charge(step, "sum of perturbed statistics")
        second, first = self.statistics(problem, terms, std)
        curvature, _ = moments(problem)
        floor = curvature * math.sqrt(2 * width) * std / math.sqrt(self.second_share)
        facts = {"noise_std": std, "local_noise_std": std / math.sqrt(n), "strength": max(problem.strength, floor)}
        return Release(
            ridge(problem, curvature, second, first, floor),
            step,
            terms.relation,
            terms.standing,
            local_mu=2 * math.sqrt(n) / std,
            facts=facts,
        )

    def statistics(self, problem: Problem, terms: Terms, std: float) -> tuple[Array, Array]:
        """(sum x x^T, sum x answer^T) with the sum of the contributors' noise, in their own units.

        The n shares of variance std^2 / n add up to one draw of variance std^2.
        """
        a, c = math.sqrt(self.second_share), math.sqrt(1 - self.second_share)
        _, answers = moments(problem)
        second = problem.features.T @ problem.features
        first = problem.features.T @ answers
        scale = std * answer_bound(problem) / c
        return (
            second + symmetric_noise(terms, problem.shape[0], std / a),
            first + gaussian(terms.stream, problem.shape, std=scale),
        )


@dataclass(frozen=True)
class _Messages(Method):
    """Every record is sent once as (x, tau answer / A) + N(0, s^2 I); training on the messages is post-processing.

    ||(x, tau answer / A)|| <= sqrt(1 + tau^2), so two records' messages are mu_local = 2 sqrt(1 + tau^2) / s apart.
    theta solves the ridge equations on the messages' moments, H less its known bias n s^2 I.

    Args:
        label_scale: tau > 0.
    """

    family: ClassVar[str] = "input"
    standing: ClassVar[Standing] = Standing.PROVEN
    label_scale: float = 1.0

    def __post_init__(self) -> None:
        check.positive("label_scale", self.label_scale)

    @abstractmethod
    def budget(self, records: int, terms: Terms) -> tuple[float, Mechanism, Relation]:
        """(local mu, what goes into the ledger, the relation under which it meets the target)."""

    def release(self, problem: Problem, terms: Terms) -> Release:
        """See the class."""
        mu, mechanism, relation = self.budget(problem.records, terms)
        std = 2 * math.hypot(1.0, self.label_scale) / mu
        terms.ledger.assume(SHARES)
        terms.charge(mechanism, f"{self.name} messages")
        rows, sent = self.messages(problem, terms, std)
        curvature, _ = moments(problem)
        bound, private = answer_bound(problem), problem.private_columns
        second = rows.T @ rows
        second[np.arange(private), np.arange(private)] -= problem.records * std**2
        first = rows.T @ sent * (bound / self.label_scale)
        floor = curvature * math.sqrt(2 * problem.records * problem.shape[0]) * std**2
        return Release(
            ridge(problem, curvature, second, first, floor),
            mechanism,
            relation,
            terms.standing,
            local_mu=mu,
            facts={"noise_std": std, "strength": max(problem.strength, floor)},
        )

    def messages(self, problem: Problem, terms: Terms, std: float) -> tuple[Array, Array]:
        """(perturbed rows (n, p), perturbed tau answer / A (n, k)); the intercept's constant is public and stays."""
        rows, private = problem.features.copy(), problem.private_columns
        rows[:, :private] += gaussian(terms.stream, (problem.records, private), std=std)
        _, answers = moments(problem)
        scaled = self.label_scale / answer_bound(problem) * answers
        return rows, scaled + gaussian(terms.stream, answers.shape, std=std)


@dataclass(frozen=True)
class Local(_Messages):
    """A1: the target is met locally, under replace-one, by every single message; the curator needs no trust.

    Source: the Gaussian mechanism in the local model.
    """

    name: ClassVar[str] = "local"
    verdict: ClassVar[str] = "exact Gaussian mechanism on every record; everything after it is post-processing"

    def budget(self, records: int, terms: Terms) -> tuple[float, Mechanism, Relation]:
        """See the class."""
        multiplier = smallest("noise_multiplier", Gaussian, terms.target, relation=Relation.REPLACE_ONE).value
        step = Gaussian(multiplier)
        return 2 / multiplier, step, Relation.REPLACE_ONE


@dataclass(frozen=True)
class Shuffled(_Messages):
    """A3: (e0, d0)-DP messages, order removed by a trusted shuffler; the target is met centrally.

    For e0 <= log(n / (16 log(2 / d))), with d the delta of the bound,

        epsilon = log(1 + (e^e0 - 1) / (e^e0 + 1) (8 sqrt(e^e0 log(4 / d) / n) + 8 e^e0 / n)),
        delta = d + (e^epsilon + 1) (1 + e^-e0 / 2) n d0;

    d takes half of delta and d0 the rest. Replace-one; a removed record's place sends a zero row.

    Source: Feldman, McMillan & Talwar 2021, Theorem 3.1 and its (e0, d0) form.
    """

    name: ClassVar[str] = "shuffled"
    verdict: ClassVar[str] = "local messages amplified by a trusted shuffler, published closed form"

    def budget(self, records: int, terms: Terms) -> tuple[float, Mechanism, Relation]:
        """See the class."""
        epsilon, delta = terms.approximate(self.name)
        first = largest_local_epsilon(epsilon, delta / 2, records)
        d0 = delta / 2 / ((math.exp(epsilon) + 1) * (1 + math.exp(-first) / 2) * records)
        mechanism = Approximate(epsilon, delta)
        return gaussian_mu(first, d0), mechanism, terms.relation


def shuffled_epsilon(first: float, delta: float, records: int) -> float:
    """The epsilon of the closed form above."""
    power = math.exp(first)
    spread = 8 * math.sqrt(power * math.log(4 / delta) / records) + 8 * power / records
    return math.log1p(math.expm1(first) / (power + 1) * spread)


def largest_local_epsilon(epsilon: float, delta: float, records: int) -> float:
    """The largest e0 that a shuffler brings down to `epsilon`; e0 = epsilon itself where the bound does not help."""
    limit = math.log(max(records / (16 * math.log(2 / delta)), 1.0))
    if limit <= epsilon or shuffled_epsilon(epsilon, delta, records) > epsilon:
        return epsilon
    if shuffled_epsilon(limit, delta, records) <= epsilon:
        return limit
    root = bracketed_root(lambda first: shuffled_epsilon(first, delta, records) - epsilon, epsilon, limit)
    return root * (1 - 1e-12)
